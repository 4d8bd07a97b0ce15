"""Patterns that name cases, as margins and waivers use them: ``Attention*lengths*``."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase


def matches(pattern: str, case_id: str) -> bool:
    """Tell whether a pattern names a case.

    ``*`` stands for any text, ``?`` for one character; all else is itself. In particular the brackets, which every
    case's name has, are no sets of characters.

    >>> matches("Matmul[*,float16,*]", "Matmul[4096x4096x4096,float16,flopwatch]")
    True
    """
    return fnmatchcase(case_id, pattern.replace("[", "[[]"))


def specificity(pattern: str) -> int:
    """Count the characters that a pattern spells out; of several that match, the one with most of them decides.

    The order of the patterns has no say, for a TOML table has none.

    >>> specificity("Matmul*") < specificity("Matmul[*,float16,*]")
    True
    """
    return sum(character not in "*?" for character in pattern)


def pattern_problem(pattern: str) -> str:
    """Say why a pattern cannot match the name of any case; empty where it can.

    >>> pattern_problem("Matmul*"), pattern_problem("Matmul[16,float16,flopwatch]")
    ('', '')
    >>> pattern_problem("Matmul")
    "'Matmul' matches no case: names are like Matmul[4096,float16,flopwatch], and * stands for any text, as in Matmul*"
    """
    if not pattern.strip():
        return "is blank"
    if not pattern.isprintable():
        return f"{pattern!r} has a character that no case's name has"
    suite = re.split(r"[\[*?]", pattern, maxsplit=1)[0]
    if (suite and not suite.isidentifier()) or not pattern.endswith(("]", "*", "?")):
        return (
            f"{pattern!r} matches no case: names are like Matmul[4096,float16,flopwatch], "
            "and * stands for any text, as in Matmul*"
        )
    return ""
