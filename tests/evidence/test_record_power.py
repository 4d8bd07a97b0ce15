from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, cast

import pytest
from evidence import record_power
from evidence.record_power import Calibration, Turns, calibrate, record_pair, turned
from evidence.slowed import TURNS_VARIABLE

from flopwatch.measure.pair import PairSample
from flopwatch.measure.protocol import Method, Plan, Prepared
from flopwatch.model import Case, Choice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flopwatch.measure.client import Code, Worker
    from flopwatch.measure.nvml import Watch

CASE = Case(suite="Add", values=("16", "flopwatch"))
PLAN = Plan(method=Method.GRAPH, calls=4, input_sets=4)


class Slot:
    """Stands in for a worker: a call takes 20 us, a turn 5 ns, and reads its turns when it is prepared."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._now = 0

    def prepare(self, case: Case, plan: Plan | None = None, pins: Sequence[Choice] = (), *, lent: str = "") -> Prepared:
        assert not lent
        self._now = json.loads(self._turns.path.read_text(encoding="utf-8")).get(case.id, 0)
        return Prepared(plan=plan or PLAN, choices=tuple(pins))

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        del case
        return (20e-6 + 5e-9 * self._now,) * samples

    launch = visit

    def lend(self, _case: Case, _to: Worker) -> str:
        return ""

    def place(self, _case: Case) -> None:
        pass

    def release(self, _case: Case) -> None:
        pass


@pytest.fixture
def files(tmp_path: Path) -> tuple[Turns, Turns]:
    return Turns(tmp_path / "0.json"), Turns(tmp_path / "1.json")


def slot(turns: Turns) -> Worker:
    return cast("Worker", Slot(turns))


def test_a_turn_is_calibrated_behind_the_case_itself(files: tuple[Turns, Turns]) -> None:
    found = calibrate((slot(files[0]), slot(files[1])), CASE, (), files)

    assert found.base_seconds == pytest.approx(20e-6)
    assert found.turn_seconds == pytest.approx(5e-9)
    assert found.linear == pytest.approx(1.0)
    assert found.turns(0.01) == 40
    assert found.says(0.00255)["calibrated"] == pytest.approx(0.0025)  # whole turns
    assert [file.path.read_text(encoding="utf-8") for file in files] == ["{}", "{}"]


@pytest.mark.parametrize("head", [0, 1])
def test_head_is_the_second_slot_of_what_is_recorded_whoever_was_head(
    files: tuple[Turns, Turns], head: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.randbits", lambda _: head)
    calibration = Calibration(pins=(), plan=PLAN, base_seconds=20e-6, turn_seconds=5e-9, linear=1.0)
    planted = [(CASE, 0.01), (CASE, 0.05)]
    slots = (slot(files[0]), slot(files[1]))
    found = record_pair(slots, files, planted, {CASE: calibration}, cast("Watch", Meter()))

    assert {name: sample.log_ratio for name, sample in found.items()} == pytest.approx(
        {f"{CASE.id} +1 %": math.log(1.01), f"{CASE.id} +5 %": math.log(1.05)}
    )


class Meter:
    """Stands in for a GPU at one clock."""

    def clock(self) -> int:
        return 1980

    def reason_bits(self) -> int:
        return 0


def test_slots_that_change_places_turn_the_sign() -> None:
    sample = PairSample(case=CASE, plan=PLAN, seconds=((((1.0,),),), (((2.0,),),)))

    assert turned(sample).log_ratio == -sample.log_ratio


def test_each_side_reads_a_file_of_its_own(files: tuple[Turns, Turns], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setenv(TURNS_VARIABLE, "")

    class Nursery:
        def __init__(self, _code: object) -> None:
            seen.append(os.environ[TURNS_VARIABLE])

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(record_power, "Nursery", Nursery)
    for file in files:
        with file.nursery(cast("Code", None)):
            pass

    assert seen == [str(file.path) for file in files]
