"""The declaration of a study: a suite, the parameter whose values take turns, and what is to be true of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from flopwatch.errors import SuiteError
from flopwatch.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The folder of the studies, below that of the suites.
FOLDER = "studies"


@dataclass(frozen=True, kw_only=True, slots=True)
class Conclusion:
    """What is to be true: at every point a line takes at most so much longer than each of some others.

    "Within 1 % of the best" is 1 % against all others, "faster" is 0 %, and "5 % faster" is -5 %.

    Attributes:
        says: the same in words.
        line: whose time, by name: its provider and its value, as in "flopwatch 8", or the provider alone where that has
            one value only.
        than: whose time it is held against; ``*`` stands for any text. What does not run is left out.
        percent: how much longer it may take.
        at: points at which it is to be true; ``*`` stands for any text.
    """

    says: str
    line: str
    than: tuple[str, ...]
    percent: float
    at: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """What a study says beside its cases.

    Attributes:
        line: the parameter whose values take turns.
        base: the line in whose units the others are told; "" is the first.
        conclusions: what is to be true.
    """

    line: str
    base: str
    conclusions: tuple[Conclusion, ...]


class Study(Suite):
    """A suite whose question is about one of its parameters: which value is the fastest, where, and by how much.

    It lies in ``studies`` below the folder of the suites, where neither gate nor history looks for cases, and
    ``flopwatch compare --study`` runs it.

    Attributes:
        line: the parameter whose values take turns; with its providers they are the lines of the plot.
        base: the line in whose units the others are told; the first where it is not named.
        conclusions: what is to be true. ``flopwatch compare --study`` ends with exit code 1 where one is not.
    """

    recorded: ClassVar[bool] = False
    line: ClassVar[str] = ""
    base: ClassVar[str] = ""
    conclusions: ClassVar[Sequence[Conclusion]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 - passed on
        super().__init_subclass__(**kwargs)
        own = list(cls.param_names)[:-1]
        if cls.line not in own:
            raise SuiteError(
                f"study {cls.__name__}: line is {cls.line!r}",
                why=f"its parameters are {', '.join(own) or 'none'}",
                todo="name the parameter whose values take turns",
            )

    @classmethod
    def declaration(cls) -> Declaration:
        """Return what it says beside its cases."""
        return Declaration(line=cls.line, base=cls.base, conclusions=tuple(cls.conclusions))
