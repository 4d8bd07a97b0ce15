from __future__ import annotations

import pytest

from flopwatch.pattern import matches, pattern_problem, specificity

CASE = "Attention[2x8x512x64,lengths,float16,flopwatch]"


@pytest.mark.parametrize(
    "pattern",
    ["*", "Attention*", "Attention*lengths*", "Attention[*]", "*[2x8x512x64,*", "Attention[?x8x512x64,*]", CASE],
)
def test_a_pattern_names_what_it_spells(pattern: str) -> None:
    assert matches(pattern, CASE)
    assert pattern_problem(pattern) == ""


@pytest.mark.parametrize("pattern", ["attention*", "Matmul*", "Attention[2x8]", "Attention", "lengths", ""])
def test_a_pattern_names_nothing_else(pattern: str) -> None:
    assert not matches(pattern, CASE)


def test_brackets_are_no_sets_of_characters() -> None:
    assert matches("Add[1]", "Add[1]")
    assert not matches("Add[1]", "Add1")
    assert not matches("Add[!1]*", "Add2")


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "is blank"),
        (" \t", "is blank"),
        ("Matmul\n*", "has a character that no case's name has"),
        ("Mat\u202emul*", "has a character that no case's name has"),
        ("Matmul", "matches no case"),
        ("Matmul[16", "matches no case"),
        ("mat mul*", "matches no case"),
        ("2x2*", "matches no case"),
        ("benchmarks/matmul.py*", "matches no case"),
    ],
)
def test_a_pattern_that_can_match_nothing_is_told_so(pattern: str, problem: str) -> None:
    assert problem in pattern_problem(pattern)


def test_a_pattern_that_spells_out_more_is_more_specific() -> None:
    patterns = [CASE, "*", "Attention*lengths*", "Attention*"]

    assert sorted(patterns, key=specificity) == ["*", "Attention*", "Attention*lengths*", CASE]


def test_many_stars_are_matched_without_backtracking() -> None:
    # Without atomic groups this takes longer than the universe has.
    assert not matches("*a" * 60 + "b", "a" * 4000)
