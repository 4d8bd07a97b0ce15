"""The third step: time, in pairs of processes that take turns on the GPU."""

from __future__ import annotations

import contextlib
import math
import secrets
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from flopwatch.errors import MachineError, UsageError
from flopwatch.gate.pairs import Observer, Pairs
from flopwatch.gate.result import CaseVerdict, PairLog
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode
from flopwatch.measure.protocol import Method
from flopwatch.model import Case, Mark
from flopwatch.pattern import matches
from flopwatch.report.wording import count
from flopwatch.stats import Decision, Design, Prior, SeriesResult, Stage, decide, interval
from flopwatch.stats import plan as plan_pairs
from flopwatch.verdict import Side, margin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from flopwatch.config import Config
    from flopwatch.measure.nvml import Watch
    from flopwatch.stats.prior import FloatArray

#: Of the chance of a false alarm, 0.1 % a run, time has 0.08 % (`stats.design`), conclusions of studies have 0.005 %
#: (`gate.conclusions`), and the cost of launches the rest: of 8192 sign vectors the most extreme is 0.012 %, the two
#: most extreme would be 0.024 %. All of it is spent on the second stage: forks of one parent share its address space
#: and its hash seed, which belong to the arm and which no coin turns over. The first stage may flag as it likes; the
#: second starts anew.
LAUNCH_ALPHA = 0.05
LAUNCH_CONFIRM_ALPHA = 0.00015
#: What is believed of the error of a pair's launch cost: 3 to 9 % on one core of the host of an H200 (2026-11-21).
LAUNCH_PRIOR = Prior(degrees=8, deviation=0.05)
#: Cases that are identical on both sides and measured nevertheless: an alarm about one tells of the machine.
SENTINELS = 3
#: Seconds of a pair: to start it, and for each case. An H200 needed 15.7 s for 66 cases and 2 s for 4, with a host that
#: launches in 90 us (2026-11-22).
START_S = 1.1
CASE_S = 0.22


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """What measuring said.

    Attributes:
        verdicts: with time and launch cost added.
        suite: the median case.
        pairs: all that were measured.
        planned_pairs: of all cases, if any leans; None where nothing was measured.
        unfit: why none of it can be trusted.
        interrupted: the run was stopped.
        notes: what else is worth knowing.
    """

    verdicts: tuple[CaseVerdict, ...]
    suite: SeriesResult | None = None
    pairs: tuple[PairLog, ...] = ()
    planned_pairs: int | None = None
    unfit: str = ""
    interrupted: bool = False
    notes: tuple[str, ...] = ()


def measure_times(
    sides: Sides,
    verdicts: Sequence[CaseVerdict],
    *,
    watch: Watch,
    observer: Observer,
    toss: Callable[[], bool],
    design: Design,
) -> Times:
    """Measure every case that both sides run and that is not identical, with a few sentinels that are."""
    by_case = {verdict.case: verdict for verdict in verdicts}
    running = [verdict.case for verdict in verdicts if verdict.compared and not verdict.identical]
    if not running:
        return Times(verdicts=tuple(verdicts))
    identical = [verdict.case for verdict in verdicts if verdict.identical]
    sentinels = secrets.SystemRandom().sample(identical, min(SENTINELS, len(identical)))
    cases = [*running, *sentinels]
    pairs = Pairs(sides=sides, verdicts=by_case, watch=watch, observer=observer, toss=toss)
    margins = [margin_of(sides.config.margin_of(case.id)) for case in cases]
    interrupted, lost = False, ""
    launches: dict[Case, SeriesResult] = {}
    decision: Decision | None = None
    try:
        _pin_sentinels(sides, sentinels, by_case)
        decision = _decide_time(design, cases, margins, pairs)
        accused = {
            case
            for case, series in zip(cases, decision.series, strict=True)
            if fails_anyway(by_case[case].mark, series, case, sides.config)
        }
        launches = _decide_launch(cases, margin_of(sides.config.launch_margin_percent), pairs, accused)
    except KeyboardInterrupt:
        interrupted = True
    except MachineError as error:  # the GPU no longer answers
        lost = str(error)
    suite = decision.suite if decision else None
    results = decision.series if decision else _so_far(cases, pairs.logs, design)
    found = {}
    for case, margin, result in zip(cases, margins, results, strict=True):
        found[case] = _judged(by_case[case], pairs, margin=margin, result=result, launch=launches.get(case))
    unfit = lost or _unfit(pairs, [found.pop(case) for case in sentinels])
    if unfit or decision is None:
        found = {case: _undecided(verdict, unfit) for case, verdict in found.items()}
        suite = None
    return Times(
        verdicts=tuple(found.get(verdict.case, verdict) for verdict in verdicts),
        suite=suite,
        pairs=tuple(pairs.logs),
        planned_pairs=design.pairs,
        unfit=unfit,
        interrupted=interrupted,
        notes=_notes(pairs, sentinels),
    )


def design_for(
    sides: Sides, cases: Sequence[Case], budget_s: float | None, *, identical: int = 0
) -> tuple[Design, str]:
    """Choose how many pairs to measure, and say what slowdown they find.

    Args:
        sides: whose settings hold.
        cases: that are measured.
        budget_s: for the pairs of a run that flags nothing; None for the default design, which promises nothing.
        identical: how many cases are not measured but as sentinels, which take their time too.

    Raises:
        UsageError: the budget is too small for any verdict.
    """
    design = Design(same_within=margin_of(sides.config.same_within_percent))
    if budget_s is None or not cases:
        return design, ""
    margins = [margin_of(sides.config.margin_of(case.id)) for case in cases]
    margins += [margin_of(sides.config.margin_percent)] * min(SENTINELS, identical)
    try:
        found = plan_pairs(
            budget_s,
            seconds_per_pair=START_S + CASE_S * len(margins),
            start_s=0.0,
            deviations=[design.prior.deviation] * len(margins),
            margins=margins,
            design=design,
        )
    except ValueError as error:
        raise UsageError(
            f"a budget of {budget_s:g} s is too small", why=str(error), todo="raise --budget, or choose cases with -k"
        ) from None
    detectable = found.detectable[: len(cases)]
    median, hardest = (_no_less(value) for value in (statistics.median(detectable), max(detectable)))
    slowdown = median if median == hardest else f"{median} in the median case, of {hardest} in the hardest,"
    promise = (
        f"{found.design.pairs} pairs of {len(cases)} case{'s' if len(cases) > 1 else ''},"
        f" {found.seconds:.0f} s of {budget_s:g} s, find a slowdown of {slowdown} with 95 % probability,"
        f" at the usual error of a pair, {design.prior.deviation * 100:.2g} %; flagged and open cases get further pairs"
    )
    return found.design, promise


def _no_less(log_ratio: float) -> str:
    """Write a slowdown in percent, rounded up: a promise is not rounded down.

    >>> _no_less(0.00512)
    '0.52 %'
    """
    return f"{math.ceil(math.expm1(log_ratio) * 10_000) / 100:.2f} %"


def _decide_time(design: Design, cases: Sequence[Case], margins: Sequence[float], pairs: Pairs) -> Decision:
    def sample(rows: Sequence[int], number: int, stage: Stage) -> FloatArray:
        screening = stage is Stage.SCREEN
        pairs.stage = "screen" if screening else "confirm"
        chosen = [cases[row] for row in rows]
        # What the host enqueues depends on the process, and forks of one parent are alike.
        uncaptured = [case for case in chosen if case in pairs.plans and pairs.plans[case].method is Method.EVENTS]
        pairs.anew = bool(uncaptured) and not screening
        pairs.observer.step(f"measuring {count(len(chosen), 'case')} in {count(number, 'pair')}")
        return time_table(pairs.measure(chosen, number), [case.id for case in chosen])

    return decide(design, margins, sample)


def fails_anyway(mark: Mark | None, time: SeriesResult, case: Case, config: Config) -> bool:
    """Tell whether a case fails the run, whatever its launches cost; a waiver may excuse the time alone.

    Args:
        mark: by what it returned.
        time: what was decided about its time.
        case: its name, which waivers know.
        config: has the waivers.
    """
    waived = any(matches(waiver.case, case.id) for waiver in config.waivers)
    return mark is Mark.BROKEN or (time.mark is Mark.SLOWER and not waived)


def _decide_launch(
    cases: Sequence[Case], margin: float, pairs: Pairs, accused: Collection[Case]
) -> dict[Case, SeriesResult]:
    """Decide about what a call costs the host, first by the pairs that were measured for the time.

    Not of the cases that are accused: to confirm a launch takes new interpreters, 19 pairs of 9 s on a slow host, and a
    kernel that is launched twice is flagged here as surely as by its time (H200, 2026-11-22).
    """
    screened = [log for log in pairs.logs if log.stage == "screen"]
    measured = [
        case for case in cases if case not in accused and any(case.id in log.launch_log_ratios for log in screened)
    ]
    if not measured:
        return {}

    def sample(rows: Sequence[int], number: int, stage: Stage) -> FloatArray:
        chosen = [measured[row] for row in rows]
        names = [case.id for case in chosen]
        if stage is Stage.SCREEN:
            return launch_table(screened, names)
        pairs.stage, pairs.anew = "confirm launch", True
        pairs.observer.step(f"measuring the launches of {count(len(chosen), 'case')} in {count(number, 'pair')}")
        return launch_table(pairs.measure(chosen, number), names)

    decision = decide(launch_design(len(screened), margin), [margin] * len(measured), sample)
    return dict(zip(measured, decision.series, strict=True))


def launch_design(screened: int, margin: float) -> Design:
    """Return how the cost of launches is decided, after so many pairs and with that margin, a log ratio."""
    return Design(
        pairs=screened,
        first_look=screened,
        alpha=LAUNCH_ALPHA,
        first_alpha=0.0,
        confirm_alpha=LAUNCH_CONFIRM_ALPHA,
        settle_pairs=0,
        same_within=2 * margin,
        prior=LAUNCH_PRIOR,
    )


def time_table(logs: Sequence[PairLog], names: Sequence[str]) -> FloatArray:
    """Return what pairs say of the time of cases: log(head / base), (cases, pairs); NaN where they say nothing."""
    return np.array([[log.log_ratios.get(name, math.nan) for log in logs] for name in names])


def launch_table(logs: Sequence[PairLog], names: Sequence[str]) -> FloatArray:
    """Return what pairs say of the cost of a launch to the host, likewise."""
    return np.array([[log.launch_log_ratios.get(name, math.nan) for log in logs] for name in names])


def _judged(
    verdict: CaseVerdict, pairs: Pairs, *, margin: float, result: SeriesResult, launch: SeriesResult | None
) -> CaseVerdict:
    """Add what the pairs say; numbers that are broken stay broken, whatever the time."""
    case = verdict.case
    mark, reason = verdict.mark, verdict.reason
    if mark is None:
        mark, reason = _failed(case, pairs) or (result.mark, reason)
    if mark is not Mark.BROKEN and launch is not None and launch.mark is Mark.SLOWER:
        mark, reason = Mark.SLOWER, reason or "a call costs the host more"
    plan = pairs.plans.get(case)
    return replace(
        verdict,
        base=_with_seconds(verdict.base, pairs.medians(case, Arm.BASE)),
        head=_with_seconds(verdict.head, pairs.medians(case, Arm.HEAD)),
        mark=mark,
        reason=reason,
        time=result,
        launch=launch,
        method=plan.method.value if plan else "",
        margin=margin,
        notes=(*verdict.notes, *filter(None, [pairs.clocks(case)])),
    )


def _with_seconds(side: Side, medians: tuple[float | None, float | None]) -> Side:
    return replace(side, seconds=medians[0], launch_seconds=medians[1])


def _failed(case: Case, pairs: Pairs) -> tuple[Mark, str] | None:
    """Judge a case that failed while it was measured, though it ran when its results were checked."""
    cause = pairs.given_up(case)
    if not cause:
        return None
    if pairs.always_fails_on_head(case):
        return Mark.BROKEN, f"fails on head while it is measured, not on base ({cause})"
    return Mark.UNSURE, f"fails while it is measured ({cause})"


def _undecided(verdict: CaseVerdict, why: str) -> CaseVerdict:
    """Take back what the time said."""
    if verdict.mark is Mark.BROKEN or verdict.mark is None:
        return verdict
    return replace(verdict, mark=Mark.UNSURE, reason="the machine is unfit" if why else "the run was interrupted")


def _pin_sentinels(sides: Sides, sentinels: Sequence[Case], verdicts: dict[Case, CaseVerdict]) -> None:
    """Tune the sentinels once, for both sides: identical cases were not run before."""
    if not sentinels:
        return
    with sides.worker(Mode.GPU, Arm.BASE) as worker:
        for case in sentinels:
            with contextlib.suppress(CaseFailed):  # it will fail again, where that is told
                side = Side(choices=worker.tune(case))
                verdicts[case] = replace(verdicts[case], base=side, head=side)


def _so_far(cases: Sequence[Case], logs: Sequence[PairLog], design: Design) -> tuple[SeriesResult, ...]:
    """Say what the pairs of an interrupted run are worth: estimates, no verdicts."""
    if not logs:
        logs = [PairLog(stage="", head_slot=0, seconds=0.0, log_ratios={}, launch_log_ratios={}, faults={})]
    table = time_table(logs, [case.id for case in cases])
    bounds = interval(table, design.prior, alpha=0.005)
    return tuple(
        SeriesResult(
            mark=Mark.UNSURE,
            estimate=_finite(bounds.estimate[row]),
            lower=_finite(bounds.lower[row]),
            upper=_finite(bounds.upper[row]),
            pairs=int(np.isfinite(table[row]).sum()),
            deviation=None,
            detectable=None,
            inside_margin=False,
            p_slower=1.0,
            p_faster=1.0,
            confirm_p=None,
        )
        for row in range(len(cases))
    )


def _unfit(pairs: Pairs, sentinels: Sequence[CaseVerdict]) -> str:
    moved = (Mark.SLOWER, Mark.FASTER)
    fired = [verdict.case.id for verdict in sentinels if verdict.time is not None and verdict.time.mark in moved]
    if fired:
        return f"{', '.join(fired)}: the same code on both sides came out different"
    return pairs.unfit()


def _notes(pairs: Pairs, sentinels: Sequence[Case]) -> tuple[str, ...]:
    notes = pairs.notes()
    if sentinels:
        names = ", ".join(case.id for case in sentinels)
        notes += (f"measured though identical, as a check on the machine: {names}",)
    return notes


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
