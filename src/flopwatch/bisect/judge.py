"""What a bisection asks of whoever tells good commits from bad ones: `times` or `facts`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from flopwatch.bisect.result import Effect
from flopwatch.errors import UsageError
from flopwatch.gate.sides import Arm, Sides
from flopwatch.gate.static import select_cases
from flopwatch.static.tree import tree_identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flopwatch.bisect.result import Commit, Step
    from flopwatch.config import Config
    from flopwatch.gate.result import PairLog
    from flopwatch.measure.client import Code
    from flopwatch.measure.protocol import DeclaredCase, Hello
    from flopwatch.model import Case

#: Of the cases that match a name which should match one, so many are listed.
MAX_LISTED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One commit against an older one.

    Attributes:
        effect: what pairs say.
        older_value: of a compiled fact.
        value: likewise.
        differs: it is proved that they differ.
        settling_pairs: how many would show whether they do; None if not known.
        reason: why that could not be found out.
    """

    effect: Effect | None = None
    older_value: int | None = None
    value: int | None = None
    differs: bool = False
    settling_pairs: int | None = None
    reason: str = ""


class Judge(Protocol):
    """Tells on which side of the change between good and bad a commit is.

    `case` is what is looked at, `device` where; `logs` are the pairs that it took, `notes` what else came up.
    """

    case: Case
    device: str
    logs: list[PairLog]
    notes: list[str]

    def difference(self, bad: Commit) -> Difference:
        """Find out whether bad differs from good; the steps' threshold lies halfway."""

    def step(self, commit: Commit) -> Step:
        """Look at one commit."""

    def change(self, culprit: Commit, parent: Commit) -> Difference:
        """Hold the culprit against its parent."""

    def so_far(self) -> Effect | None:
        """Return what is known of bad against good when that was stopped."""


class OneRuler(Sides):
    """Two checkouts, and the suites that both run, which may be a third's.

    The suites are bad's at every step, so that the ruler does not change with what it measures.
    """

    def __init__(self, config: Config, *, device: str, base_tree: Path, head_tree: Path, suites: Path) -> None:
        super().__init__(config, device=device, base_tree=base_tree, head_tree=head_tree)
        self.suites = suites

    def code(self, arm: Arm) -> Code:
        """Return what a worker of that arm imports."""
        return replace(super().code(arm), benchmarks=self.suites)


def code_identity(tree: Path, config: Config) -> str:
    """Return what the checkouts share whose code under test is the same but for comments."""
    return tree_identity(tree / config.source, config.packages)


def one_case(hello: Hello, name: str) -> DeclaredCase:
    """Return the case of that name, or the only one whose name has it as a part.

    Raises:
        UndecidedError: there is none.
        UsageError: there are several.
    """
    matching = select_cases(hello, name)
    exact = [entry for entry in matching if entry.case.id.lower() == name.lower()]
    found = exact or list(matching)
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} cases match {name!r}, and one is bisected at a time",
            why=_listed([entry.case.id for entry in found]),
            todo="give the whole name of one of them, in quotes",
        )
    return found[0]


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")
