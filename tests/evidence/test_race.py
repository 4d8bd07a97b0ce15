from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from evidence.race import FINAL_ROUNDS, FIRST_ROUNDS, BrokenContextError, Contest, Point, fastest_half, race

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evidence.race import Call, Round

POINT = Point(name="64 causal 512", group="64 causal", flops=2e12)


class Dealt:
    """Turns whose seconds are known: in round r, each takes its time by 1 + r / 1000."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def take(self, names: Sequence[str], rounds: int) -> list[Round]:
        return [{name: self._seconds[name] * (1 + r / 1000) for name in names} for r in range(rounds)]


class StandIn:
    """An experiment without a GPU: a candidate is what it says of itself."""

    source = "stand-in"

    def __init__(self, seconds: Mapping[str, float], faults: Mapping[str, str] | None = None) -> None:
        self.seconds = seconds
        self.faults = faults or {}
        self.alive = True

    def points(self) -> Sequence[Point]:
        return [POINT]

    def compilations(self, _point: Point) -> Sequence[Callable[[], object]]:
        return []

    def contest(self, _point: Point) -> Contest:
        makers = {name: lambda name=name: self.make(name) for name in self.seconds}
        peers = {name: make for name, make in makers.items() if name.startswith("peer")}
        rest = {name: make for name, make in makers.items() if name not in peers}
        return Contest(peers=peers, candidates=rest, wrong=lambda call: str(call(0) or ""), sets=2)

    def make(self, name: str) -> Call:
        fault = self.faults.get(name, "")
        if fault == "raises":
            raise RuntimeError("out of resources\nand more")
        if fault == "breaks":
            self.alive = False
            raise RuntimeError("illegal address")
        return lambda _: fault

    def turns(self, _calls: Mapping[str, Call], _sets: int) -> Dealt:
        return Dealt(self.seconds)

    def is_alive(self) -> bool:
        return self.alive

    def about(self) -> dict[str, str]:
        return {"gpu": "none"}


def test_the_fastest_candidate_wins_and_is_held_against_every_peer() -> None:
    times = {"peer one": 2.0, "peer two": 1.5, "a": 1.3, "b": 1.25, "c": 3.0, "d": 1.4, "e": 1.26}

    found = race(StandIn(times), POINT, {}, lambda _: None)

    assert "b" == found.winner
    assert ["peer two", "peer one"] == [one.peer for one in found.ratios]
    assert [1.2, 1.6] == pytest.approx([one.speed for one in found.ratios])
    assert all(one.lower <= one.speed <= one.upper for one in found.ratios)
    rounds = {entry.name: entry.rounds for entry in found.entries}
    assert rounds["c"] == FIRST_ROUNDS
    assert rounds["b"] == FIRST_ROUNDS * (1 + 2 + 4) + FINAL_ROUNDS
    assert rounds["peer one"] == FINAL_ROUNDS


def test_wrong_failing_and_banned_candidates_are_not_timed_however_fast() -> None:
    experiment = StandIn(
        {"peer": 2.0, "slow": 1.9, "wrong": 0.1, "fails": 0.1, "hung": 0.1}, {"wrong": "is NaN", "fails": "raises"}
    )

    found = race(experiment, POINT, {"hung": "hung for 60 s"}, lambda _: None)

    assert "slow" == found.winner
    assert {entry.name: entry.reason for entry in found.entries if entry.reason} == {
        "wrong": "is NaN",
        "fails": "fails (RuntimeError: out of resources)",
        "hung": "hung for 60 s",
    }
    assert [entry.seconds is None for entry in found.entries if entry.reason] == [True] * 3


def test_a_peer_that_fails_leaves_the_others() -> None:
    found = race(
        StandIn({"peer one": 1.0, "peer two": 2.0, "a": 1.0}, {"peer one": "raises"}), POINT, {}, lambda _: None
    )

    assert ["peer two"] == [one.peer for one in found.ratios]


def test_without_a_right_candidate_there_is_a_reason_and_no_winner() -> None:
    found = race(StandIn({"peer": 1.0, "a": 1.0}, {"a": "is NaN"}), POINT, {}, lambda _: None)

    assert ("", "no candidate is right", ()) == (found.winner, found.reason, found.ratios)


def test_a_broken_context_is_told_with_the_name_of_who_broke_it() -> None:
    with pytest.raises(BrokenContextError, match="illegal address") as caught:
        race(StandIn({"peer": 1.0, "a": 1.0}, {"a": "breaks"}), POINT, {}, lambda _: None)

    assert "a" == caught.value.name


def test_each_step_is_told_before_it_is_begun() -> None:
    told: list[str] = []

    race(StandIn({"peer": 1.0, "a": 1.0}), POINT, {}, told.append)

    assert ["", "peer", "a", ""] == told


def test_halving_ends() -> None:
    assert ["a"] == fastest_half({"a": 1.0, "b": 1.0}, ["a", "b"])
    assert ["a"] == fastest_half({"a": 1.0}, ["a"])
