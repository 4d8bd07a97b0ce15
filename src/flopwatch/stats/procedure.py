"""The decision of a run: which series are slower, faster, the same, or unsure.

Stage 1 measures pairs of all series and flags, in each direction, by a max-T sign-flip test at `alpha`. Stage 2
measures fresh pairs of the flagged series; only what it rejects as well, at `confirm_alpha`, is called slower or
faster. Its coins are independent of stage 1, so that the chance of calling any innocent series slower is at most
alpha * confirm_alpha, 0.08 % a run.

Looking early does not raise it. The first look can only end the accusing, never begin it, so what is flagged is always
among what the one test after `pairs` pairs would have flagged. Nor does settling: the further pairs of an open series
may say SAME of it, and nothing else.

The sampler is an argument, so that the live gate and a replay of recorded pairs run the same code.
"""

from __future__ import annotations

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
from flopwatch.stats.signflip import SUITE_FROM, max_t, p_slower, standardise, suite_prior, suite_row

#: Measure so many fresh pairs of these series: log(head / base), (rows, pairs), NaN where invalid. What makes a pair
#: invalid must not depend on which arm was head.
Sampler: TypeAlias = Callable[[Sequence[int], int], FloatArray]
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
    """Stage 1. P-values and flags have the suite's median as their last entry, where there is one."""

    table: FloatArray
    p_slower: FloatArray
    p_faster: FloatArray
    slower: Flags
    faster: Flags
    same: Flags


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
    """Stage 2: the fresh pairs, and p-values (NaN where not flagged) and marks, shaped as in stage 1."""

    evidence: _Evidence
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
    settled: Sequence[_Evidence]


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
    ...     Design(), [0.005] * 3, lambda rows, pairs: effects[list(rows)] + rng.normal(0, 0.001, (len(rows), pairs))
    ... )
    >>> [series.mark.value for series in found.series], found.pairs, found.confirm_pairs
    (['slower', 'same', 'same'], 13, 18)
    """
    limits = np.asarray(margins, dtype=np.float64)
    if not len(limits) or not (np.isfinite(limits).all() and (limits >= 0).all()):
        raise ValueError(f"need a margin for each series, finite and not negative, got {list(margins)}")
    measure = _checked(sample)
    screen = _screen(design, limits, measure)
    confirmed = _confirm(design, limits, screen, measure)
    flagged = (screen.slower | screen.faster)[: len(limits)]
    settled = _settle(design, screen, ~(flagged | screen.same[: len(limits)]), measure)
    if len(screen.p_slower) > len(limits):
        limits = np.append(limits, np.median(limits))
    return _conclude(_Course(design=design, margins=limits, screen=screen, confirmed=confirmed, settled=settled))


def _checked(sample: Sampler) -> Sampler:
    """Hold the sampler to its shape, and take what is not finite as invalid."""

    def measure(rows: Sequence[int], pairs: int) -> FloatArray:
        table = np.asarray(sample(rows, pairs), dtype=np.float64)
        if table.shape != (len(rows), pairs):
            raise ValueError(f"the sampler was asked for {(len(rows), pairs)} log ratios and gave {table.shape}")
        return np.where(np.isfinite(table), table, np.nan)

    return measure


def _screen(design: Design, margins: FloatArray, measure: Sampler) -> _Screen:
    """Stage 1: stop at the first look if nobody is near being flagged, else flag after all pairs."""
    rows = range(len(margins))
    table = measure(rows, design.first_look)
    slower, faster = _both(table, margins, design.prior)
    if design.first_look < design.pairs:
        if min(slower.min(), faster.min()) > design.leaning:
            nobody = np.zeros(len(slower), dtype=np.bool_)
            same = _same_and_suite(table, design, design.first_same_alpha)
            return _Screen(table=table, p_slower=slower, p_faster=faster, slower=nobody, faster=nobody, same=same)
        table = np.hstack([table, measure(rows, design.pairs - design.first_look)])
        slower, faster = _both(table, margins, design.prior)
    # A design with one look spends what the first look may.
    level = design.later_same_alpha if design.first_look < design.pairs else design.first_same_alpha
    return _Screen(
        table=table,
        p_slower=slower,
        p_faster=faster,
        slower=slower <= design.alpha,
        faster=(faster <= design.alpha) & (slower > design.alpha),
        same=_same_and_suite(table, design, level),
    )


def _both(table: FloatArray, margins: FloatArray, prior: Prior) -> tuple[FloatArray, FloatArray]:
    return p_slower(table - margins[:, None], prior), p_slower(-table - margins[:, None], prior)


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
    that passed stage 1 would face 1.6 % instead of 0.08 %.
    """
    flagged = screen.slower | screen.faster
    count = len(margins)
    rows = np.flatnonzero(flagged[:count])
    if flagged[count:].any():
        rows = np.arange(count)
    p = np.full(len(flagged), np.nan)
    if not len(rows):
        nothing = _Evidence(rows=rows, table=np.empty((0, 0)), same=np.zeros(0, dtype=np.bool_))
        return _Confirmed(evidence=nothing, p=p, slower=screen.slower, faster=screen.faster)
    table = measure([int(row) for row in rows], design.confirm_pairs)
    for sign, chosen in ((1, screen.slower), (-1, screen.faster)):
        if chosen.any():
            x = sign * table - margins[rows, None]
            tested = [standardise(x[chosen[rows]], design.prior)]
            if chosen[count:].any():
                tested.append(standardise(suite_row(x), suite_prior(design.prior)))
            p[chosen] = max_t(np.vstack(tested))
    rejected = p <= design.confirm_alpha
    return _Confirmed(
        evidence=_Evidence(rows=rows, table=table, same=_same(table, design.prior, design, design.later_same_alpha)),
        p=p,
        slower=screen.slower & rejected,
        faster=screen.faster & rejected,
    )


def _settle(design: Design, screen: _Screen, unsettled: Flags, measure: Sampler) -> list[_Evidence]:
    """Measure further pairs of the open series alone, in rounds, until they are proved the same.

    More of them than `settle_series` are a matter of the machine, or of the change, that a few more pairs do not cure.
    """
    rows = np.flatnonzero(unsettled)
    found: list[_Evidence] = []
    if len(rows) > design.settle_series or not design.settle_pairs:
        return found
    table = screen.table[rows]
    for _ in range(SETTLE_ROUNDS):
        if not len(rows):
            break
        fresh = measure([int(row) for row in rows], design.settle_pairs // SETTLE_ROUNDS)
        table = np.hstack([table, fresh])
        same = _same(table, design.prior, design, design.later_same_alpha)
        found.append(_Evidence(rows=rows, table=table, same=same))
        rows, table = rows[~same], table[~same]
    return found


def _conclude(course: _Course) -> Decision:
    """Draw up the results, each series' by the last evidence that was gathered for it."""
    design, screen, confirmed = course.design, course.screen, course.confirmed
    count = len(screen.table)
    evidence = [
        _Evidence(rows=np.arange(count), table=screen.table, same=screen.same[:count]),
        *course.settled,
        confirmed.evidence,
    ]
    last = np.zeros(count, dtype=np.intp)
    for index, piece in enumerate(evidence):
        last[piece.rows] = index
    results: dict[int, SeriesResult] = {}
    for index, piece in enumerate(evidence):
        results |= _results(course, piece.only(last[piece.rows] == index), design.prior)
    suite = None
    if len(screen.p_slower) > count:
        table, same = suite_row(screen.table), screen.same[count:]
        prior = suite_prior(design.prior)
        if np.isfinite(confirmed.p[count]):
            table = suite_row(confirmed.evidence.table)
            same = _same(table, prior, design, design.later_same_alpha)
        suite = _results(course, _Evidence(rows=np.array([count]), table=table, same=same), prior)[count]
    return Decision(
        series=tuple(results[row] for row in range(count)),
        suite=suite,
        pairs=screen.table.shape[1],
        settle_pairs=len(course.settled) * design.settle_pairs // SETTLE_ROUNDS,
        confirm_pairs=confirmed.evidence.table.shape[1],
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
