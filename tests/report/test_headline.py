from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flopwatch.model import Mark
from flopwatch.report.headline import headline, reproduce

if TYPE_CHECKING:
    from tests.report.conftest import Gates

#: How the headline of each exit code begins.
BEGINNINGS = {
    0: ("Nothing",),
    1: ("Regressed: ",),
    2: ("Expired: ",),
    3: ("Undecided: ", "Interrupted "),
    4: ("Unfit: ",),
}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("laptop", 0),
        ("spilling", 0),
        ("clean", 0),
        ("identical", 0),
        ("waived", 0),
        ("slower", 1),
        ("broken", 1),
        ("concluded", 1),
        ("expired", 2),
        ("unsure", 3),
        ("interrupted", 3),
        ("unfit", 4),
    ],
)
def test_the_headline_says_what_the_exit_code_says(name: str, code: int, gates: Gates) -> None:
    result = getattr(gates, name)
    assert result.exit_code == code
    assert headline(result).startswith(BEGINNINGS[code])


def test_the_worst_case_is_named_with_its_change(gates: Gates) -> None:
    two = replace(gates.slower, verdicts=gates.slower.verdicts[1:3], suite=None)
    assert headline(two) == "Regressed: 2 cases slower (worst: Matmul[2048x2048x2048,float16,flopwatch], 1.50x slower)."


def test_conclusions_that_no_longer_hold_are_named(gates: Gates) -> None:
    lost = gates.concluded.lost
    assert headline(gates.concluded) == "Regressed: 1 conclusion no longer holds (L2Swizzle[flopwatch 8])."
    two = replace(gates.slower, suite=None, conclusions=lost * 2)
    assert headline(two).endswith("; 2 conclusions no longer hold (L2Swizzle[flopwatch 8] and 1 more).")


def test_doubt_is_counted_and_not_called_fine(gates: Gates) -> None:
    assert headline(gates.unsure) == "Undecided: 4 unsure, 1 the same, none proved slower."


def test_a_regression_is_told_even_where_the_machine_is_unfit(gates: Gates) -> None:
    both = replace(gates.broken, unfit="the GPU is used by another process")
    assert headline(both) == (
        "Regressed: 3 cases broken; 1 case not compared; the machine is unfit, and no time was judged."
    )


def test_a_suite_that_is_slower_as_a_whole_is_a_regression(gates: Gates) -> None:
    shifted = replace(gates.clean, suite=gates.slower.suite)
    assert shifted.exit_code == 1
    assert headline(shifted) == "Regressed: the suite as a whole is 1.03 % slower."


def test_a_waived_case_is_not_counted_as_slower(gates: Gates) -> None:
    assert headline(gates.waived) == "Nothing else got slower: 1 the same; 1 slower and waived."


def test_what_is_wrong_on_both_sides_is_said_beside_the_verdict(gates: Gates) -> None:
    wrong = replace(gates.laptop.verdicts[0], reason="wrong on both sides: error 12 eps, ceiling 8")
    assert headline(replace(gates.laptop, verdicts=(wrong,))).endswith("; 1 case wrong on both sides.")


def test_nothing_compared_is_undecided(gates: Gates) -> None:
    new = gates.broken.verdicts[-1]
    assert new.mark is None
    assert headline(replace(gates.broken, verdicts=(new,))) == "Undecided: no case could be compared."


def test_a_case_that_only_base_could_compile_is_undecided(gates: Gates) -> None:
    result = replace(gates.laptop, uncovered=gates.spilling.uncovered[1:])
    assert headline(result) == "Undecided: 1 case could be compiled on base and not on head."


def test_a_line_repeats_a_case_in_a_shell(gates: Gates) -> None:
    verdict = gates.slower.verdicts[1]
    assert verdict.mark is Mark.SLOWER
    assert reproduce(gates.slower, verdict) == (
        "flopwatch gate a1b2c3d4e5f6 0123456789ab -k 'Matmul[1024x1024x1024,float16,flopwatch]'"
    )
    quoted = replace(verdict, case=replace(verdict.case, values=("it's",)))
    assert reproduce(gates.clean, quoted) == """flopwatch gate a1b2c3d4e5f6 -k 'Matmul[it'"'"'s]'"""
