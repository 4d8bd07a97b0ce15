"""How long a launch may be evaluated: so many turns of its loops."""

from __future__ import annotations

from dataclasses import dataclass


class TooLongError(Exception):
    """The loops take more turns than there are."""


@dataclass(kw_only=True, slots=True)
class Turns:
    """How many turns of loops may still be taken; a set of programs that is begun counts as one."""

    left: int

    def take(self) -> None:
        """Take one.

        Raises:
            TooLongError: there is none left.
        """
        if self.left <= 0:
            raise TooLongError
        self.left -= 1
