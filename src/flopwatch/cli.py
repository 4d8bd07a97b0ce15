"""The command line: one function a verb; errors in three lines, no traceback without -v."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch import __version__
from flopwatch.errors import ExitCode, FlopwatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXIT_CODES = """\
exit codes:
  0  nothing regressed
  1  something regressed
  2  usage, configuration or repository error
  3  undecided, or nothing could be compared
  4  the machine is unfit
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every verb."""
    parser = argparse.ArgumentParser(
        prog="flopwatch",
        description="Watch the speed and the numbers of GPU kernels, commit by commit.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"flopwatch {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_gate(verbs)
    return parser


def _add_gate(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    gate = verbs.add_parser(
        "gate",
        help="compare two commits: static facts, numbers and, on a GPU, time in pairs",
        description="Compare HEAD with BASE: what the compiler makes of every kernel, how far every result is from\n"
        "float64, and, where there is a GPU, how long every case takes, both sides taking turns.",
        epilog="examples:\n  flopwatch gate\n  flopwatch gate HEAD~1 HEAD -k Matmul --json gate.json\n\n" + _EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    gate.add_argument("base", nargs="?", metavar="BASE", help="commit to compare with (the merge base with main)")
    gate.add_argument("head", nargs="?", metavar="HEAD", help="commit on trial (the working tree)")
    gate.add_argument("-k", dest="select", default="", metavar="TEXT", help="only cases whose name has TEXT in it")
    gate.add_argument("--device", help="GPU to compile the static facts for, such as a100, h100, h200, b200")
    gate.add_argument("--json", type=Path, metavar="FILE", help="write everything found out as JSON; - is stdout")
    gate.add_argument("-C", dest="repository", type=Path, default=Path(), metavar="DIR", help="the repository (.)")
    gate.add_argument("--exit-zero", action="store_true", help="exit 0 whatever the verdicts; errors keep their code")
    gate.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
    gate.set_defaults(run=_gate)


def _gate(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.gate import GateOptions, run_gate  # noqa: PLC0415 - as above
    from flopwatch.model import to_json  # noqa: PLC0415 - as above
    from flopwatch.report.terminal import print_gate  # noqa: PLC0415 - as above

    chatter = Console(stderr=True)
    options = GateOptions(base=arguments.base, head=arguments.head, select=arguments.select, device=arguments.device)
    root = git.repository_root(arguments.repository)
    to_file = arguments.json is not None and arguments.json != Path("-")
    if to_file:
        arguments.json.open("a").close()  # now, not after minutes of measuring
    with chatter.status("starting") as status:

        def progress(line: str) -> None:
            status.update(line)
            if not chatter.is_terminal:
                chatter.print(line)

        result = run_gate(options, root, progress=progress)
    data = to_json(result, indent=2).decode()
    if arguments.json == Path("-"):
        print(data)  # noqa: T201 - what was asked for
    else:
        print_gate(result, Console())
        if to_file:
            arguments.json.write_text(data + "\n", encoding="utf-8")
    return 0 if arguments.exit_zero else result.exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run flopwatch; return the exit code."""
    parsed = build_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job cleans up like an interrupted one
    try:
        code: int = parsed.run(parsed)
    except FlopwatchError as error:
        return _report(str(error), error.exit_code, verbose=parsed.verbose)
    except OSError as error:
        return _report(f"{error.filename}: {error.strerror}", ExitCode.USAGE, verbose=parsed.verbose)
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
