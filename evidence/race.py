"""Race candidates for a kernel against its peers at one point.

A candidate is timed only once its numbers are right. Successive halving then finds the fastest: after each look, which
doubles the rounds, the slower half goes. The winner and the peers are timed afresh, on samples that chose nothing.
K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from flopwatch.stats import PRIOR
from flopwatch.stats.interval import interval

#: Launches once, on the input set of that number.
Call: TypeAlias = Callable[[int], object]
Maker: TypeAlias = Callable[[], Call]
#: Of each who took part, seconds in one round.
Round: TypeAlias = dict[str, float]

#: Samples of each one alone, before its numbers are checked a second time: who hangs or errs now and then, does so
#: under its own name.
SOAK_ROUNDS = 8
FIRST_ROUNDS = 3
FINAL_ROUNDS = 24
#: Slower than the fastest by so much at any look: gone, whichever half it is in.
HOPELESS = 1.25
#: A bound is beyond the effect in 0.5 % of such races: together 99 %.
ALPHA = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Where candidates are raced.

    Attributes:
        name: such as "64 causal 4096".
        group: whose geometric mean is told, such as "64 causal".
        flops: floating-point operations of one call.
        values: what the experiment makes its inputs of.
    """

    name: str
    group: str
    flops: float
    values: tuple[int | str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Contest:
    """Who is raced at a point.

    Attributes:
        peers: what others ship, by name; made in this order, and checked as the candidates are.
        candidates: the configurations, by name; each is made when its turn comes.
        wrong: runs a call on input set 0 into a poisoned output; returns what is wrong, "" if nothing.
        sets: input sets; calls rotate over them, and together they hold more than twice the L2 cache.
    """

    peers: Mapping[str, Maker]
    candidates: Mapping[str, Maker]
    wrong: Callable[[Call], str]
    sets: int


class Turns(Protocol):
    """What takes samples of calls that take turns, launch by launch."""

    def take(self, names: Sequence[str], rounds: int) -> list[Round]:
        """Take a sample of each in every round, in an order that changes."""


class Experiment(Protocol):
    """What a program brings; it is sent to other processes by its pickle, so that it holds nothing of the GPU."""

    @property
    def source(self) -> str:
        """What outcomes depend on beside the point: of another source, they are measured again."""

    def points(self) -> Sequence[Point]:
        """Return all points, the most telling ones first."""

    def compilations(self, point: Point) -> Sequence[Callable[[], object]]:
        """Return what compiles the candidates of a point into Triton's cache; may be pickled, equal where the same."""

    def contest(self, point: Point) -> Contest:
        """Make the inputs and the reference of a point, on the GPU."""

    def turns(self, calls: Mapping[str, Call], sets: int) -> Turns:
        """Make ready to sample these calls."""

    def is_alive(self) -> bool:
        """Tell whether the GPU still answers this process."""

    def about(self) -> dict[str, str]:
        """Return the GPU and the versions of what runs on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """How one of them did.

    Attributes:
        name: of a peer or a candidate.
        peer: whether it is a peer.
        seconds: a call, the median of the last rounds in which it was; None where it was not timed.
        rounds: in which it was, all looks together.
        reason: why it was not timed.
    """

    name: str
    peer: bool
    seconds: float | None = None
    rounds: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """The winner's speed in units of a peer's, with 99 % bounds over the rounds of one process."""

    peer: str
    speed: float
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came out at a point.

    Attributes:
        point: where.
        entries: everyone, the fastest first.
        winner: the fastest candidate; "" where none was right.
        ratios: to each peer, the fastest peer first; of fresh samples.
        took_s: how long all of it took.
        reason: why there is nothing.
    """

    point: Point
    entries: tuple[Entry, ...] = ()
    winner: str = ""
    ratios: tuple[Ratio, ...] = ()
    took_s: float = 0.0
    reason: str = ""


class BrokenContextError(Exception):
    """Someone left the GPU's context unusable."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


def race(experiment: Experiment, point: Point, banned: Mapping[str, str], tell: Callable[[str], object]) -> Outcome:
    """Check everyone, find the fastest candidate, and time it afresh against the peers.

    Raises:
        BrokenContextError: someone left the GPU unusable.
    """
    tell("")
    contest = experiment.contest(point)
    entries: dict[str, Entry] = {}
    calls: dict[str, Call] = {}
    for name, make in [*contest.peers.items(), *contest.candidates.items()]:
        reason = banned.get(name, "")
        if not reason:
            tell(name)
            call, reason = _made(experiment, contest, name, make)
            if call is not None:
                calls[name] = call
        entries[name] = Entry(name=name, peer=name in contest.peers, reason=reason)
    runners = [name for name in calls if name in contest.candidates]
    peers = [name for name in calls if name in contest.peers]
    if not runners:
        return Outcome(point=point, entries=tuple(entries.values()), reason="no candidate is right")
    tell("")
    turns = experiment.turns(calls, contest.sets)
    seconds: dict[str, float] = {}
    rounds = dict.fromkeys(calls, 0)
    looked = FIRST_ROUNDS
    while True:
        seconds |= medians(turns.take(runners, looked))
        rounds |= {name: rounds[name] + looked for name in runners}
        left = fastest_half(seconds, runners)
        if len(left) == 1:
            break
        runners, looked = left, 2 * looked
    (winner,) = left
    final = turns.take([winner, *peers], FINAL_ROUNDS)
    seconds |= medians(final)
    rounds |= {name: rounds[name] + len(final) for name in (winner, *peers)}
    entries |= {name: replace(entries[name], seconds=seconds[name], rounds=rounds[name]) for name in calls}
    return Outcome(
        point=point,
        entries=tuple(sorted(entries.values(), key=lambda entry: entry.seconds or math.inf)),
        winner=winner,
        ratios=tuple(ratio(final, winner, peer) for peer in sorted(peers, key=lambda name: seconds[name])),
    )


def _made(experiment: Experiment, contest: Contest, name: str, make: Maker) -> tuple[Call | None, str]:
    """Make a call, check its numbers and soak it; return it, or why it is not to be timed."""
    try:
        call = make()
        reason = contest.wrong(call)
        if not reason:
            experiment.turns({name: call}, contest.sets).take([name], SOAK_ROUNDS)
            reason = contest.wrong(call)
    except Exception as error:
        reason = f"fails ({first_line(error)})"
        if not experiment.is_alive():
            raise BrokenContextError(name, reason) from error
    return (None, reason) if reason else (call, "")


def fastest_half(seconds: Mapping[str, float], names: Sequence[str]) -> list[str]:
    """Return the faster half of them, an odd one included, without those that are hopeless.

    >>> fastest_half({"a": 2.0, "b": 1.0, "c": 1.1}, ["a", "b", "c"])
    ['b', 'c']
    >>> fastest_half({"a": 2.0, "b": 1.0, "c": 1.3}, ["a", "b", "c"])
    ['b']
    """
    ordered = sorted(names, key=lambda name: seconds[name])[: -(-len(names) // 2)]
    return [name for name in ordered if seconds[name] <= HOPELESS * seconds[ordered[0]]]


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """Return the median of each.

    >>> medians([{"a": 1.0}, {"a": 3.0}, {"a": 2.0}])
    {'a': 2.0}
    """
    return {name: statistics.median(taken[name] for taken in rounds) for name in rounds[0]}


def ratio(rounds: Sequence[Round], winner: str, peer: str) -> Ratio:
    """Return how fast the winner is in units of a peer, by the rounds in which both ran.

    >>> ratio([{"a": 1.0, "b": 2.0}] * 12, "a", "b")
    Ratio(peer='b', speed=2.0, lower=2.0, upper=2.0)
    """
    logs = np.array([[math.log(taken[peer] / taken[winner]) for taken in rounds]])
    found = interval(logs, PRIOR, alpha=ALPHA)
    speed, lower, upper = (round(math.exp(bound[0]), 6) for bound in (found.estimate, found.lower, found.upper))
    return Ratio(peer=peer, speed=speed, lower=lower, upper=upper)


def first_line(error: BaseException) -> str:
    """Return what an error says, in a line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
