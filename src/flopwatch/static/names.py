"""What kernels are called: those of one name, of which a case may launch several, each by a name of its own."""

from __future__ import annotations

import re

_NUMBERED = re.compile(r"(.+) \([0-9]+\)")


class KernelNames:
    """The names that were given so far; different kernels that are called alike are numbered as they are first seen.

    >>> names = KernelNames()
    >>> [names.name("kernel", key) for key in ("of one module", "of another", "of one module")]
    ['kernel', 'kernel (2)', 'kernel']
    """

    def __init__(self) -> None:
        self._keys: dict[str, list[str]] = {}

    def name(self, called: str, key: str) -> str:
        """Return the name of a kernel that is called so, and is the same as all others of that name with equal keys."""
        keys = self._keys.setdefault(called, [])
        if key not in keys:
            keys.append(key)
        return numbered_name(called, keys.index(key) + 1)


def numbered_name(called: str, number: int) -> str:
    """Return the name of one of the kernels that are called alike; the first has no number.

    >>> numbered_name("kernel", 1), numbered_name("kernel", 2)
    ('kernel', 'kernel (2)')
    """
    return called if number == 1 else f"{called} ({number})"


def function_name(name: str) -> str:
    """Return what the function is called that a kernel's name is of.

    >>> function_name("kernel (2)"), function_name("kernel")
    ('kernel', 'kernel')
    """
    found = _NUMBERED.fullmatch(name)
    return found[1] if found else name
