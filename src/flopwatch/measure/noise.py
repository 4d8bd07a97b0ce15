"""The noise floor: how far apart pairs of the same code come out, here and now.

A handful of cases is measured as a gate measures, with the same checkout in both slots: what differs between them is
noise. All of it ends in time, with fewer cases or fewer pairs where something is slow.
"""

from __future__ import annotations

import contextlib
import secrets
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from flopwatch.errors import FlopwatchError
from flopwatch.measure.client import CaseFailed, Mode, Nursery, NurseryFailed, Worker
from flopwatch.measure.fitness import Fault
from flopwatch.measure.pair import Meter, PairSample, Slots, sample_pair
from flopwatch.measure.protocol import DeclaredCase, Hello, Plan
from flopwatch.model import Case, Choice
from flopwatch.static.devices import find_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flopwatch.measure.client import Code

LIMIT_S = 20.0
#: For the last of the fewest pairs; then the workers are stopped, whatever they do: a request may take 300 s.
GRACE_S = 4.0
#: Of the limit, for tuning: on cold caches a kernel of 20 configurations compiles for seconds.
TUNING_SHARE = 1 / 3
FEWEST_PAIRS = 3
#: Which cases are taken: shares of the way from the shortest to the longest, in the order in which they are tuned, so
#: that those for which there is time are spread as well.
PLACES = (0.4, 1.0, 0.0, 0.8, 0.2, 0.6)
#: Longer ones are left out. A pair takes 24 samples of a long case at least, and up to 27 times as many.
LONGEST_S = 2e-3
#: The order of durations is about the same on any GPU.
_DEVICE = find_device("h200")


class Sampler(Protocol):
    """Measures one pair of one case; `flopwatch.measure.pair.sample_pair` is one."""

    def __call__(  # noqa: D102 - see `sample_pair`
        self,
        slots: Slots,
        case: Case,
        *,
        plan: Plan | None,
        pins: tuple[Sequence[Choice], Sequence[Choice]],
        meter: Meter | None,
    ) -> PairSample: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """What pairs of the same code said.

    Attributes:
        log_ratios: of a case's name, one for each pair that could be used; cases without any are left out.
        seconds: of a call, likewise.
        declared: how many cases a gate would measure together.
        import_failures: the suite modules that could not be imported, with the cause.
        faults: what else kept pairs from being measured.
    """

    log_ratios: dict[str, tuple[float, ...]]
    seconds: dict[str, float]
    declared: int
    import_failures: dict[str, str]
    faults: tuple[Fault, ...]


def measure_noise(
    worker: Callable[[int], Worker],
    *,
    meter: Meter | None = None,
    limit_s: float = LIMIT_S,
    sample: Sampler = sample_pair,
    clock: Callable[[], float] = time.monotonic,
) -> Noise:
    """Measure pairs until the time is up, or the user interrupts: what was measured until then is kept.

    Args:
        worker: returns a fresh worker for slot 0 or 1; `twins` makes such a function.
        meter: reads the GPU after every turn.
        limit_s: no pair is begun that would end later, but for the fewest; `GRACE_S` later everything stops.
        sample: measures a pair.
        clock: seconds, of which only differences matter.

    Raises:
        FlopwatchError: a worker does not start.
    """
    trial = _Trial(worker=worker, meter=meter, sample=sample, clock=clock, start_s=clock(), limit_s=limit_s)
    try:
        trial.tune()
        trial.measure()
    except KeyboardInterrupt:
        trial.interrupted = True
    return trial.noise()


@contextlib.contextmanager
def twins(code: Code) -> Iterator[Callable[[int], Worker]]:
    """Give a function that starts workers, each slot's from a nursery of its own, as those of a gate's two arms."""
    with Nursery(code) as zero, Nursery(code) as one:
        nurseries = [zero, one]

        def worker(slot: int) -> Worker:
            try:
                for nursery in nurseries:
                    nursery.ready()
            except NurseryFailed:
                nurseries.clear()  # both slots or none: what is forked and what is not differ in more than code
            return Worker(Mode.GPU, code, nursery=nurseries[slot] if nurseries else None)

        yield worker


def choose_cases(declared: Iterable[DeclaredCase]) -> list[Case]:
    """Choose a few cases of kernels under test, spread over their durations, in the order in which to tune them."""
    own = sorted((roofline_s(entry), entry.case.id, entry.case) for entry in declared if entry.own)
    cases = [case for seconds, _, case in own if seconds <= LONGEST_S] or [case for _, _, case in own[:1]]
    return list(dict.fromkeys(cases[round(place * (len(cases) - 1))] for place in PLACES if cases))


def roofline_s(entry: DeclaredCase) -> float:
    """Return the least time that a case can take: what its operations and its bytes take on an H200.

    >>> case = Case(suite="Add", values=("1024", "flopwatch"))
    >>> roofline_s(DeclaredCase(case=case, small=case, own=True, max_diff_eps=None, flops=1e9, bytes_moved=4.8e9))
    0.001
    """
    return _DEVICE.least_seconds(entry.flops, entry.bytes_moved, entry.case.values)


@dataclass(kw_only=True)
class _Trial:
    """Measures, and keeps what was measured."""

    worker: Callable[[int], Worker]
    meter: Meter | None
    sample: Sampler
    clock: Callable[[], float]
    start_s: float
    limit_s: float
    hello: Hello | None = None
    chosen: list[Case] = field(default_factory=list)
    pins: dict[Case, tuple[Choice, ...]] = field(default_factory=dict)
    plans: dict[Case, Plan] = field(default_factory=dict)
    log_ratios: dict[Case, list[float]] = field(default_factory=dict)
    seconds: dict[Case, list[float]] = field(default_factory=dict)
    failures: dict[Case, CaseFailed] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)
    late: Case | None = None
    interrupted: bool = False

    @property
    def ends_s(self) -> float:
        """When everything stops."""
        return self.start_s + self.limit_s + GRACE_S

    @property
    def declared(self) -> int:
        """How many cases a gate would measure."""
        return sum(entry.own for entry in self.hello.declared) if self.hello else 0

    @property
    def running(self) -> list[Case]:
        """The cases that were tuned and have not failed."""
        return [case for case in self.pins if case not in self.failures]

    def tune(self) -> None:
        """Tune as many cases as there is time for, one at least."""
        with self.worker(0) as worker:
            with self._stopping(self.ends_s, worker) as stopped:
                try:
                    self.hello = worker.hello
                except FlopwatchError:
                    if stopped.is_set():
                        return
                    raise
            self.chosen = choose_cases(self.hello.declared)
            share_ends_s = self.clock() + self.limit_s * TUNING_SHARE
            for case in self.chosen:
                until_s = min(share_ends_s, self.ends_s) if self.pins else self.ends_s
                if self.clock() >= until_s:
                    return
                with self._stopping(until_s, worker) as stopped:
                    try:
                        self.pins[case] = worker.tune(case)
                    except CaseFailed as error:
                        if stopped.is_set():
                            self.late = case
                            return
                        self.failures[case] = error

    def measure(self) -> None:
        """Measure pairs in fresh processes, all cases in a random order."""
        pairs, longest_s = 0, 0.0
        while self.running and (pairs < FEWEST_PAIRS or self.clock() + longest_s <= self.start_s + self.limit_s):
            begun_s = self.clock()
            with self.worker(0) as zero, self.worker(1) as one, self._stopping(self.ends_s, zero, one) as stopped:
                for case in secrets.SystemRandom().sample(self.running, len(self.running)):
                    try:
                        self._keep(self._sample((zero, one), case))
                    except CaseFailed as error:
                        if stopped.is_set():
                            return
                        self.failures[case] = error
            pairs += 1
            longest_s = max(longest_s, self.clock() - begun_s)

    def noise(self) -> Noise:
        """Return what was measured."""
        return Noise(
            log_ratios={case.id: tuple(values) for case, values in self.log_ratios.items()},
            seconds={case.id: statistics.median(values) for case, values in self.seconds.items()},
            declared=self.declared,
            import_failures=self.hello.import_failures if self.hello else {},
            faults=tuple(self._faults()),
        )

    def _sample(self, slots: Slots, case: Case) -> PairSample:
        pins = self.pins[case]
        return self.sample(slots, case, plan=self.plans.get(case), pins=(pins, pins), meter=self.meter)

    def _keep(self, sample: PairSample) -> None:
        self.plans[sample.case] = sample.plan
        if sample.fault:
            self.unusable.append(f"{sample.case.id}: {sample.fault}")
            return
        self.log_ratios.setdefault(sample.case, []).append(sample.log_ratio)
        self.seconds.setdefault(sample.case, []).append(sample.median_seconds(0))

    @contextlib.contextmanager
    def _stopping(self, until_s: float, *workers: Worker) -> Iterator[threading.Event]:
        """Stop workers that are still asked at that time, and set the event first."""
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            for worker in workers:
                worker.abandon()

        timer = threading.Timer(max(until_s - self.clock(), 0.0), stop)
        timer.daemon = True
        timer.start()
        try:
            yield stopped
        finally:
            timer.cancel()

    def _faults(self) -> Iterator[Fault]:
        if self.interrupted:
            yield Fault(what="the noise floor was interrupted")
        elif self.hello and not self.declared:
            if not self.hello.import_failures:
                yield Fault(what="the suites declare no case", todo="declare one; docs/suites.md shows how")
        elif not self.log_ratios and not self.failures and not self.unusable:
            doing = f"tuning {self.late.id}" if self.late else "importing and tuning"
            why = f"after {self.clock() - self.start_s:.0f} s it was still {doing}"
            yield Fault(what="no time was left for the noise floor", why=why, todo=_AGAIN)
        elif untuned := len(self.chosen) - len({*self.pins, *self.failures}):
            why = f"tuning may take {self.limit_s * TUNING_SHARE:.0f} s here"
            yield Fault(what=f"{untuned} of {len(self.chosen)} cases were not tuned", why=why, todo=_AGAIN)
        if self.failures:
            case, failure = next((case, error.failure) for case, error in self.failures.items())
            what = f"{len(self.failures)} of {len(self.chosen)} cases of the noise floor fail"
            why = f"{case.id}: {failure.kind}: {failure.message.splitlines()[0]}"
            yield Fault(what=what, why=why, todo="correct the kernel or its suite")
        if self.unusable:
            taken = len(self.unusable) + sum(map(len, self.log_ratios.values()))
            what = f"{len(self.unusable)} of {taken} samples of the noise floor are invalid"
            yield Fault(what=what, why=self.unusable[0], todo="check cooling and power: nvidia-smi -q -d PERFORMANCE")


_AGAIN = "run it again: what was compiled is kept"
