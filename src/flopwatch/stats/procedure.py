"""The decision of a run: which series are slower, faster, the same, or unsure.

Stage 1 measures pairs of all series and flags, in each direction, by a max-T sign-flip test. Stage 2 measures fresh
pairs of the flagged series; only what it rejects as well is called slower or faster. Its coins are independent of stage
1, so that the chance of calling any innocent series slower is at most `Design.false_alarm_rate`, 0.08 % a run.

Each stage looks twice, so that what is plain is found after few pairs. The levels of the two looks add up, and what the
first one rejects leaves the test, which so remains one of all series that may be innocent (step-down: P. H. Westfall
and S. S. Young, "Resampling-Based Multiple Testing", 1993, section 2.8). Ending stage 1 at its first look can only lose
flags. Nor does settling accuse: the further pairs of an open series may say SAME of it, and nothing else.

The sampler is an argument, so that the live gate and a replay of recorded pairs run the same code.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flopwatch.model import Mark, SeriesResult
from flopwatch.stats.design import SETTLE_ROUNDS, Design
from flopwatch.stats.interval import deviation_of, interval, single_p
from flopwatch.stats.power import detectable
from flopwatch.stats.prior import FloatArray, Prior
from flopwatch.stats.signflip import SUITE_FROM, p_slower, suite_prior, suite_row


class Stage(enum.Enum):
    """What pairs are measured for."""

    SCREEN = "screen"
    CONFIRM = "confirm"
    SETTLE = "settle"


#: Measure so many fresh pairs of these series: log(head / base), (rows, pairs), NaN where invalid. What makes a pair
#: invalid must not depend on which arm was head.
Sampler: TypeAlias = Callable[[Sequence[int], int, Stage], FloatArray]
Flags: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.intp]

#: Each bound of the displayed interval; 99 % between the two.
BOUND_ALPHA = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What a run says.

    Attributes:
        series: one result each, in the order of the margins.
        suite: of the median series; None below `SUITE_FROM` series.
        pairs: of all series, in stage 1.
        settle_pairs: further ones of the open series.
        confirm_pairs: of the flagged series, in stage 2.
    """

    series: tuple[SeriesResult, ...]
    suite: SeriesResult | None
    pairs: int
    settle_pairs: int
    confirm_pairs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Screen:
    """Stage 1. P-values and flags have the suite's median as their last entry, where there is one.

    `plain` are those flags that the first look raised.
    """

    table: FloatArray
    p_slower: FloatArray
    p_faster: FloatArray
    slower: Flags
    faster: Flags
    plain: Flags
    same: Flags

    @property
    def flagged(self) -> Flags:
        """Flagged in either direction."""
        return self.slower | self.faster


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evidence:
    """Pairs of some rows, and which of these they prove the same."""

    rows: Rows
    table: FloatArray
    same: Flags

    def only(self, kept: Flags) -> _Evidence:
        """Keep some of the rows."""
        return _Evidence(rows=self.rows[kept], table=self.table[kept], same=self.same[kept])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Confirmed:
    """Stage 2: fresh pairs, NaN where a series was not measured; p-values (likewise) and marks as in stage 1."""

    table: FloatArray
    p: FloatArray
    slower: Flags
    faster: Flags


@dataclass(frozen=True, kw_only=True, slots=True)
class _Course:
    """All that a run measured. Margins have the suite's, the median one, as their last entry, where there is one."""

    design: Design
    margins: FloatArray
    screen: _Screen
    confirmed: _Confirmed
    unflagged: Sequence[_Evidence]


def decide(design: Design, margins: Sequence[float], sample: Sampler) -> Decision:
    """Measure and decide.

    Args:
        design: how many pairs, at which levels.
        margins: the slowdown of each series, as a log ratio, that is accepted.
        sample: measures fresh pairs.

    Raises:
        ValueError: no series, a margin that is negative or not finite, or a table of the wrong shape.

    >>> rng = np.random.default_rng(1)
    >>> effects = np.array([[0.02], [0.0], [0.0]])
    >>> found = decide(
    ...     Design(),
    ...     [0.005] * 3,
    ...     lambda rows, pairs, stage: effects[list(rows)] + rng.normal(0, 0.001, (len(rows), pairs)),
    ... )
    >>> [series.mark.value for series in found.series], found.pairs, found.confirm_pairs
    (['slower', 'same', 'same'], 8, 8)
    """
    limits = np.asarray(margins, dtype=np.float64)
    if not len(limits) or not (np.isfinite(limits).all() and (limits >= 0).all()):
        raise ValueError(f"need a margin for each series, finite and not negative, got {list(margins)}")
    measure = _checked(sample)
    screen = _screen(design, limits, measure)
    confirmed = _confirm(design, limits, screen, measure)
    others = _others(design, screen, confirmed)
    # What was measured again with the whole suite has had its further look.
    settled = [] if others.table.shape[1] > screen.table.shape[1] else _settle(design, others, measure)
    if len(screen.p_slower) > len(limits):
        limits = np.append(limits, np.median(limits))
    course = _Course(design=design, margins=limits, screen=screen, confirmed=confirmed, unflagged=[others, *settled])
    return _conclude(course)


def _checked(sample: Sampler) -> Sampler:
    """Hold the sampler to its shape, and take what is not finite as invalid."""

    def measure(rows: Sequence[int], pairs: int, stage: Stage) -> FloatArray:
        table = np.asarray(sample(rows, pairs, stage), dtype=np.float64)
        if table.shape != (len(rows), pairs):
            raise ValueError(f"the sampler was asked for {(len(rows), pairs)} log ratios and gave {table.shape}")
        return np.where(np.isfinite(table), table, np.nan)

    return measure


def _screen(design: Design, margins: FloatArray, measure: Sampler) -> _Screen:
    """Stage 1: flag what is plain at the first look; go on to all pairs only if one of the others is near it."""
    rows = range(len(margins))
    table = measure(rows, design.first_look, Stage.SCREEN)
    slower, faster = _both(table, margins, design.prior)
    plain = slower <= design.first_alpha, (faster <= design.first_alpha) & (slower > design.first_alpha)
    level, same_level = design.last_alpha, design.first_same_alpha
    if design.first_look < design.pairs:
        others = ~plain[0], ~plain[1]
        leaning = _both(table, margins, design.prior, others)
        if np.nanmin([leaning], initial=1.0) > design.leaning:
            level = 0.0
        else:
            table = np.hstack([table, measure(rows, design.pairs - design.first_look, Stage.SCREEN)])
            leaning = _both(table, margins, design.prior, others)
            same_level = design.later_same_alpha
        slower, faster = np.where(plain[0], slower, leaning[0]), np.where(plain[1], faster, leaning[1])
    flags = plain[0] | ((slower <= level) & ~plain[1])
    return _Screen(
        table=table,
        p_slower=slower,
        p_faster=faster,
        slower=flags,
        faster=(plain[1] | (faster <= level)) & ~flags,
        plain=plain[0] | plain[1],
        same=_same_and_suite(table, design, same_level),
    )


def _both(
    table: FloatArray, margins: FloatArray, prior: Prior, tested: tuple[Flags | None, Flags | None] = (None, None)
) -> tuple[FloatArray, FloatArray]:
    """Return the p-values of being slower and of being faster."""
    return (
        p_slower(table - margins[:, None], prior, tested[0]),
        p_slower(-table - margins[:, None], prior, tested[1]),
    )


def _same(table: FloatArray, prior: Prior, design: Design, alpha: float) -> Flags:
    """Tell which rows are proved to be less than `same_within` slower."""
    return single_p(design.same_within - table, prior) <= alpha


def _same_and_suite(table: FloatArray, design: Design, alpha: float) -> Flags:
    """Tell it of the suite's median too, where there is one."""
    same = _same(table, design.prior, design, alpha)
    if len(table) < SUITE_FROM:
        return same
    return np.append(same, _same(suite_row(table), suite_prior(design.prior), design, alpha))


def _confirm(design: Design, margins: FloatArray, screen: _Screen, measure: Sampler) -> _Confirmed:
    """Stage 2: test each flagged series again, in its direction, on fresh pairs of the flagged series alone.

    If the suite's median is flagged, fresh pairs of all series are measured, but only flagged ones are tested: a series
    that passed stage 1 would face the level of stage 2 instead of that of both. While one is open, those that the first
    look rejected are measured on: what runs beside a series may change its error, and must not depend on its coins.
    """
    flagged, count = screen.flagged, len(margins)
    rows = np.arange(count) if flagged[count:].any() else np.flatnonzero(flagged[:count])
    looks = [(design.confirm_pairs, design.confirm_alpha, flagged)]
    if screen.plain.any():
        looks.insert(0, (design.confirm_first, design.confirm_first_alpha, screen.plain))
    table = np.empty((count, 0))
    p, rejected = np.full(len(flagged), np.nan), np.zeros(len(flagged), dtype=np.bool_)
    for pairs, alpha, candidates in looks:
        pending = flagged & ~rejected
        if not pending.any():
            break
        fresh = np.full((count, pairs - table.shape[1]), np.nan)
        fresh[rows] = measure(rows.tolist(), fresh.shape[1], Stage.CONFIRM)
        table = np.hstack([table, fresh])
        for sign, direction in ((1, screen.slower), (-1, screen.faster)):
            tested = pending & candidates & direction
            p[tested] = p_slower(sign * table - margins[:, None], design.prior, tested)[tested]
        rejected |= pending & candidates & (p <= alpha)
    return _Confirmed(table=table, p=p, slower=screen.slower & rejected, faster=screen.faster & rejected)


def _others(design: Design, screen: _Screen, confirmed: _Confirmed) -> _Evidence:
    """Return the evidence on what was not flagged, with the pairs that it got where the whole suite was flagged."""
    count = len(screen.table)
    rows = np.flatnonzero(~screen.flagged[:count])
    if not screen.flagged[count:].any():
        return _Evidence(rows=rows, table=screen.table[rows], same=screen.same[rows])
    table = np.hstack([screen.table, confirmed.table])[rows]
    return _Evidence(rows=rows, table=table, same=_same(table, design.prior, design, design.later_same_alpha))


def _settle(design: Design, others: _Evidence, measure: Sampler) -> list[_Evidence]:
    """Measure further pairs of the open series alone, in rounds, until they are proved the same.

    More of them than `settle_series` are a matter of the machine, or of the change, that a few more pairs do not cure.
    """
    left = others.only(~others.same)
    found: list[_Evidence] = []
    if len(left.rows) > design.settle_series or not design.settle_pairs:
        return found
    for _ in range(SETTLE_ROUNDS):
        if not len(left.rows):
            break
        fresh = measure(left.rows.tolist(), design.settle_pairs // SETTLE_ROUNDS, Stage.SETTLE)
        table = np.hstack([left.table, fresh])
        same = _same(table, design.prior, design, design.later_same_alpha)
        found.append(_Evidence(rows=left.rows, table=table, same=same))
        left = found[-1].only(~same)
    return found


def _conclude(course: _Course) -> Decision:
    """Draw up the results, each series' by the last evidence that was gathered for it."""
    design, screen, confirmed = course.design, course.screen, course.confirmed
    count = len(screen.table)

    def fresh(rows: Rows, table: FloatArray, prior: Prior) -> dict[int, SeriesResult]:
        same = _same(table, prior, design, design.later_same_alpha)
        return _results(course, _Evidence(rows=rows, table=table, same=same), prior)

    results: dict[int, SeriesResult] = {}
    for piece in course.unflagged:
        results |= _results(course, piece, design.prior)
    flagged = np.flatnonzero(screen.flagged[:count])
    results |= fresh(flagged, confirmed.table[flagged], design.prior)
    suite = None
    if len(screen.p_slower) > count:
        row, prior = np.array([count]), suite_prior(design.prior)
        if screen.flagged[count]:
            suite = fresh(row, suite_row(confirmed.table), prior)[count]
        else:
            piece = _Evidence(rows=row, table=suite_row(screen.table), same=screen.same[count:])
            suite = _results(course, piece, prior)[count]
    return Decision(
        series=tuple(results[row] for row in range(count)),
        suite=suite,
        pairs=screen.table.shape[1],
        settle_pairs=(len(course.unflagged) - 1) * design.settle_pairs // SETTLE_ROUNDS,
        confirm_pairs=confirmed.table.shape[1],
    )


def _results(course: _Course, evidence: _Evidence, prior: Prior) -> dict[int, SeriesResult]:
    """Return the result of each row of `evidence`."""
    found: dict[int, SeriesResult] = {}
    if not len(evidence.rows):
        return found
    bounds = interval(evidence.table, prior, alpha=BOUND_ALPHA)
    deviations = deviation_of(evidence.table, bounds.estimate)
    margins = course.margins[evidence.rows]
    count = len(course.screen.table)
    limits = detectable(course.design, series=count, margins=margins, deviations=deviations)
    for index, row in enumerate(evidence.rows.tolist()):
        mark = _mark(course.confirmed, row, same=bool(evidence.same[index]))
        found[row] = SeriesResult(
            mark=mark,
            estimate=_known(bounds.estimate[index]),
            lower=_known(bounds.lower[index]),
            upper=_known(bounds.upper[index]),
            pairs=int(np.isfinite(evidence.table[index]).sum()),
            deviation=_known(deviations[index]),
            detectable=_known(limits[index]) if row < count else None,
            inside_margin=mark is not Mark.SLOWER and bool(bounds.lower[index] > 0),
            p_slower=float(course.screen.p_slower[row]),
            p_faster=float(course.screen.p_faster[row]),
            confirm_p=_known(course.confirmed.p[row]),
        )
    return found


def _mark(confirmed: _Confirmed, row: int, *, same: bool) -> Mark:
    if confirmed.slower[row]:
        return Mark.SLOWER
    if confirmed.faster[row]:
        return Mark.FASTER
    return Mark.SAME if same else Mark.UNSURE


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
