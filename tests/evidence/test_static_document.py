from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from evidence.page import filled
from evidence.refactorings import REFACTORINGS
from evidence.regressions import REGRESSIONS, Sight
from evidence.static_document import MEASURED_DEVICE, PAGE, RESULTS, Calibration, blocks, is_named, powerless, rules
from evidence.static_records import Compilation, Measurement, Slowdown
from tests.evidence.test_static_records import EMPTY, FACT, MACHINE, SPILLS

from flopwatch.model import from_json
from flopwatch.static.comparison import Severity

if TYPE_CHECKING:
    from pathlib import Path

KEPT = Calibration.read()
FIRST = REGRESSIONS[0]
QUIET = REFACTORINGS[0]
#: Spills on a regression and on a refactoring.
COMPILED = (
    EMPTY.added("", {case: [FACT] for case in (FIRST.case, *QUIET.cases)})
    .added(FIRST.name, {FIRST.case: [SPILLS]})
    .added(QUIET.name, {case: [SPILLS] for case in QUIET.cases})
)


def measured(**log_ratios: float) -> Measurement:
    slowdowns = tuple(
        Slowdown(name=name.replace("_", "-"), case="", log_ratios=(value,) * 5) for name, value in log_ratios.items()
    )
    return Measurement(
        commit="c" * 40, kernels="t", date="2026-11-22", machine=MACHINE, commands=("measure",), slowdowns=slowdowns
    )


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*-triton-*.json")), ids=lambda path: path.stem)
def test_the_rules_name_most_of_what_the_kept_facts_show_and_no_refactoring(path: Path) -> None:
    found = from_json(path.read_bytes(), Compilation)
    shown = [planted for planted in REGRESSIONS if planted.sight is Sight.CODE]
    missed = [planted.name for planted in shown if not is_named(found, planted)]

    assert len(missed) <= (0 if found.device == MEASURED_DEVICE else len(shown) // 4)
    assert [planted.name for planted in REFACTORINGS if found.findings(planted.name)] == []
    assert len(shown) >= 12


def test_facts_of_several_devices_and_of_the_oldest_triton_are_kept() -> None:
    kept = [(each.device, each.versions["triton"]) for each in KEPT.compilations]
    assert kept == [("h200", "3.7.1"), ("h200", "3.6.0"), ("a100", "3.7.1"), ("b200", "3.7.1")]


def test_what_launches_read_and_write_names_what_no_instruction_shows() -> None:
    newest, *_ = KEPT.compilations
    seen = [planted for planted in REGRESSIONS if planted.sight is Sight.TRAFFIC]

    assert ["no-swizzle", "no-causal-skip"] == [planted.name for planted in seen if is_named(newest, planted)]
    assert newest.head_launches.keys() == newest.heads.keys()


def test_everything_that_fails_was_measured_to_be_slower_where_it_was_measured() -> None:
    failing = {
        planted.name
        for compilation in KEPT.compilations
        for planted in REGRESSIONS
        if any(change.severity is Severity.FAIL for change in compilation.findings(planted.name))
    }

    assert failing == {"no-room", "full-precision"}
    assert {name for name in failing if KEPT.is_slower(name) is False} == set()


def test_no_rule_without_power_is_left() -> None:
    assert powerless(KEPT) == ()


def test_the_page_has_what_is_kept() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, blocks(KEPT)) == page


def test_a_rule_that_fires_on_more_that_is_not_slower_than_is_has_no_power() -> None:
    (spills,) = [rule for rule in rules(Calibration(compilations=(COMPILED,))) if rule.fact == "spills"]
    assert spills.fired == (FIRST.name, QUIET.name)
    assert (spills.slower, spills.not_slower, spills.precision) == ((), (QUIET.name,), 0.0)
    assert "spills" in powerless(Calibration(compilations=(COMPILED,)))

    both = Calibration(compilations=(COMPILED,), measurement=measured(one_stage=0.1))
    (spills,) = [rule for rule in rules(both) if rule.fact == "spills"]
    assert (spills.slower, spills.precision, spills.may_fail) == ((FIRST.name,), 0.5, False)
    assert spills.slowdowns == pytest.approx((math.expm1(0.1),))
    assert "spills" not in powerless(both)


@pytest.mark.parametrize(("slowdowns", "borne_out"), [((0.1, 0.1, 0.1), True), ((0.1, 0.1, 0.01), False)])
def test_a_rule_may_fail_by_itself_after_three_slowdowns(slowdowns: tuple[float, ...], borne_out: bool) -> None:
    names = [planted.name for planted in REGRESSIONS[:3]]
    compiled = EMPTY.added("", {planted.case: [FACT] for planted in REGRESSIONS})
    for planted in REGRESSIONS[:3]:
        compiled = compiled.added(planted.name, {planted.case: [SPILLS]})
    measurement = measured(**dict(zip((name.replace("-", "_") for name in names), slowdowns, strict=True)))
    found = rules(Calibration(compilations=(compiled,), measurement=measurement))

    assert [rule.fact for rule in found if rule.may_fail] == (["spills"] if borne_out else [])


def test_rules_that_nothing_tries_are_dropped_unless_it_is_said_why() -> None:
    none = Calibration(compilations=(EMPTY,))
    assert "spills" in powerless(none)
    assert "tma loads" not in powerless(none)


def test_the_tables_say_what_was_measured() -> None:
    compiled = replace(COMPILED, heads={})
    for planted in (*REGRESSIONS, *REFACTORINGS):
        compiled = compiled.added("", {case: [FACT] for case in planted.cases})
        compiled = compiled.added(planted.name, {case: [FACT] for case in planted.cases})
    compiled = compiled.added(FIRST.name, {FIRST.case: [SPILLS]})
    text = blocks(Calibration(compilations=(compiled,), measurement=measured(one_stage=math.log(1.25))))

    assert "One NVIDIA H200, 2026-11-22, driver 580.159.04, triton 3.6.0; commit cccccccccccc:" in text["measured"]
    (row,) = [line for line in text["regressions"].splitlines() if line.startswith("| `one-stage`")]
    assert row.endswith("| no; found are spills | +25.0 % (+25.0 to +25.0 %) |")
    (row,) = [line for line in text["rules"].splitlines() if line.startswith("| spills ")]
    assert (
        row == "| spills | warns, fails beside tensor cores | 1 | 1 of 1 | 100 % | 0 % | 25 to 25 %, median 25 % | no |"
    )
    assert "**0 of 20** planted regressions are named" in text["summary"]
