"""What every verb of the command line shares: its help, the repository it works in, and how it is run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    Verbs: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - it has no public name

#: Of flopwatch as a whole; a verb's help has what they mean for that verb.
EXIT_CODES = {
    ExitCode.OK: "done; of gate and report: nothing regressed",
    ExitCode.REGRESSED: "something regressed or is wrong; of gate, report, sanitize and compare --study alone",
    ExitCode.USAGE: "usage, configuration or repository error",
    ExitCode.UNDECIDED: "undecided, nothing to decide about, interrupted, or flopwatch itself failed",
    ExitCode.UNFIT: "the machine is unfit",
}
#: Of every verb, where it does not say more.
_SHARED = {
    ExitCode.USAGE: EXIT_CODES[ExitCode.USAGE],
    ExitCode.UNDECIDED: "interrupted, or flopwatch itself failed",
}


def add_verb(
    verbs: Verbs,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    description: str,
    examples: Sequence[str],
    exit_codes: Mapping[ExitCode, str],
) -> argparse.ArgumentParser:
    """Add the verb `name`, carried out by `run`; return its parser, which has -C and -v already.

    Args:
        verbs: the subparsers of the command line.
        name: what the user types.
        run: takes the parsed arguments, returns the exit code.
        summary: the line in the list of verbs.
        description: the head of the verb's own help, laid out as it is given.
        examples: command lines, shown at its end.
        exit_codes: what each means for this verb; 2 and 3 are told of every verb, in general words where they are
            left out.
    """
    verb = verbs.add_parser(
        name,
        help=summary,
        description=description,
        epilog="\n  ".join(["examples:", *examples]) + "\n\n" + exit_codes_text({**_SHARED, **exit_codes}),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_argument("-C", dest="repository", type=Path, default=Path(), metavar="DIR", help="the repository (.)")
    verb.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
    verb.set_defaults(run=run)
    return verb


def exit_codes_text(exit_codes: Mapping[ExitCode, str]) -> str:
    """Return the end of a help, in the order of the numbers.

    >>> print(exit_codes_text({ExitCode.USAGE: "usage error", ExitCode.OK: "done"}), end="")
    exit codes:
      0  done
      2  usage error
    """
    return "".join(["exit codes:\n", *(f"  {code.value}  {exit_codes[code]}\n" for code in sorted(exit_codes))])
