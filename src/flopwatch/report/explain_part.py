"""A part of an explanation, before it is put into a terminal, Markdown or a page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part: a title, and lines, a table or code below it.

    Attributes:
        title: a line.
        lines: of text, or of code.
        header: of the table's columns; the first is of names, the others of numbers.
        rows: of the table.
        is_code: the lines are code or a diff.
    """

    title: str
    lines: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    is_code: bool = False
