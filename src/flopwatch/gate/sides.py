"""The two sides of a gate, and how to start workers on them."""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING

from flopwatch.errors import MachineError
from flopwatch.measure.client import Code, Mode, Nursery, NurseryFailed, Worker, side_by_side
from flopwatch.measure.nvml import present_gpus

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.config import Config


class Arm(enum.Enum):
    """Which of the two versions."""

    BASE = "base"
    HEAD = "head"


class Sides(contextlib.AbstractContextManager["Sides"]):
    """The checkouts of both arms. Both run head's suites, so that the ruler does not change with what it measures.

    Args:
        config: of the repository.
        device: the GPU to compile for.
        base_tree: base's checkout.
        head_tree: head's.
    """

    def __init__(self, config: Config, *, device: str, base_tree: Path, head_tree: Path) -> None:
        self.config = config
        self.device = device
        self.trees = {Arm.BASE: base_tree, Arm.HEAD: head_tree}
        self.notes: list[str] = []
        self._nurseries: dict[Arm, Nursery] = {}
        self._stack = contextlib.ExitStack()

    def code(self, arm: Arm) -> Code:
        """Return what a worker of that arm imports."""
        return Code(
            benchmarks=self.trees[Arm.HEAD] / self.config.benchmarks,
            tree=self.trees[arm],
            source=self.config.source,
            packages=self.config.packages,
            device=self.device,
        )

    def start_nurseries(self) -> None:
        """Where there is a GPU, let both arms import what they need to be forked, beside whatever else happens."""
        with contextlib.suppress(MachineError):
            for arm in Arm if present_gpus() else ():
                self._nurseries[arm] = self._stack.enter_context(Nursery(self.code(arm)))

    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        """Return a worker, which starts at its first request; on a GPU it is forked where that is possible.

        With `anew` it is a new interpreter in any case, with an address space and a hash seed of its own.
        """
        return Worker(mode, self.code(arm), nursery=self._nursery(arm) if mode is Mode.GPU and not anew else None)

    def compilers(self, arm: Arm, count: int, stack: contextlib.ExitStack) -> list[Worker]:
        """Return workers that compile beside another one, forked from an interpreter that imports meanwhile.

        Each starts at its first request, at once; a new interpreter takes 3.5 s of a core (triton 3.7.1, 2026-11-21).
        """
        code = self.code(arm)
        nursery = stack.enter_context(Nursery(code, Mode.STATIC)) if count else None
        return [stack.enter_context(Worker(Mode.STATIC, code, nursery=nursery)) for _ in range(count)]

    def both(self, mode: Mode, stack: contextlib.ExitStack) -> tuple[Worker, Worker]:
        """Start base's and head's worker side by side."""
        workers = [stack.enter_context(self.worker(mode, arm)) for arm in Arm]
        side_by_side(lambda worker: worker.hello, workers)
        return workers[0], workers[1]

    def _nursery(self, arm: Arm) -> Nursery | None:
        """Return the arm's nursery, if both arms have one: what is forked and what is not differ in more than code."""
        for other, nursery in self._nurseries.items():
            try:
                nursery.ready()
            except NurseryFailed as error:
                self.notes.append(f"workers start anew, 3 s slower: {other.value}: {error.failure.message}")
                self._nurseries = {}
                break
        return self._nurseries.get(arm)

    def __exit__(self, *_: object) -> None:
        self._stack.close()
