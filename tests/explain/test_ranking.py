from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.explain import ranking
from flopwatch.explain.ranking import briefs, in_words, is_suspect, ranked
from flopwatch.static.comparison import FactChange, Severity
from flopwatch.static.instructions import WORSE
from flopwatch.static.traffic import TRAFFIC_WORSE

if TYPE_CHECKING:
    from collections.abc import Sequence


def change(fact: str, base: str = "1", head: str = "2", severity: Severity = Severity.WARN) -> FactChange:
    return FactChange(
        kernel="k", device="h200", variant="", config="", fact=fact, base=base, head=head, severity=severity
    )


CONFIGURATION = change("configuration", "num_stages=3", "num_stages=1", Severity.NOTE)


def names(changes: Sequence[FactChange]) -> list[str]:
    return [entry.fact for entry in ranked(changes)]


def test_what_a_person_changed_goes_first_and_what_warns_before_what_differs() -> None:
    registers = change("registers", severity=Severity.NOTE)
    changes = [registers, change("occupancy"), change("spills"), change("tensor cores"), CONFIGURATION]
    assert names(changes) == ["configuration", "tensor cores", "spills", "occupancy", "registers"]


def test_a_failure_and_a_warning_of_findings_are_ranked_by_what_they_tell() -> None:
    changes = [change("spills", severity=Severity.FAIL), change("tensor cores"), change("pipelining")]
    assert names(changes) == ["tensor cores", "pipelining", "spills"]


def test_what_no_longer_compiles_goes_before_all() -> None:
    gone = change("compiles and fits", "yes", "no (OutOfResources: shared memory)", Severity.FAIL)
    assert names([CONFIGURATION, change("tensor cores"), gone]) == [
        "compiles and fits",
        "configuration",
        "tensor cores",
    ]
    assert in_words("k", [gone]) == "in k it no longer compiles or fits (OutOfResources: shared memory)"


def test_a_trial_that_no_longer_fits_is_no_more_than_a_warning() -> None:
    assert names([change("compiles and fits", "yes", "no (OutOfResources)"), CONFIGURATION])[0] == "configuration"


def test_what_only_differs_is_no_effect_of_what_a_person_changed() -> None:
    registers = change("registers", "168", "170", Severity.NOTE)
    assert in_words("k", [CONFIGURATION, registers]) == "num_stages=3 -> num_stages=1 in k"


def test_settings_are_told_once_by_the_configuration_that_has_them() -> None:
    stages = change("stages", "3", "1", Severity.NOTE)
    assert names([stages]) == ["stages"]
    assert names([stages, CONFIGURATION]) == ["configuration"]


def test_code_that_shows_in_no_number_is_left_out() -> None:
    assert ranked([change("code", "a", "b", Severity.NOTE)]) == []


def test_equal_changes_are_told_once() -> None:
    assert briefs([change("spills"), change("spills"), CONFIGURATION]) == [
        "num_stages=3 -> num_stages=1",
        "spills 1 -> 2",
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ([CONFIGURATION], "num_stages=3 -> num_stages=1 in k"),
        ([change("spills", "0 B", "96 B")], "in k its registers spill to local memory (0 B -> 96 B)"),
        (
            [change("occupancy", "50.0%", "25.0%"), CONFIGURATION],
            "num_stages=3 -> num_stages=1 in k: fewer of its warps are resident (50.0% -> 25.0%)",
        ),
        ([change("something new", "1", "2")], "in k something new (1 -> 2)"),
    ],
)
def test_the_sentence_names_what_was_changed_and_its_worst_effect(changes: list[FactChange], sentence: str) -> None:
    assert in_words("k", changes) == sentence


def test_notes_of_numbers_are_no_suspects() -> None:
    assert not is_suspect(change("registers", severity=Severity.NOTE))
    assert is_suspect(change("registers"))
    assert is_suspect(CONFIGURATION)


def test_whatever_instructions_and_launches_warn_of_has_plain_words_and_a_rank() -> None:
    """A finding that is new in `instructions.WORSE` or `TRAFFIC_WORSE` must be placed here too."""
    findings = {*WORSE, *TRAFFIC_WORSE}
    assert findings - set(ranking._PLAIN) == set()
    assert findings - set(ranking._TELLING) == set()


def test_what_leaves_its_tensors_goes_before_all_and_is_told_by_its_place() -> None:
    stray = change("out of bounds", "none", "load at k.py:7 ends 48 B past x", Severity.FAIL)
    assert names([CONFIGURATION, change("tensor cores"), stray])[0] == "out of bounds"
    assert in_words("k", [stray]) == "in k a launch leaves its tensors (load at k.py:7 ends 48 B past x)"


def test_failures_that_are_no_failed_launch_are_told_as_what_they_are() -> None:
    both = [change("spills", "0 B", "8 B", Severity.FAIL), change("tensor cores", "4 HGMMA", "none", Severity.FAIL)]
    assert in_words("k", both) == "in k it no longer runs on the tensor cores (4 HGMMA -> none)"


def test_a_lost_skip_goes_before_what_the_instructions_show() -> None:
    lost = change("dot flops", "1e+09 FLOPs", "1.88e+09 FLOPs, 1.88x")
    assert in_words("k", [change("loop"), lost]) == "in k it multiplies more (1e+09 FLOPs -> 1.88e+09 FLOPs, 1.88x)"


def test_another_name_is_told_as_such_and_explains_nothing() -> None:
    renamed = change("kernel", "old", "k", Severity.NOTE)
    assert briefs([renamed]) == ["was called old"]
    assert not is_suspect(renamed)
