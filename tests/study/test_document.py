from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from evidence import l2_swizzle
from evidence.l2_swizzle import HIT_RATE, Counted, Measurement
from evidence.l2_swizzle_document import PAGE, Findings, blocks, plots, write
from evidence.memory_trace import Reading, Trace
from tests.study.test_report import STUDY, measured

from flopwatch.errors import MachineError
from flopwatch.model import from_json, to_json
from flopwatch.static import find_device
from flopwatch.study.decisions import speed_between
from flopwatch.study.result import Round

if TYPE_CHECKING:
    from pathlib import Path

LINES = ("flopwatch none", "flopwatch 8", "torch")
AT = "12288"


def measurement() -> Measurement:
    entries = tuple(measured(line, AT, milliseconds) for line, milliseconds in zip(LINES, (5.8, 5.7, 5.6), strict=True))
    turns: dict[str, tuple[float, ...]] = {entry.case.id: (entry.seconds or 0.0,) * 2 for entry in entries}
    study = replace(
        STUDY, lines=LINES, points=(AT,), measured=entries, rounds=(Round(seconds=9.0, turns=turns, faults={}),) * 8
    )
    here, there = Reading(tensors=0, cached=0, device=0), Reading(tensors=0, cached=0, device=4 << 20)
    return Measurement(
        measured="2026-11-22T00:00:00+00:00",
        study=study,
        counted=(
            Counted(line="flopwatch 8", size=AT, kernel="k", values={HIT_RATE: 81.2, "dram__bytes_read.sum": 5e9}),
        ),
        memory=(Trace(what="a call of tilelang 10", times=4, before=here, first=here, last=there, released=there),),
        failures={"counters at 20480": "the counters cannot be read\n  why: ..."},
    )


def test_the_page_is_what_the_findings_say(tmp_path: Path) -> None:
    page = tmp_path / PAGE.name
    shutil.copy(PAGE, page)
    findings = Findings.read()
    write(findings, page)
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
    for name, plot in plots(findings).items():
        assert plot == (PAGE.parent / f"l2_swizzle-{name}.svg").read_text(encoding="utf-8")


def test_a_measurement_answers() -> None:
    found = blocks(replace(Findings.read(), measurement=measurement()))
    assert "| 12288 | 8 | 1.72 % faster" in found["answer"]
    assert "- holds: 8 is the best" in found["answer"]
    assert "| flopwatch 8 | 350.9 |" in found["measured"]
    assert "- counters at 20480: `the counters cannot be read" in found["measured"]
    assert "| flopwatch 8 | 12288 | 81.2 % | 5.0 | 4.9 | 18 % |" in found["counted"]
    assert "| a call of tilelang 10 | 4 | 0.00 | 0.00 | 1.00 | 0.00 | 0.00 | 4.00 |" in found["memory"]


def test_a_measurement_is_drawn() -> None:
    drawn = plots(replace(Findings.read(), measurement=measurement()))
    assert list(drawn) == ["predicted", "measured"]
    assert "flopwatch none: 12288: 344.8" in drawn["measured"]


def test_what_the_page_says_in_words_follows_from_the_prediction() -> None:
    prediction = Findings.read().prediction
    device = find_device(prediction.device)
    read: dict[str, list[float]] = {}
    share: dict[str, list[float]] = {}
    for each in prediction.predicted:
        arithmetic_s = 2 * int(each.size) ** 3 / (device.peaks.float16 * 1e12)
        read.setdefault(each.line, []).append(each.all_waves_bytes)
        share.setdefault(each.line, []).append(each.all_waves_bytes / (device.memory_gbps * 1e9) / arithmetic_s)
    less = [1 - wide / narrow for wide, narrow in zip(read["flopwatch 16"], read["flopwatch 8"], strict=True)]
    more = [theirs / ours for theirs, ours in zip(read["tilelang none"], read["flopwatch none"], strict=True)]
    none, theirs = share["flopwatch none"], share["tilelang none"]
    words = " ".join(PAGE.read_text(encoding="utf-8").split())
    for said in (
        f"busy for {100 * none[0]:.0f} to {100 * none[-1]:.0f} %",
        f"ask for {100 * min(less):.0f} to {100 * max(less):.0f} % less",
        f"ask for {min(more):.1f} to {max(more):.0f} times as much",
        f"needs {min(theirs):.1f} to {max(theirs):.1f} times as long",
        f"no more than {device.peaks.float16 / theirs[-1]:.0f} TFLOPS",
    ):
        assert said in words


def test_what_the_page_answers_follows_from_the_measurement() -> None:
    found = Findings.read().measurement
    assert found is not None
    read = {(each.line, each.size): each.values["dram__bytes_read.sum"] for each in found.counted}
    took = {(each.line, each.at): each.seconds or 0.0 for each in found.study.measured}
    at, sizes, peak = "20480", found.study.points, find_device("h200").memory_gbps * 1e9
    assert read["flopwatch none", at] > 4 * read["flopwatch 8", at]  # "more than four times the bytes"
    assert read["flopwatch none", at] > 0.75 * peak * took["flopwatch none", at]  # "busy at most of its peak"
    assert 0.75 < 1 - read["tilelang 10", at] / read["tilelang none", at] < 0.85  # "by four fifths"
    assert 1.5 < took["tilelang 10", at] / took["flopwatch 8", at] < 2  # "little more than half of ours' rate"
    ours, theirs = (
        [speed_between(found.study, line, f"{line.split()[0]} none", size) for size in sizes]
        for line in ("flopwatch 8", "tilelang 10")
    )
    gains = [speed.estimate for speed in ours if speed is not None]
    assert gains == sorted(gains)  # "the more the larger the product is"
    certain = [speed is not None and speed.lower is not None and speed.lower > 0 for speed in theirs]
    assert certain == [int(size) >= 16384 for size in sizes]  # "from 16384 on they gain"


def test_counters_that_could_not_be_read_are_told() -> None:
    found = blocks(replace(Findings.read(), measurement=replace(measurement(), counted=())))
    assert found["counted"].startswith("The counters could not be read")


def test_a_machine_that_was_unfit_answers_nothing() -> None:
    found = measurement()
    unfit = replace(found, study=replace(found.study, unfit="it is used by `another`"))
    findings = replace(Findings.read(), measurement=unfit)
    written = blocks(findings)
    assert written["answer"] == written["measured"]
    assert written["answer"].endswith("worth nothing: `it is used by 'another'`")
    assert list(plots(findings)) == ["predicted"]


def test_a_measurement_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_rounds: int) -> Measurement:
        raise MachineError("there is no GPU")

    monkeypatch.setattr(l2_swizzle, "measure", fail)
    with pytest.raises(SystemExit, match="there is no GPU"):
        l2_swizzle.main(["measure", str(tmp_path / "measured.json")])
    assert list(tmp_path.iterdir()) == []


def test_memory_is_traced_again_and_the_rest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "measured.json"
    before = measurement()
    out.write_bytes(to_json(before))
    asked: list[str] = []
    monkeypatch.setattr(l2_swizzle, "_run_child", lambda what, *_: asked.append(what))
    monkeypatch.setattr(l2_swizzle, "_traced", lambda: before.memory[:1])

    l2_swizzle.main(["memory", str(out)])

    after = from_json(out.read_bytes(), Measurement)
    assert asked == ["compile"]
    assert (after.memory, bool(after.traced)) == (before.memory[:1], True)
    assert replace(after, memory=before.memory, traced="") == before
    assert f"({before.study.gpu}, {after.traced})" in blocks(replace(Findings.read(), measurement=after))["memory"]
