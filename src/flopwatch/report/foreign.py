"""Text that somebody else wrote, such as names, reasons and compilers' messages, made safe to print."""

from __future__ import annotations

from rich.text import Text

from flopwatch.waivers import printable


def safe(text: str, style: str = "", *, indent: int = 0) -> Text:
    r"""Return text on one line, of which neither rich nor the terminal obeys anything.

    Args:
        text: whatever it is.
        style: of rich.
        indent: blanks before it.

    >>> safe("[red]boo[/red] :bug:\x1b[2J\nbah", indent=2).plain
    '  [red]boo[/red] :bug: [2J bah'
    """
    return Text(" " * indent + printable(text), style)
