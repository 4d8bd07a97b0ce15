"""Time: a commit is held against good in pairs, a few at a time, until it is clear on which side of the change it is.

The threshold lies halfway between good and bad. A commit is bad where a sign-flip test (`flopwatch.stats.signflip`)
proves it to be slower than that, and good where one proves it to be faster. The first look is after as many pairs as
the gate's; three follow after more. A step errs with a chance of 0.5 % at most, whatever the noise, and with so large a
one only for a commit at the very threshold. What stays unclear is skipped: a change in two halves is told as two.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.bisect.judge import Difference, OneRuler, one_case
from flopwatch.bisect.result import Commit, Effect, Outcome, Step
from flopwatch.checkout import checkout
from flopwatch.compare.matches import match_sides
from flopwatch.compare.numbers import check_contenders
from flopwatch.compare.pairs import Pairs, speed_of
from flopwatch.compare.result import Kind
from flopwatch.config import Config
from flopwatch.errors import MachineError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.result import PairLog
from flopwatch.gate.sides import Arm
from flopwatch.measure import fitness
from flopwatch.measure.client import Mode
from flopwatch.measure.nvml import Watch
from flopwatch.measure.protocol import Hello
from flopwatch.model import Case, Mark
from flopwatch.stats import Design, decide, pairs_to_settle, single_p
from flopwatch.stats.design import LATER_LOOKS
from flopwatch.verdict import margin_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from flopwatch.stats import SeriesResult

#: Pairs of a step, at most. With as many, changes of 0.2 % are told from none at an error of a pair of 0.1 %, in 75 s.
STEP_PAIRS = 44
#: What the pairs are for.
DIFFER, STEP, CHANGE = "differ", "step", "change"


@dataclass(kw_only=True)
class Times:
    """Measures commits against good.

    Attributes:
        config: of the repository.
        root: the repository.
        suites: what all commits run.
        hello: of them; declares the one case.
        case: the one that got slower.
        device: the GPU's name.
        good: what commits are held against.
        watch: reads the GPU.
        observer: is told how far this is.
        toss: a fair coin for each pair.
        most_pairs: of a step; None for the default.
        effect: bad's; half of it is the threshold.
        logs: every pair that was measured.
        notes: what else is worth knowing.
    """

    config: Config
    root: Path
    suites: Path
    hello: Hello
    case: Case
    device: str
    good: Commit
    watch: Watch
    observer: Observer
    toss: Callable[[], bool]
    most_pairs: int | None = None
    effect: float = 0.0
    logs: list[PairLog] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def difference(self, bad: Commit) -> Difference:
        """Find out, as the gate does, whether bad differs from good by more than the case's margin."""
        design, margin = _design(self.most_pairs), margin_of(self.config.margin_of(self.case.id))
        with self._against(bad, self.good, DIFFER) as pairs:
            if reason := self._unusable(pairs, self.good.hash[:12], bad.hash[:12]):
                return Difference(reason=reason)
            result = decide(design, [margin], lambda _rows, number, _stage: self._sample(pairs, number)).series[0]
            self._require(pairs)
            if failure := pairs.given_up(self.case):
                return Difference(reason=f"the case fails while it is measured ({failure})")
        found = _difference(result, design, margin)
        self.effect = found.effect.estimate if found.effect else 0.0
        return found

    def step(self, commit: Commit) -> Step:
        """Measure one commit against good."""
        with self._against(commit, self.good, STEP) as pairs:
            if reason := self._unusable(pairs, "good", ""):
                return Step(commit=commit, outcome=Outcome.SKIPPED, reason=reason)
            design, outcome, table = Design(), Outcome.SKIPPED, np.empty((1, 0))
            for number, level in _looks(design, self.most_pairs):
                table = np.hstack([table, self._sample(pairs, number)])
                outcome = side_of(table, self.effect, level, design)
                if outcome is not Outcome.SKIPPED or pairs.given_up(self.case):
                    break
            self._require(pairs)
            failure = pairs.given_up(self.case)
        if failure:
            return Step(commit=commit, outcome=Outcome.SKIPPED, reason=f"fails while it is measured ({failure})")
        reason = "between good and bad, as far as the pairs tell" if outcome is Outcome.SKIPPED else ""
        return Step(commit=commit, outcome=outcome, effect=effect_of(table), reason=reason)

    def change(self, culprit: Commit, parent: Commit) -> Difference:
        """Measure fresh pairs of the culprit and its parent."""
        with self._against(culprit, parent, CHANGE) as pairs:
            if reason := self._unusable(pairs, parent.hash[:12], culprit.hash[:12]):
                return Difference(reason=reason)
            effect = effect_of(self._sample(pairs, Design().confirm_pairs))
            self._require(pairs)
        if effect is None:
            return Difference(reason="no pair could be used")
        return Difference(effect=effect, differs=effect.differs and effect.estimate * self.effect > 0)

    def so_far(self) -> Effect | None:
        """Return what the pairs of bad and good say that were measured until now."""
        logs = [log for log in self.logs if log.stage == DIFFER]
        return effect_of(self._table(logs))

    @contextlib.contextmanager
    def _against(self, commit: Commit, other: Commit, stage: str) -> Iterator[Pairs]:
        """Check both commits out, see whether they give the reference's numbers, and let them take turns."""
        self.observer.step(f"comparing {commit.hash[:12]} with {other.hash[:12]}")
        with contextlib.ExitStack() as stack:
            base, head = (
                stack.enter_context(checkout(one.hash, self.config, root=self.root)) for one in (other, commit)
            )
            sides = stack.enter_context(
                OneRuler(self.config, device=self.config.device, base_tree=base, head_tree=head, suites=self.suites)
            )
            sides.start_nurseries()
            (compared,) = check_contenders(sides, match_sides(self.hello, "", self.config), Kind.COMMITS)
            pairs = Pairs(
                sides=sides,
                watch=self.watch,
                observer=self.observer,
                toss=self.toss,
                stage=stage,
                cases={self.case: compared},
                together=False,
            )
            try:
                yield pairs
            finally:
                self.logs += pairs.logs
                notes = [f"{commit.hash[:12]}: {note}" for note in (*sides.notes, *compared.notes)]
                self.notes += [note for note in (*notes, *pairs.notes()) if note not in self.notes]

    def _unusable(self, pairs: Pairs, base: str, head: str) -> str:
        """Return why the case cannot be timed, with these names for its sides; "" where it can."""
        self.watch.snapshot()  # a GPU that was lost meanwhile answers with an error: no commit is to blame
        reasons = pairs.cases[self.case].reason
        for side, name in (("base ", base), ("head ", head)):
            if reasons.startswith(side):
                reasons = f"{name} {reasons.removeprefix(side)}".lstrip()
            reasons = reasons.replace(f"; {side}", f"; {name} " if name else "; ")
        return reasons

    def _sample(self, pairs: Pairs, number: int) -> NDArray[np.float64]:
        return self._table(pairs.measure([self.case], number))

    def _table(self, logs: list[PairLog]) -> NDArray[np.float64]:
        return np.array([[log.log_ratios.get(self.case.id, math.nan) for log in logs]])

    def _require(self, pairs: Pairs) -> None:
        if why := pairs.unfit():
            raise MachineError(why)


@contextlib.contextmanager
def open_times(
    config: Config,
    *,
    root: Path,
    bad_tree: Path,
    case: str,
    good: Commit,
    observer: Observer,
    toss: Callable[[], bool],
    most_pairs: int | None = None,
) -> Iterator[Times]:
    """Find the case, and make sure that the machine is fit to measure it.

    Raises:
        FlopwatchError: there is no such case.
        MachineError: the machine is unfit.
    """
    suites = bad_tree / config.benchmarks
    sides = OneRuler(config, device=config.device, base_tree=bad_tree, head_tree=bad_tree, suites=suites)
    with sides.worker(Mode.GPU, Arm.HEAD) as worker:
        hello = worker.hello
    declared = one_case(hello, case)
    if hello.gpu_uuid is None:
        raise no_gpu("torch finds none")
    with Watch(hello.gpu_uuid) as watch:
        fitness.require(fitness.before(watch.gpu(), watch.snapshot()))
        yield Times(
            config=config,
            root=root,
            suites=suites,
            hello=replace(hello, declared=(declared,)),
            case=declared.case,
            device=hello.gpu or "",
            good=good,
            watch=watch,
            observer=observer,
            toss=toss,
            most_pairs=most_pairs,
        )


def no_gpu(why: str) -> MachineError:
    """Say that times cannot be compared here, and what can be."""
    return MachineError(
        "flopwatch bisect needs a GPU to compare times",
        why=why,
        todo="flopwatch bisect --fact registers needs none; flopwatch doctor tells what is missing",
    )


def side_of(table: NDArray[np.float64], effect: float, level: float, design: Design) -> Outcome:
    """Tell on which side of half of bad's effect a commit is proved to be; SKIPPED where on neither.

    Args:
        table: log(its seconds / good's), (1, pairs); NaN where invalid.
        effect: log(bad's seconds / good's).
        level: of either test.
        design: has the prior by which scores are cut.

    >>> pairs = np.full((1, 8), 0.019)
    >>> side_of(pairs, 0.02, 0.004, Design()), side_of(pairs, 0.06, 0.004, Design())
    (<Outcome.BAD: 'bad'>, <Outcome.GOOD: 'good'>)
    >>> side_of(np.array([[0.009, 0.011] * 4]), 0.02, 0.004, Design())
    <Outcome.SKIPPED: 'skipped'>
    """
    beyond = math.copysign(1.0, effect) * table - abs(effect) / 2
    if single_p(beyond, design.prior)[0] <= level:
        return Outcome.BAD
    return Outcome.GOOD if single_p(-beyond, design.prior)[0] <= level else Outcome.SKIPPED


def effect_of(table: NDArray[np.float64]) -> Effect | None:
    """Estimate the effect behind one row of log ratios; None where none of them is valid."""
    found = speed_of([float(ratio) for ratio in table[0] if math.isfinite(ratio)])
    if found is None:
        return None
    return Effect(estimate=found.estimate, lower=found.lower, upper=found.upper, pairs=found.pairs)


def _design(most_pairs: int | None) -> Design:
    design = Design()
    if most_pairs is None:
        return design
    return replace(design, pairs=most_pairs, confirm_pairs=max(design.confirm_pairs, most_pairs))


def _looks(design: Design, most_pairs: int | None) -> Iterator[tuple[int, float]]:
    """Yield how many pairs are measured before each look, and its level."""
    yield design.first_look, design.first_same_alpha
    later = max((most_pairs or STEP_PAIRS) - design.first_look, 0) // LATER_LOOKS
    for _ in range(LATER_LOOKS if later else 0):
        yield later, design.later_same_alpha


def _difference(result: SeriesResult, design: Design, margin: float) -> Difference:
    if result.estimate is None:
        return Difference(reason="no pair could be used")
    effect = Effect(estimate=result.estimate, lower=result.lower, upper=result.upper, pairs=result.pairs)
    if result.mark in (Mark.SLOWER, Mark.FASTER):
        return Difference(effect=effect, differs=True)
    settling = None
    if result.mark is Mark.UNSURE and result.deviation is not None:
        settling = pairs_to_settle(design, margin=margin, estimate=abs(result.estimate), deviation=result.deviation)
    return Difference(effect=effect, settling_pairs=settling)
