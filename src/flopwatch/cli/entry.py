"""The way in: every verb in one parser; errors in three lines, no traceback without -v."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from typing import TYPE_CHECKING

from flopwatch import __version__
from flopwatch.cli.bisect import add_bisect
from flopwatch.cli.compare import add_compare
from flopwatch.cli.doctor import add_doctor
from flopwatch.cli.explain import add_explain
from flopwatch.cli.footprint import add_footprint
from flopwatch.cli.gate import add_gate
from flopwatch.cli.history import add_history
from flopwatch.cli.init import add_init
from flopwatch.cli.ir import add_ir
from flopwatch.cli.profile import add_profile
from flopwatch.cli.record import add_record
from flopwatch.cli.report import add_report
from flopwatch.cli.sanitize import add_sanitize
from flopwatch.cli.static import add_static
from flopwatch.cli.tune import add_tune
from flopwatch.cli.verb import EXIT_CODES, exit_codes_text
from flopwatch.cli.waive import add_waive
from flopwatch.errors import ExitCode, FlopwatchError

if TYPE_CHECKING:
    from collections.abc import Sequence


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every verb."""
    parser = argparse.ArgumentParser(
        prog="flopwatch",
        description="Watch the speed and the numbers of GPU kernels, commit by commit.",
        epilog=exit_codes_text(EXIT_CODES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"flopwatch {__version__}", help="print the version")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    add_bisect(verbs)
    add_compare(verbs)
    add_doctor(verbs)
    add_explain(verbs)
    add_footprint(verbs)
    add_gate(verbs)
    add_history(verbs)
    add_init(verbs)
    add_ir(verbs)
    add_profile(verbs)
    add_record(verbs)
    add_report(verbs)
    add_sanitize(verbs)
    add_static(verbs)
    add_tune(verbs)
    add_waive(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run flopwatch; return the exit code."""
    parsed = build_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job cleans up like an interrupted one
    try:
        code: int = parsed.run(parsed)
    except FlopwatchError as error:
        return _report(str(error), error.exit_code, verbose=parsed.verbose)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""  # a full disk names no file
        return _report(f"{where}{error.strerror or error}", ExitCode.USAGE, verbose=parsed.verbose)
    except KeyboardInterrupt:
        return _report("interrupted", ExitCode.UNDECIDED, verbose=False)
    except Exception as error:  # noqa: BLE001 - Python's own exit code 1 would say "regressed"
        return _report(f"internal error: {type(error).__name__}: {error}", ExitCode.UNDECIDED, verbose=True)
    return code


def _report(message: str, code: ExitCode, *, verbose: bool) -> int:
    """Print why there is no result; call it where the exception is handled."""
    if verbose:
        traceback.print_exc()
    print(f"flopwatch: {message}", file=sys.stderr)  # noqa: T201 - the error is the result
    return int(code)
