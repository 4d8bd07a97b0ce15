"""What every verb of the command line shares: its help, the repository it works in, and how it is run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    Verbs: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - it has no public name

EXIT_CODES = """\
exit codes:
  0  nothing regressed
  1  something regressed
  2  usage, configuration or repository error
  3  undecided, or nothing could be compared
  4  the machine is unfit
"""


def add_verb(
    verbs: Verbs,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    description: str,
    examples: Sequence[str],
) -> argparse.ArgumentParser:
    """Add the verb `name`, carried out by `run`; return its parser, which has -C and -v already.

    Args:
        verbs: the subparsers of the command line.
        name: what the user types.
        run: takes the parsed arguments, returns the exit code.
        summary: the line in the list of verbs.
        description: the head of the verb's own help, laid out as it is given.
        examples: command lines, shown at its end.
    """
    verb = verbs.add_parser(
        name,
        help=summary,
        description=description,
        epilog="\n  ".join(["examples:", *examples]) + "\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_argument("-C", dest="repository", type=Path, default=Path(), metavar="DIR", help="the repository (.)")
    verb.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
    verb.set_defaults(run=run)
    return verb
