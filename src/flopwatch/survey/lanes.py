"""Compile several sides for several devices by as many workers as there are cores."""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
import threading
from typing import TYPE_CHECKING

from flopwatch.gate.shares import Shares
from flopwatch.gate.static import LEAST_CASES_OF_A_TEAM, MOST_TEAMS, first_and_last_line
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.machine import usable_cores
from flopwatch.survey.store import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flopwatch.gate.sides import Arm
    from flopwatch.measure.client import Code
    from flopwatch.measure.protocol import Hello
    from flopwatch.model import Case
    from flopwatch.static.device import Device
    from flopwatch.static.recorder import Autotune

#: The worker is gone, and what it kept with it.
_GONE = frozenset({"WorkerDied", "TimedOut"})
#: What may be otherwise next time.
_PASSING = _GONE | {"Abandoned", "MemoryError", "OSError"}


class Lot:
    """The cases that are compiled of one side for one device.

    Attributes:
        arm: the side.
        device: what they are compiled for.
        code: what a worker imports.
        outcomes: what became of them so far.
        loaded: every file that workers loaded; None where one died and could not tell.
    """

    def __init__(self, arm: Arm, device: Device, code: Code) -> None:
        self.arm = arm
        self.device = device
        self.code = code
        self.outcomes: dict[Case, Outcome] = {}
        self.loaded: set[str] | None = set()
        self.workers = 0
        self._waiting: Shares | None = None

    @property
    def target(self) -> tuple[str, int | str]:
        """What Triton compiles for: devices of one target find each other's kernels in its cache."""
        return self.device.backend, self.device.arch

    @property
    def waiting(self) -> int:
        """How many cases nobody has taken; plenty while these are not known."""
        return sys.maxsize if self._waiting is None else len(self._waiting)

    def fill(self, cases: Iterable[Case]) -> None:
        """Say which cases there are to compile."""
        self._waiting = Shares(cases)

    def take(self, worker: Worker) -> Case | None:
        """Return a case for the worker that nobody has taken; None where there is none."""
        return None if self._waiting is None else self._waiting.take(worker)

    def put_back(self, cases: Iterable[Case]) -> None:
        """Let others take cases again."""
        assert self._waiting is not None  # noqa: S101 - they were taken from it
        self._waiting.put_back(cases)


class Lanes:
    """Workers side by side, each of which compiles cases of one lot until these are taken, then helps with another.

    A lane begins with a lot of a target that no other compiles for, so that none waits for another's kernel, helps with
    the largest one where there is none, and takes a lot of a target that is in work last.

    Args:
        lots: what is to be compiled.
        autotune: which configurations of autotuned kernels.
        tell: hears how many cases are done, of how many.
    """

    def __init__(self, lots: Sequence[Lot], *, autotune: Autotune, tell: Callable[[int, int], None]) -> None:
        self._lots = lots
        self._autotune = autotune
        self._tell = tell
        self._lock = threading.Lock()
        self._at_work: list[Worker] = []
        self._stopped = False
        self._done = 0
        self._planned = 0

    def compile(self, cases: Sequence[Case] | None, ask: Callable[[Hello], Sequence[Case]]) -> Hello | None:
        """Compile the cases that each lot has no outcome of.

        Args:
            cases: which; None asks the first worker.
            ask: chooses them from what that one says of itself.

        Returns:
            What the first worker says, if it was asked.
        """
        hello = None
        with contextlib.ExitStack() as stack:
            if cases is not None:
                self._fill(cases)
            starts = [start for _ in range(_lanes(self._lots)) if (start := self._begin()) is not None]
            for worker, _ in starts:
                stack.callback(worker.close)
            stack.callback(self._stop)  # first of all, so that nobody waits for one that still imports
            if cases is None and starts:
                worker, _ = starts[0]
                hello = worker.hello
                self._fill(ask(hello))
            self._run(starts)
        return hello

    def _fill(self, cases: Sequence[Case]) -> None:
        for lot in self._lots:
            lot.fill(case for case in cases if case not in lot.outcomes)
        self._planned = sum(lot.waiting for lot in self._lots)
        self._tell(0, self._planned)

    def _run(self, starts: Sequence[tuple[Worker, Lot]]) -> None:
        if not starts:
            return
        with concurrent.futures.ThreadPoolExecutor(len(starts)) as pool:
            futures = [pool.submit(self._lane, *start) for start in starts]
            try:
                concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
            finally:
                if not all(future.done() for future in futures):
                    self._stop()
            for future in futures:
                future.result()

    def _begin(self) -> tuple[Worker, Lot] | None:
        """Start a worker for the lot that needs one most; None where none does."""
        with self._lock:
            lot = None if self._stopped else choose_lot(self._lots)
            if lot is None:
                return None
            lot.workers += 1
            worker = Worker(Mode.STATIC, lot.code)
            self._at_work.append(worker)
        worker.start()
        return worker, lot

    def _lane(self, worker: Worker, lot: Lot) -> None:
        start: tuple[Worker, Lot] | None = (worker, lot)
        while start is not None:
            worker, lot = start
            try:
                self._work(worker, lot)
            finally:
                worker.close()
                with self._lock:
                    self._at_work.remove(worker)
                    lot.workers -= 1
            start = self._begin()

    def _work(self, worker: Worker, lot: Lot) -> None:
        """Let the worker compile cases while there are some, then tell what came out of all of them."""
        kept: list[Case] = []
        used = False
        while (case := self._next(lot, worker)) is not None:
            used = True
            try:
                worker.keep(case, self._autotune)
                kept.append(case)
                self._count(1)
            except CaseFailed as error:
                if error.failure.kind in _GONE:
                    self._lose(lot, kept)
                    kept = []
                self._settle(lot, [_failed(case, error)])
                self._count(1)
        if not used:
            worker.abandon()  # it may still be importing
            return
        try:
            gathered = worker.gather()
        except CaseFailed as error:
            self._settle(lot, [_failed(case, error) for case in kept])
            lot.loaded = None
            return
        self._settle(
            lot, [Outcome(case=entry.case, facts=entry.facts, traffic=entry.traffic) for entry in gathered.cases]
        )
        with self._lock:
            if lot.loaded is not None:
                lot.loaded |= set(gathered.loaded)

    def _next(self, lot: Lot, worker: Worker) -> Case | None:
        with self._lock:
            return None if self._stopped else lot.take(worker)

    def _settle(self, lot: Lot, outcomes: Iterable[Outcome]) -> None:
        with self._lock:
            lot.outcomes |= {outcome.case: outcome for outcome in outcomes}

    def _lose(self, lot: Lot, kept: Sequence[Case]) -> None:
        """Compile again what a worker kept that is gone; Triton's cache has the kernels."""
        with self._lock:
            lot.put_back(kept)
            lot.loaded = None
            self._done -= len(kept)

    def _count(self, cases: int) -> None:
        with self._lock:
            self._done += cases
            self._tell(self._done, self._planned)

    def _stop(self) -> None:
        """Let no worker go on; harmless where none is left."""
        with self._lock:
            self._stopped = True
            workers = list(self._at_work)
        for worker in workers:
            worker.abandon()


def choose_lot(lots: Sequence[Lot]) -> Lot | None:
    """Choose where one more worker is of most use; None where it is of none."""
    left = [lot for lot in lots if lot.waiting]
    busy = {lot.target for lot in lots if lot.workers}
    for lot in left:
        if lot.target not in busy:
            return lot
    large = [lot for lot in left if lot.workers and lot.waiting >= LEAST_CASES_OF_A_TEAM * (lot.workers + 1)]
    if large:
        return max(large, key=lambda lot: lot.waiting / lot.workers)
    return next((lot for lot in left if not lot.workers), None)


def _lanes(lots: Sequence[Lot]) -> int:
    """Choose how many workers there are at once: one a core, but for small work and large machines."""
    work = sum(lot.waiting for lot in lots)
    return min(usable_cores(), MOST_TEAMS, max(work // LEAST_CASES_OF_A_TEAM, 1))


def _failed(case: Case, error: CaseFailed) -> Outcome:
    return Outcome(case=case, cause=first_and_last_line(str(error)), passing=error.failure.kind in _PASSING)
