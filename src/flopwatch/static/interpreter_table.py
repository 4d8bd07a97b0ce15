"""Write what Triton's interpreter can do into a page.

``python -m flopwatch.static.interpreter_table docs/interpreter.md`` rewrites the table of that page: the column of
the installed Triton is made anew by running every probe; those of other versions stay as they are.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FIRST = "feature"


def with_column(page: str, version: str, cells: Mapping[str, str]) -> str:
    r"""Return the page with its table's column for `version` replaced or added, and a row for each of `cells`.

    >>> page = "Before.\n\n| feature | 3.6.0 |\n| --- | --- |\n| flip | right |\n\nAfter.\n"
    >>> print(with_column(page, "3.7.1", {"flip": "right", "sort": "repaired"}))
    Before.
    <BLANKLINE>
    | feature | 3.6.0 | 3.7.1 |
    | --- | --- | --- |
    | flip | right | right |
    | sort |  | repaired |
    <BLANKLINE>
    After.
    <BLANKLINE>
    """
    lines = page.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"| {_FIRST} |"))
    end = next((index for index in range(start, len(lines)) if not lines[index].startswith("|")), len(lines))
    table = columns(page)
    versions = sorted({*table, version}, key=lambda text: [int(part) for part in text.split(".")])
    table[version] = dict(cells)
    names = list(dict.fromkeys([*cells, *(name for column in table.values() for name in column)]))
    rows = [[_FIRST, *versions], ["---"] * (len(versions) + 1)]
    rows += [[name, *(table[entry].get(name, "") for entry in versions)] for name in names]
    return "\n".join([*lines[:start], *(f"| {' | '.join(row)} |" for row in rows), *lines[end:]]) + "\n"


def columns(page: str) -> dict[str, dict[str, str]]:
    """Return the page's table: for each version of Triton what is said of each feature."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    header, _, *body = rows
    return {
        version: {row[0]: row[index] for row in body if row[index]}
        for index, version in enumerate(header)
        if version != _FIRST
    }


def found() -> dict[str, str]:
    """Probe the installed Triton; say of each feature "right", "repaired" or "not covered".

    Raises:
        UsageError: Triton was imported without ``TRITON_INTERPRET=1``.
    """
    from flopwatch.static.interpreter import correct_interpreter  # noqa: PLC0415 - after `main` asked to interpret

    return {name: coverage.value for name, coverage in correct_interpreter().items()}


def main(arguments: Sequence[str]) -> None:
    """Rewrite the table of a page, or of each of several."""
    os.environ["TRITON_INTERPRET"] = "1"
    for argument in arguments:
        path = Path(argument)
        page = with_column(path.read_text(encoding="utf-8"), importlib.metadata.version("triton"), found())
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
