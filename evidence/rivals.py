"""Other tools' rules on the same samples.

Each rule is given what a clean run of the gate measures: the samples of as many pairs as its first look takes. In one
variant base and head come from the same pairs, in turns, as the gate has them. In the other base comes from some pairs
and head from others that were recorded minutes apart, which is what two runs one after the other give; it still
flatters the rules, because both were recorded while a twin ran, and the GPU was equally warm throughout.

The z test against a stored baseline takes one process for head and one of each other pair's for the history, as
conbench has one result a commit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from asv.commands.compare import _is_result_better
from asv_runner.statistics import compute_stats
from numpy.typing import NDArray

from evidence.pool import processes
from evidence.samples import Origin, Samples, means
from flopwatch.stats import Design
from flopwatch.stats.prior import FloatArray

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 20261123
RUNS = 200
CHUNK = 10
SLOWDOWNS = (0.01, 0.02, 0.05)
#: What Welch's test is allowed in a run, the gate's own bound.
WELCH_ALPHA = 0.001
Z_LIMIT = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side's samples of every case.

    Attributes:
        samples: seconds per call, (cases, samples); NaN where there are fewer.
        turns: means of a cycle's samples, (cases, cycles of all processes); a sample of asv is such a mean.
    """

    samples: FloatArray
    turns: FloatArray

    def slowed(self, slowdown: float) -> Side:
        """Multiply every time."""
        return Side(samples=self.samples * (1 + slowdown), turns=self.turns * (1 + slowdown))


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What a rule sees.

    Attributes:
        base: a side.
        head: the other.
        run: median time of head's process, of each case.
        history: medians of earlier processes, (cases, processes).
    """

    base: Side
    head: Side
    run: FloatArray
    history: FloatArray


Rule: TypeAlias = Callable[[Look], NDArray[np.bool_]]


def asv(look: Look, factor: float) -> NDArray[np.bool_]:
    """Decide as `asv compare` and `asv continuous` do, by asv's own code."""
    bases, heads = np.nanmedian(look.base.turns, axis=1), np.nanmedian(look.head.turns, axis=1)
    slower = bases < heads / factor
    for case in np.flatnonzero(slower):
        found = []
        for side in (look.base, look.head):
            taken = [value for value in side.turns[case].tolist() if value == value]  # noqa: PLR0124 - not NaN
            time_s, stats = compute_stats(taken, 1)
            found.append((time_s, (stats, taken)))
        (base_s, base_stats), (head_s, head_stats) = found
        slower[case] = _is_result_better(base_s, head_s, base_stats, head_stats, factor)
    return slower


def mean_over(look: Look, threshold: float) -> NDArray[np.bool_]:
    """Decide as `pytest-benchmark --benchmark-compare-fail=mean:...` does."""
    rise: FloatArray = np.nanmean(look.head.samples, axis=1) / np.nanmean(look.base.samples, axis=1) - 1
    return rise > threshold


def median_over(look: Look, threshold: float) -> NDArray[np.bool_]:
    """Decide by a fixed threshold for the median; `--benchmark-compare-fail=median:...` is one."""
    rise: FloatArray = np.nanmedian(look.head.samples, axis=1) / np.nanmedian(look.base.samples, axis=1) - 1
    return rise > threshold


def z_over(look: Look, limit: float) -> NDArray[np.bool_]:
    """Decide as conbench and benchalerts do: so many standard deviations above the mean of the history."""
    deviation = look.history.std(axis=1, ddof=1)
    score: FloatArray = (look.run - look.history.mean(axis=1)) / deviation
    return score > limit


def welch(look: Look, alpha: float) -> NDArray[np.bool_]:
    """Decide by Welch's t test of all samples, as if they were independent; `alpha` is shared among the cases.

    With hundreds of samples a side Student's distribution is the normal one.
    """
    shares = []
    for side in (look.base, look.head):
        counts = np.isfinite(side.samples).sum(axis=1)
        shares.append(np.nanvar(side.samples, axis=1, ddof=1) / counts)
    difference = np.nanmean(look.head.samples, axis=1) - np.nanmean(look.base.samples, axis=1)
    score: FloatArray = difference / np.sqrt(shares[0] + shares[1])
    return score > NormalDist().inv_cdf(1 - alpha / len(score))


RULES: dict[str, Rule] = {
    "asv, factor 1.1 (its default)": partial(asv, factor=1.1),
    "asv, factor 1.02": partial(asv, factor=1.02),
    "pytest-benchmark, mean:5%": partial(mean_over, threshold=0.05),
    "median over 5 %, as pytest-benchmark's median:5%": partial(median_over, threshold=0.05),
    "median over 2 %": partial(median_over, threshold=0.02),
    "Welch's t test of all samples, 0.1 % a run": partial(welch, alpha=WELCH_ALPHA),
    "z > 5 against a stored baseline, as conbench": partial(z_over, limit=Z_LIMIT),
}
#: A stored baseline is never in turns with head.
STORED = "z > 5 against a stored baseline, as conbench"


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleResult:
    """What one rule said.

    Attributes:
        rule: its name.
        in_turns: base and head from the same pairs, in turns; else from pairs minutes apart.
        runs: of equal code, and as many of each slowdown.
        false_runs: of equal code in which a case was called slower.
        false_cases: cases that were, over all these runs.
        found: of each slowdown, the share of all cases in all runs that were called slower.
    """

    rule: str
    in_turns: bool
    runs: int
    false_runs: int
    false_cases: int
    found: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rivals:
    """All of it; `pairs` a side were given to each rule."""

    origin: Origin
    pairs: int
    slowdowns: tuple[float, ...]
    results: tuple[RuleResult, ...]


def make(path: Path, runs: int) -> Rivals:
    """Try every rule on `runs` draws of pairs."""
    samples = Samples.load(path)
    pairs = min(Design().first_look, len(samples.seconds) // 2)
    jobs = [(in_turns, seed) for in_turns in (True, False) for seed in range(-(-runs // CHUNK))]
    with processes() as pool:
        parts = list(pool.map(partial(judge, path, pairs, CHUNK), jobs))
    results: dict[tuple[str, bool], RuleResult] = {}
    for part in itertools.chain.from_iterable(parts):
        key = (part.rule, part.in_turns)
        results[key] = merge(results[key], part) if key in results else part
    return Rivals(origin=samples.origin(path), pairs=pairs, slowdowns=SLOWDOWNS, results=tuple(results.values()))


def merge(one: RuleResult, other: RuleResult) -> RuleResult:
    """Add up two sets of runs of one rule."""
    runs = one.runs + other.runs
    shares = zip(one.found, other.found, strict=True)
    return replace(
        one,
        runs=runs,
        false_runs=one.false_runs + other.false_runs,
        false_cases=one.false_cases + other.false_cases,
        found=tuple((a * one.runs + b * other.runs) / runs for a, b in shares),
    )


def judge(path: Path, pairs: int, runs: int, job: tuple[bool, int]) -> list[RuleResult]:
    """Let every rule decide some runs, of equal code and of every slowdown."""
    in_turns, seed = job
    rng = np.random.default_rng([SEED, seed])
    looks = list(itertools.islice(draws(Samples.load(path).seconds, pairs, rng, in_turns=in_turns), runs))
    found = []
    for name, rule in RULES.items():
        if in_turns and name == STORED:
            continue
        clean = np.array([rule(look) for look in looks])
        shares = []
        for slowdown in SLOWDOWNS:
            slowed = (replace(look, head=look.head.slowed(slowdown), run=look.run * (1 + slowdown)) for look in looks)
            shares.append(float(np.mean([rule(look) for look in slowed])))
        found.append(
            RuleResult(
                rule=name,
                in_turns=in_turns,
                runs=runs,
                false_runs=int(clean.any(axis=1).sum()),
                false_cases=int(clean.sum()),
                found=tuple(shares),
            )
        )
    return found


def draws(seconds: NDArray[np.float32], pairs: int, rng: np.random.Generator, *, in_turns: bool) -> Iterator[Look]:
    """Draw what two runs of equal code give.

    Raises:
        ValueError: there are too few pairs for two runs apart.
    """
    recorded = len(seconds)
    if not in_turns and recorded < 2 * pairs:
        raise ValueError(f"two runs of {pairs} pairs are {2 * pairs} pairs, and {recorded} were recorded")
    medians = np.nanmedian(seconds.astype(np.float64), axis=(3, 4, 5))
    while True:
        if in_turns:
            base = head = rng.permutation(recorded)[:pairs]
            slots = rng.integers(2, size=pairs)
            others = 1 - slots
        else:
            # Two stretches of neighbours, of which either may be the earlier.
            starts = np.sort(rng.integers(recorded - 2 * pairs + 1, size=2)) + np.array([0, pairs])
            base, head = (start + np.arange(pairs) for start in rng.permutation(starts))
            slots, others = rng.integers(2, size=(2, pairs))
        history = np.delete(np.arange(recorded), head[0])
        yield Look(
            base=side(seconds[base, :, slots]),
            head=side(seconds[head, :, others]),
            run=medians[head[0], :, others[0]],
            history=medians[history, :, rng.integers(2, size=len(history))].T,
        )


def side(seconds: NDArray[np.float32]) -> Side:
    """Pool the samples of some processes: (processes, cases, preparations, cycles, samples)."""
    by_case = np.moveaxis(seconds.astype(np.float64), 1, 0)
    return Side(samples=by_case.reshape(len(by_case), -1), turns=means(by_case, -1).reshape(len(by_case), -1))
