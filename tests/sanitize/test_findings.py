from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.sanitize.findings import merged

if TYPE_CHECKING:
    from flopwatch.sanitize import Finding


def test_occurrences_of_a_fault_are_one_with_their_number(fault: Finding) -> None:
    again = replace(fault, what="program (4, 0, 0)", block=(4, 0, 0), address="4096", count=6)
    other = replace(fault, line=13)

    assert merged([fault, other, again]) == (replace(fault, count=30), other)
