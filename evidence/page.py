"""The generated parts of a page of the docs, between markers.

``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` enclose the part of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def filled(page: str, parts: dict[str, str]) -> str:
    r"""Replace what is between the markers.

    >>> filled("<!-- a:begin -->\nold\n<!-- a:end -->", {"a": "new"})
    '<!-- a:begin -->\nnew\n<!-- a:end -->'

    Raises:
        ValueError: the page has no place for a part.
    """
    for name, text in parts.items():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        if (page.count(begin), page.count(end)) != (1, 1):
            raise ValueError(f"the page needs one place for {name!r}, from {begin.strip()} to {end}")
        before, _, rest = page.partition(begin)
        body = f"{text.strip()}\n" if text else ""
        page = before + begin + body + end + rest.partition(end)[2]
    return page


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    """Write a Markdown table, its first `left` columns aligned to the left."""
    rule = "|".join(":--" if index < left else "--:" for index in range(len(heads)))
    lines = [f"| {' | '.join(heads)} |", f"|{rule}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
