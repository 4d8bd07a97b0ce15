"""The parent's side of a worker that tunes: what it is asked beside what every worker is."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import Code, Mode, Nursery, Worker
from flopwatch.measure.protocol import Op, Request
from flopwatch.measure.worker import SESSION_VARIABLE

if TYPE_CHECKING:
    from flopwatch.model import Case

#: Between a provider and the configuration that it runs in.
AT = "@"


class TuneOp(enum.StrEnum):
    """The requests that only such a worker answers."""

    DECLARE = "declare"
    TUNABLES = "tunables"


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """What a suite says of one case.

    Attributes:
        names: of its parameters, without the provider.
        flops: floating-point operations of one call.
        bytes_moved: bytes that one call must move.
        max_diff_eps: the suite's own ceiling for the numbers, if it has one.
        space: settings and values that the suite wants searched, its `tuning_space`.
    """

    names: tuple[str, ...]
    flops: float
    bytes_moved: float
    max_diff_eps: float | None
    space: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tunable:
    """An autotuned kernel.

    Attributes:
        kernel: the name of its function.
        configs: what its tuner chooses from, as Triton writes them.
        first: the first of these that compiles and fits; "" where none does.
    """

    kernel: str
    configs: tuple[str, ...]
    first: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneCode(Code):
    """Code whose workers answer with the session of `flopwatch.tune.worker`."""

    def environment(self, mode: Mode) -> dict[str, str]:
        """Return the environment of a process that runs this code."""
        return Code.environment(self, mode) | {SESSION_VARIABLE: "flopwatch.tune.worker:TuneSession"}


class TuneWorker(Worker):
    """A worker that runs such code."""

    def declare(self, case: Case) -> Declared:
        """Ask what the suite makes of a case."""
        return self._ask(Request(op=TuneOp.DECLARE, case=case), Op.FACTS, Declared)

    def tunables(self, case: Case) -> tuple[Tunable, ...]:
        """Ask which autotuned kernels a case launches."""
        return self._ask(Request(op=TuneOp.TUNABLES, case=case), Op.FACTS, tuple[Tunable, ...])


class TuneSides(Sides):
    """One tree, run by workers that tune."""

    def code(self, arm: Arm) -> TuneCode:
        """Return what a worker of that arm imports."""
        return TuneCode(**asdict(super().code(arm)))

    def start_nurseries(self) -> None:
        """Let head alone import what it needs to be forked: base is the same tree, and runs in the same processes."""
        self._nurseries[Arm.HEAD] = self._stack.enter_context(Nursery(self.code(Arm.HEAD)))

    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> TuneWorker:
        """Return a worker, which starts at its first request; on a GPU it is forked where that is possible."""
        nursery = self._nursery(arm) if mode is Mode.GPU and not anew else None
        return TuneWorker(mode, self.code(arm), nursery=nursery)


def in_config(case: Case, config: str) -> Case:
    """Return the case that runs in a configuration.

    >>> from flopwatch.model import Case
    >>> in_config(Case(suite="Add", values=("16", "flopwatch")), "BLOCK: 64").id
    'Add[16,flopwatch@BLOCK: 64]'
    """
    return replace(case, values=(*case.values[:-1], f"{case.provider}{AT}{config}"))
