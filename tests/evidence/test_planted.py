from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from evidence.edits import KERNELS
from evidence.planted import PLANTED
from evidence.refactorings import REFACTORINGS, Refactoring
from evidence.regressions import REGRESSIONS, UNTRIED, Regression, Sight

from flopwatch.errors import UsageError
from flopwatch.static.comparison import RULES
from flopwatch.static.traffic import TRAFFIC_WORSE
from flopwatch.suite import discover

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy the kernels."""
    shutil.copytree(ROOT / KERNELS, tmp_path / KERNELS)
    return tmp_path


def parsed(tree: Path) -> dict[str, str]:
    return {path.name: ast.dump(ast.parse(path.read_text(encoding="utf-8"))) for path in (tree / KERNELS).glob("*.py")}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=lambda planted: planted.name)
def test_everything_can_be_planted_into_the_present_kernels(tree: Path, planted: Regression | Refactoring) -> None:
    before = parsed(tree)
    for change in planted.changes:
        change.apply(tree)

    assert (parsed(tree) != before) is (planted.name != "comment")


def test_a_kernel_that_has_moved_on_makes_it_fail(tree: Path) -> None:
    path = tree / KERNELS / "matmul.py"
    path.write_text(path.read_text(encoding="utf-8").replace("tl.dot(a, b, accumulator)", "tl.dot(a, b)"))

    with pytest.raises(UsageError, match=r"matmul\.py has 0 places to edit"):
        PLANTED["float32-operands"].changes[0].apply(tree)


def test_there_are_enough_of_both_and_each_has_its_own_name() -> None:
    assert len(REGRESSIONS) >= 12
    assert len(REFACTORINGS) >= 10
    assert len(PLANTED) == len(REGRESSIONS) + len(REFACTORINGS)


def test_their_cases_are_declared_by_the_bundled_suites() -> None:
    pytest.importorskip("triton")
    declared = {case.id for suite in discover(ROOT / "benchmarks").suites.values() for case in suite.cases()}
    assert {case for planted in PLANTED.values() for case in planted.cases} <= declared


def test_what_is_seen_is_to_be_named_by_a_rule_of_where_it_is_seen() -> None:
    rules = {Sight.CODE: set(RULES) - set(TRAFFIC_WORSE), Sight.TRAFFIC: set(TRAFFIC_WORSE)}
    for regression in REGRESSIONS:
        if regression.sight is Sight.HOST:
            assert not regression.facts
        else:
            assert rules[regression.sight] & set(regression.facts)


def test_what_is_left_untried_are_rules() -> None:
    assert UNTRIED.keys() <= set(RULES)
