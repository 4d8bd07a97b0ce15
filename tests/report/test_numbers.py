from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.report.numbers import same_bits

if TYPE_CHECKING:
    from tests.report.conftest import Gates


def test_equal_bits_are_equal_on_every_seed(gates: Gates) -> None:
    verdict = gates.clean.verdicts[0]
    assert same_bits(verdict)
    assert not same_bits(replace(verdict, head=replace(verdict.head, bits=("00", "01", "ff"))))


def test_without_a_gpu_the_numbers_themselves_tell(gates: Gates) -> None:
    assert same_bits(gates.laptop.verdicts[0])
    assert not same_bits(gates.spilling.verdicts[0])


def test_equal_infinities_are_no_equal_results(gates: Gates) -> None:
    (verdict,) = gates.laptop.verdicts
    assert verdict.head.numbers is not None
    side = replace(verdict.head, numbers=replace(verdict.head.numbers, finite=False, max_diff=None, max_diff_eps=None))
    assert not same_bits(replace(verdict, base=side, head=side))


def test_a_failure_returns_nothing(gates: Gates) -> None:
    assert [same_bits(verdict) for verdict in gates.broken.verdicts] == [True, False, False, False, False, False]
