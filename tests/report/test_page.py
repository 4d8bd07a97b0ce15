from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.report.page import page
from flopwatch.report.reported import Origin, Reported

if TYPE_CHECKING:
    from tests.report.conftest import Gates

    from flopwatch.gate import GateResult

GOLDEN = Path(__file__).parent / "golden"


def with_samples(result: GateResult) -> GateResult:
    """Give the cases pairs of their own."""
    logs = tuple(
        replace(log, log_ratios={verdict.case.id: 0.001 * (number % 5) for verdict in result.verdicts})
        for number, log in enumerate(result.pairs)
    )
    return replace(result, pairs=logs)


@pytest.mark.parametrize("name", ["laptop", "slower"])
def test_the_page_is_the_golden_file(name: str, gates: Gates) -> None:
    origin = Origin(pull_request=7, sha="0123456789abcdef0123456789abcdef01234567")
    text = page([Reported(result=with_samples(getattr(gates, name)), origin=origin)])
    assert text == (GOLDEN / f"page-{name}.html").read_text(encoding="utf-8")


def test_a_page_loads_nothing_and_runs_nothing(gates: Gates) -> None:
    text = page([Reported(result=with_samples(gates.slower)), Reported(result=None, refusal="no JSON")])
    assert not [word for word in ("<script", "<link", "<img", "src=", "href=", "url(", "@import") if word in text]
    assert "default-src 'none'" in text


def test_a_page_has_both_schemes_and_works_by_keyboard(gates: Gates) -> None:
    text = page([Reported(result=gates.slower)])
    assert "prefers-color-scheme: dark" in text
    assert text.count('class="scroll"') == text.count('tabindex="0"') > 0
    assert ":focus-visible" in text


def test_every_timed_case_is_in_the_plot_of_effects_and_the_needy_have_their_pairs(gates: Gates) -> None:
    text = page([Reported(result=with_samples(gates.slower))])
    assert text.count('class="interval"') == 4
    assert text.count("<figure>") == 3
    assert "pair 31, confirm: " in text


def test_what_an_unfit_machine_measured_is_not_drawn(gates: Gates) -> None:
    assert "<svg" not in page([Reported(result=with_samples(gates.unfit))])
