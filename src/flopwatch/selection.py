"""Which cases `-k` selects: those with a text in their name, or with one of several texts."""

from __future__ import annotations

#: Between texts; no name has a space in it.
OR = " or "


def is_selected(select: str, *names: str) -> bool:
    """Tell whether one of the names has one of the texts in it, in upper or lower case; the empty text is in all.

    >>> is_selected("matmul or VectorAdd[1000", "VectorAdd[1000,float32,flopwatch]")
    True
    >>> is_selected("matmul or attention", "VectorAdd[1000,float32,flopwatch]")
    False
    """
    texts = select.lower().split(OR)
    return any(text in name.lower() for text in texts for name in names)
