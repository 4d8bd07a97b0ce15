from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from evidence import document, ledger, power
from evidence.document import PAGE, Findings, blocks
from evidence.figures import plots
from evidence.proportion import interval
from evidence.replay import Scheme
from evidence.samples import Samples, further_recordings, recordings
from evidence.svg import Plot

from flopwatch.stats import Design, fit_prior
from flopwatch.units import short_commit

if TYPE_CHECKING:
    from pathlib import Path

KEPT = recordings()


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def generated(page: str) -> dict[str, str]:
    found = re.findall(r"<!-- (\w+):begin -->\n(.*?)<!-- \1:end -->", page, re.DOTALL)
    return {name: text.strip() for name, text in found}


def test_the_page_has_a_place_for_every_finding(page: str) -> None:
    assert generated(page).keys() == blocks(Findings(ledger=None, power=None, rivals=None)).keys()


def test_findings_are_tables_and_plots(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "CHUNK", 2)
    monkeypatch.setattr(power, "CHUNK", 2)
    monkeypatch.setattr(power, "AUDIT", 20)
    findings = Findings(ledger=ledger.make(recording, 2), power=power.make(recording, 2), rivals=None)
    parts = blocks(findings)

    assert "ran every case of commit 0123456789ab in turns" in parts["origin"]
    assert "| 0.5 % | 2 | **0** |" in parts["ledger"]
    assert "of the 4 cases from 100 µs up have" in parts["noise"]
    assert re.search(r"\| below 10 µs \(2\) \| 0 % \(0 %\) \|.* 100 % \(100 %\) \|", parts["power"])
    assert len(re.findall(r"^\| Suite \d float16 \|", parts["cases"], re.MULTILINE)) == 8
    assert parts["spins"] == "No kernels that spin on a GPU have been recorded yet."
    assert plots(findings.ledger, findings.power).keys() == {
        "evidence-noise.svg",
        "evidence-levels.svg",
        "evidence-power.svg",
    }


def test_the_bars_of_detection_enclose_every_case_of_a_class_with_what_its_runs_leave_open(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[tuple[float, float]] = []
    monkeypatch.setattr(Plot, "bar", lambda _plot, _x, low, high, _colour: bars.append((low, high)))
    found = power.make(recording, 1)
    first = min(range(len(found.cases)), key=lambda index: found.time_us[index])
    times_found = tuple(6 if index == first else 8 for index in range(len(found.cases)))
    plots(None, replace(found, detections=(replace(found.detections[0], runs=10, found=times_found),)))

    assert bars[0] == (interval(6, 10)[0], interval(8, 10)[1])
    assert set(bars[1:]) == {interval(8, 10)}


def test_the_page_says_what_the_kept_findings_say(page: str) -> None:
    findings = Findings(ledger=None, power=None, rivals=None)
    if KEPT:
        findings = Findings.read(KEPT[-1].parent, KEPT[-1].stem)
        assert None not in (findings.ledger, findings.power, findings.rivals)

    assert generated(page) == {name: text.strip() for name, text in blocks(findings).items()}
    for name, text in plots(findings.ledger, findings.power).items():
        assert (PAGE.parent / "images" / name).read_text(encoding="utf-8") == text


def test_kernels_that_spin_are_told_of_with_their_gpu_a_line_to_type_and_what_so_few_pairs_cannot_show(
    recording: Path,
) -> None:
    origin = replace(Samples.load(recording).origin(recording), pairs=8, command="record -k Add[16 or Norm --pairs 8")
    spin = power.SpinDetection(
        case="Add[16,flopwatch]",
        time_us=4.0,
        asked=0.01,
        calibrated=0.01,
        measured=0.01,
        pairs=8,
        margin=0.0,
        runs=300,
        found=300,
    )
    findings = replace(
        power.make(recording, 1),
        spin_origins=(origin, replace(origin, pairs=9, command="record")),
        spins=(spin, replace(spin, margin=0.005)),
    )
    text = blocks(Findings(ledger=None, power=findings, rivals=None))["spins"]

    where = f"One {origin.gpu}, {origin.date}, commit {short_commit(origin.commit)}"
    assert text.startswith(f"{where}: 8 pairs of each slowdown,")
    assert f"{where}: 9 pairs of each slowdown," in text
    assert "\n$ record -k 'Add[16 or Norm' --pairs 8\n" in text
    assert "1 cases. A run draws the slowed case from the 8 pairs or more that" in text
    assert "fewer than 31.2 % of pairs may be missing" in text


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_kept_findings_are_those_of_the_recording_and_of_the_gate(path: Path) -> None:
    findings = Findings.read(path.parent, path.stem)
    assert findings.ledger is not None
    assert findings.power is not None
    assert findings.rivals is not None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    origins = (findings.ledger.origin, findings.power.origin, findings.rivals.origin)

    assert {origin.sha256 for origin in origins} == {digest}
    assert {origin.sha256 for origin in findings.ledger.further} == {
        hashlib.sha256(other.read_bytes()).hexdigest() for other in further_recordings(path)
    }
    assert findings.ledger.design == findings.power.design == Design()


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_kept_figures_come_out_again(path: Path) -> None:
    findings = Findings.read(path.parent, path.stem)
    assert findings.ledger is not None
    samples = Samples.load(path)
    table = samples.log_ratios()
    first = ledger.first_stage(table, Design(), 20, Scheme.SHUFFLED)
    clean = ledger.clean_runs(table, Design(), 0.005, 20, 0)
    noise = ledger.noise(samples, Design(), further=[Samples.load(other) for other in further_recordings(path)])

    assert noise == findings.ledger.cases
    assert fit_prior(table).deviation == pytest.approx(findings.ledger.prior.deviation)
    assert (clean.slower, clean.faster) == (0, 0)
    assert first.flagged <= 5  # of 20, where 1 is expected


def test_names_leave_out_what_is_the_same_everywhere() -> None:
    assert document._name("Attention[4x8x1024x64,full,flopwatch]") == "Attention 4x8x1024x64 full"
