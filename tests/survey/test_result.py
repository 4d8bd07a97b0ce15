from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flopwatch.model import Case, Failure, from_json, to_json
from flopwatch.static.comparison import compare_facts
from flopwatch.static.recorder import Autotune
from flopwatch.survey import Drift, Gap, Held, Survey

if TYPE_CHECKING:
    from flopwatch.model import KernelFacts

CASE = Case(suite="Matmul", values=("512x512x512", "float16", "flopwatch"))
GAP = Gap(side="head", device="h200", case=CASE, cause="x.item() needs a value")
DRIFT = Drift(kernel="k", device="h200", variant="", config="", fact="registers", held="1", found="2")
TOO_LARGE = Failure(kind="OutOfResources", message="shared memory")


@pytest.fixture
def plain(fact: KernelFacts) -> Survey:
    return Survey(
        base=None,
        head="working tree",
        devices=("h200",),
        autotune=Autotune.ALL,
        versions={"triton": "3.7.1"},
        cases=1,
        facts=(fact,),
    )


def compared(plain: Survey, head: KernelFacts) -> Survey:
    return replace(
        plain, base="0" * 40, base_facts=plain.facts, facts=(head,), fact_changes=compare_facts(plain.facts, [head])
    )


def test_what_compiles_and_fits_is_fine(plain: Survey) -> None:
    assert plain.exit_code == 0


def test_a_launch_that_does_not_fit_fails_and_a_trial_does_not(plain: Survey, fact: KernelFacts) -> None:
    failed = replace(fact, config="BLOCK_M=999", failure=TOO_LARGE)
    assert replace(plain, facts=(fact, failed)).exit_code == 1
    assert replace(plain, facts=(fact, replace(failed, chosen=False))).exit_code == 0


def test_of_two_sides_only_what_changed_fails(plain: Survey, fact: KernelFacts) -> None:
    failed = replace(fact, failure=TOO_LARGE)
    assert compared(plain, failed).exit_code == 1
    assert compared(replace(plain, facts=(failed,)), failed).exit_code == 0
    assert compared(plain, replace(fact, registers=255, code_fingerprint="other")).exit_code == 0


def test_a_drift_fails_and_another_compiler_decides_nothing(plain: Survey) -> None:
    held = Held(path="facts.json")
    assert replace(plain, held=held).exit_code == 0
    assert replace(plain, held=replace(held, drifts=(DRIFT,))).exit_code == 1
    assert replace(plain, held=replace(held, refusal="it is of triton 3.6.0")).exit_code == 3


def test_a_launch_that_never_fitted_is_held_like_any_other_fact(plain: Survey, fact: KernelFacts) -> None:
    assert replace(plain, facts=(replace(fact, failure=TOO_LARGE),), held=Held(path="facts.json")).exit_code == 0


def test_nothing_compiled_decides_nothing(plain: Survey) -> None:
    assert replace(plain, facts=(), gaps=(GAP,)).exit_code == 3


def test_a_case_that_only_base_could_compile_decides_nothing(plain: Survey, fact: KernelFacts) -> None:
    both = compared(plain, fact)
    assert replace(both, gaps=(GAP,)).exit_code == 3
    assert replace(both, gaps=(replace(GAP, side="base"), GAP)).exit_code == 0
    assert replace(both, gaps=(replace(GAP, side="base", device="a100"), GAP)).exit_code == 3
    assert replace(plain, gaps=(GAP,)).exit_code == 0


def test_a_survey_is_read_again(plain: Survey, fact: KernelFacts) -> None:
    survey = replace(
        compared(plain, replace(fact, failure=TOO_LARGE)), gaps=(GAP,), held=Held(path="f", drifts=(DRIFT,))
    )
    assert from_json(to_json(survey), Survey) == survey
