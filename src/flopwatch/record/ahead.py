"""Compile what a commit's cases launch before the first of them is measured, on all cores and without the GPU."""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import TYPE_CHECKING

from flopwatch.gate.shares import Shares
from flopwatch.gate.static import compiled_for_this_gpu, teams_for
from flopwatch.measure.client import CaseFailed, Mode, Worker, side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.gate.pairs import Observer
    from flopwatch.gate.sides import Arm, Sides
    from flopwatch.measure.protocol import Hello
    from flopwatch.model import Case


def compile_ahead(sides: Sides, arms: Sequence[Arm], cases: Sequence[Case], observer: Observer) -> None:
    """Leave in Triton's cache what the workers on the GPU will take from there (`flopwatch.measure.compiler`).

    What cannot be compiled is not told here: it fails again where the case is measured.

    Args:
        sides: the checkouts of the commit and of the anchor.
        arms: those whose code is measured.
        cases: of kernels under test.
        observer: is told how many of the cases are compiled, of all arms together.
    """
    waiting = {arm: Shares(cases) for arm in arms}
    numbers, planned = itertools.count(1), len(arms) * len(cases)
    with contextlib.ExitStack() as stack:
        count = teams_for(len(cases))
        workers = {
            worker: arm
            for arm in arms
            for worker in (
                stack.enter_context(sides.worker(Mode.STATIC, arm)),
                *sides.compilers(arm, count - 1, stack),
            )
        }

        def work(worker: Worker) -> None:
            for case in iter(functools.partial(waiting[workers[worker]].take, worker), None):
                with contextlib.suppress(CaseFailed):
                    worker.compile(case, identify=False)
                observer.cases(next(numbers), planned)

        observer.cases(0, planned)  # from where on the time left is told
        side_by_side(work, list(workers))


def can_compile_ahead(hello: Hello, device: str, cases: Sequence[Case]) -> bool:
    """Tell whether what is compiled for `device` runs on the GPU that is there, and is more than one case's.

    >>> from types import SimpleNamespace
    >>> [can_compile_ahead(SimpleNamespace(compute_capability=(9, minor)), "h200", "ab") for minor in (0, 1)]
    [True, False]
    """
    return len(cases) > 1 and compiled_for_this_gpu(hello.compute_capability, device)
