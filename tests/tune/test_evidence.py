from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from evidence import tuning
from evidence.tuning import NOTHING, FirstCall, Tuning
from tests.tune.test_table import CASE, FASTER, OLD, RESULT

from flopwatch.model import Case, from_json, to_json
from flopwatch.tune.result import By, Regret

if TYPE_CHECKING:
    from pathlib import Path

TUNED = replace(
    CASE,
    case=Case(suite="TunedAdd", values=("1000", "float32", "autotune")),
    regrets=(
        Regret(by=By.AUTOTUNER, config=OLD, seconds=1e-5, speed=FASTER),
        Regret(by=By.FIRST, config=OLD, seconds=1e-5, speed=FASTER),
        Regret(by=By.PROVIDER, name="heuristics", seconds=1e-5, speed=None),
    ),
)


def call(rule: str, cold: float, warm: float) -> FirstCall:
    case = replace(TUNED.case, values=("1000", "float32", rule))
    return FirstCall(case=case, cold_seconds=(9.0, cold, 0.1), warm_seconds=(warm,) * 3, later_seconds=1e-5)


RECORDED = Tuning(
    searches=(replace(RESULT, cases=(TUNED,)),),
    first_calls=(call("autotune", 4.25, 0.0345), call("heuristics", 0.75, 0.00125)),
)


def test_the_page_has_what_the_newest_recording_says_or_that_there_is_none(tmp_path: Path) -> None:
    page = tmp_path / "tune.md"
    page.write_text(tuning.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    newest = tuning.newest()
    tuning.write_page(from_json(newest.read_bytes(), Tuning) if newest else None, page)
    assert page.read_text(encoding="utf-8") == tuning.PAGE.read_text(encoding="utf-8")


def test_without_a_recording_no_number_is_shown(tmp_path: Path) -> None:
    page = tmp_path / "tune.md"
    page.write_text("<!-- tuning:begin -->\n| 1.2x |\n<!-- tuning:end -->\n", encoding="utf-8")
    tuning.write_page(None, page)
    assert page.read_text(encoding="utf-8") == f"<!-- tuning:begin -->\n{NOTHING}\n<!-- tuning:end -->\n"


def test_a_row_tells_what_a_rule_costs_and_loses() -> None:
    rows = list(tuning.lines(RECORDED))[-5:]
    assert rows == [
        "| TunedAdd[1000,float32] | autotune | B=64 num_warps=4 | 4.250 s | 34.50 ms | 1.051x (1.041x to 1.062x) |",
        "| TunedAdd[1000,float32] | heuristics | by its rule | 750.0 ms | 1.250 ms | not measured |",
        "",
        (
            "- autotune: the first call takes 4.250 s to 4.250 s, 34.50 ms to 34.50 ms where everything is compiled; "
            "the search's choice is at most 1.051x as fast, at TunedAdd[1000,float32]"
        ),
        "- heuristics: not measured",
    ]


def test_a_rule_that_is_right_loses_nothing() -> None:
    right = replace(TUNED, chosen=OLD, regrets=(Regret(by=By.AUTOTUNER, config=OLD, seconds=1e-5),))
    rows = list(tuning.lines(replace(RECORDED, searches=(replace(RESULT, cases=(right,)),))))
    assert rows[-5].endswith("| the best itself |")
    assert "1.000x as fast" in rows[-2]


def test_a_recording_is_read_as_it_was_written() -> None:
    assert from_json(to_json(RECORDED), Tuning) == RECORDED


def test_a_recording_needs_a_file_to_go_to() -> None:
    with pytest.raises(SystemExit) as left:
        tuning.main([])
    assert left.value.code == 2


@pytest.mark.gpu
@pytest.mark.parametrize("rule", ["autotune", "heuristics"])
def test_on_a_gpu_a_first_call_costs_more_than_a_later_one(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "REPEATS", 1)
    found = tuning.first_call(Case(suite="TunedAdd", values=("1048576", "float32", rule)))
    assert found.cold_seconds[0] > found.warm_seconds[0] > found.later_seconds > 0


def test_a_recording_that_was_not_ended_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product = replace(TUNED, case=Case(suite="TunedMatmul", values=("16x4096x4096", "float16", "autotune")))
    searches = tuple(replace(RESULT, cases=(case,)) for case in (TUNED, product))
    out = tmp_path / "tuning.json"
    out.write_bytes(to_json(replace(RECORDED, searches=searches)))
    asked: list[Case] = []

    def first_call(case: Case) -> FirstCall:
        if asked:
            raise KeyboardInterrupt
        asked.append(case)
        return replace(call("autotune", 2.0, 0.5), case=case)

    monkeypatch.setattr(tuning, "first_call", first_call)
    monkeypatch.setattr(tuning, "run_tune", None)

    with pytest.raises(KeyboardInterrupt):
        tuning.record(out)

    kept = from_json(out.read_bytes(), Tuning)
    assert asked == [product.case]
    assert [each.case for each in kept.first_calls] == [*(each.case for each in RECORDED.first_calls), product.case]
    assert "not measured | not measured" in [*tuning.lines(kept)][-4]
