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


def test_broken_cases_need_a_look_without_a_time_too(gates: Gates) -> None:
    before, _, _ = page([Reported(result=gates.broken)]).partition("<caption>All cases")
    assert before.count('<td class="broken">') == 3


def test_every_timed_case_is_in_the_plot_of_effects_and_the_needy_have_their_pairs(gates: Gates) -> None:
    text = page([Reported(result=with_samples(gates.slower))])
    assert text.count('class="interval"') == 4
    assert text.count("<figure>") == 3
    assert "pair 31, confirm: " in text


def test_what_an_unfit_machine_measured_is_not_drawn(gates: Gates) -> None:
    assert "<svg" not in page([Reported(result=with_samples(gates.unfit))])


def test_a_roofline_is_drawn_and_told_in_numbers(gates: Gates) -> None:
    text = page([Reported(result=gates.clean)])
    assert text.count("<h2>Roofline</h2>") == 1
    assert 'aria-label="Roofline of the NVIDIA H200: TFLOPS of 5 cases, base and head, by FLOPs a byte"' in text
    assert "A square is beyond the axes. Not drawn: 41 cases without a time.</p>" in text
    told = "Matmul[4096x4096x4096,float16,flopwatch]: same: base 231.4 µs, 593.9 TFLOPS, 60.0 % of the roofline; "
    assert text.count(told) == 2


@pytest.mark.parametrize("name", ["laptop", "unfit", "identical"])
def test_where_nothing_was_timed_there_is_no_roofline_and_no_word_of_one(name: str, gates: Gates) -> None:
    text = page([Reported(result=getattr(gates, name))])
    assert "roofline" not in text.lower()


def test_a_result_of_before_the_roofline_says_what_it_lacks(gates: Gates) -> None:
    old = tuple(replace(verdict, flops=None, bytes_moved=None) for verdict in gates.slower.verdicts)
    text = page([Reported(result=replace(gates.slower, verdicts=old))])
    assert "<h2>Roofline</h2>" not in text
    why = "No roofline: no case has a time, FLOPs and bytes. Not drawn: 4 cases without FLOPs or bytes."
    assert f'<p class="quiet">{why}</p>' in text
    assert text.count("<svg") == 1


def test_a_gpu_whose_peaks_are_not_known_has_no_roofline(gates: Gates) -> None:
    text = page([Reported(result=replace(gates.slower, gpu="NVIDIA <L4>"))])
    assert "<h2>Roofline</h2>" not in text
    assert "No roofline: the peaks of the NVIDIA &lt;L4&gt; are not known." in text


def test_conclusions_are_in_a_fold_that_is_open_where_one_is_lost(gates: Gates) -> None:
    text = page([Reported(result=gates.concluded)])
    fold = text.partition("<details open><summary>Conclusions of studies</summary>\n<pre>")[2].partition("</pre>")[0]
    assert [line.partition(":")[0] for line in fold.splitlines()] == [
        "no longer holds",
        "unsure",
        "unsure",
        "holds on neither side",
        "holds",
        "unchanged",
    ]
    fine = replace(gates.concluded, conclusions=gates.concluded.conclusions[:1])
    assert "<details><summary>Conclusions of studies</summary>" in page([Reported(result=fine)])
    assert "Conclusions of studies" not in page([Reported(result=gates.clean)])
