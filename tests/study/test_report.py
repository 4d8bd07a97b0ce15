from __future__ import annotations

import io
import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from rich.console import Console

from flopwatch.compare.result import Speed
from flopwatch.gate.conclusions import Verdict
from flopwatch.measure.machine import Gpu, Machine
from flopwatch.model import Case, Numbers
from flopwatch.report.line_plot import line_plot
from flopwatch.report.study import error, headline, print_study, table, told, unit, values
from flopwatch.study import Conclusion
from flopwatch.study.result import Decision, Measured, Round, StudyResult

CONCLUSION = Conclusion(says="8 is the best", line="flopwatch 8", than=("*",), percent=1.0)
FASTER = Speed(estimate=0.1625, lower=0.10536, upper=0.2230, pairs=8)
TABLE = """\
size,flopwatch 8 (TFLOPS),torch (TFLOPS)
1024,200,160
2048,222.222,
"""


def measured(line: str, at: str, milliseconds: float | None, speed: float = 0.0, reason: str = "") -> Measured:
    return Measured(
        case=Case(suite="Swizzle", values=(at, *reversed(line.split()))),
        line=line,
        at=at,
        flops=2e12,
        bytes_moved=1e9,
        ceiling_eps=2.0,
        numbers=Numbers(dtype="float16", max_diff=0.1, max_diff_eps=0.5, finite=True, bitwise="0"),
        seconds=None if milliseconds is None else milliseconds / 1e3,
        speed=None if milliseconds is None else Speed(estimate=speed, lower=None, upper=None, pairs=2),
        method="graph",
        reason=reason,
    )


STUDY = StudyResult(
    suite="Swizzle",
    parameter="order",
    across="size",
    lines=("flopwatch 8", "torch"),
    points=("1024", "2048"),
    base="flopwatch 8",
    gpu="NVIDIA H200",
    machine=Machine(gpu=Gpu(name="NVIDIA H200", uuid="GPU-1", driver="580.1"), cpu_model="x", cpu_count=2, versions={}),
    versions={"triton": "3.6.0"},
    measured=(
        measured("flopwatch 8", "1024", 10.0),
        measured("flopwatch 8", "2048", 9.0),
        measured("torch", "1024", 12.5, speed=-0.223),
        measured("torch", "2048", None, reason="fails ([red]boo\x1b[2J)"),
    ),
    rounds=(Round(seconds=2.0, turns={}, faults={}),),
    decisions=(
        Decision(conclusion=CONCLUSION, verdict=Verdict.HOLDS, comparisons=1, other="torch", at="1024", speed=FASTER),
    ),
    command="flopwatch compare --study Swizzle",
    seconds=3.0,
    notes=("torch keeps 1 bytes",),
)


def printed(study: StudyResult) -> str:
    text = io.StringIO()
    print_study(study, Console(file=text, width=100))
    return text.getvalue()


def test_a_study_reads_from_what_is_fastest_to_how_to_repeat_it() -> None:
    lines = [line.rstrip() for line in printed(STUDY).splitlines()]
    assert lines[0] == "flopwatch 8 is the fastest of 2 lines at 2 points, by the medians."
    assert lines[1] == "Swizzle over order; working tree; NVIDIA H200, driver 580.1; triton 3.6.0"
    assert any("torch" in line and "160.0 0.800x" in line for line in lines)
    assert lines[-6:] == [
        "holds: 8 is the best: at worst 15.00 % faster (10.00 % to 19.99 %) than torch at 1024",
        "1 speed of 1: too few rounds for an interval.",
        "Errors are 0.50 eps at most.",
        "not measured: Swizzle[2048,torch]: fails ([red]boo [2J)",
        "note: torch keeps 1 bytes",
        "Repeat: flopwatch compare --study Swizzle",
    ]


def test_the_error_of_the_speeds_is_that_of_the_widest_interval() -> None:
    narrow, wide = (Speed(estimate=0.1, lower=0.1 - half, upper=0.1 + half, pairs=8) for half in (0.001, 0.005))
    first, second, torch, _ = STUDY.measured
    others = replace(torch, speed=narrow), replace(torch, at="2048", speed=wide)
    found = list(error(replace(STUDY, measured=(first, second, *others))))
    assert found == ["Speeds are told to 0.50 % or better, each with 99 %; --json has the bounds."]


def test_a_conclusion_of_which_nothing_is_known_says_why() -> None:
    unsure = Decision(conclusion=CONCLUSION, verdict=Verdict.UNSURE, comparisons=0, reason="it was not measured")
    few = replace(unsure, reason="", other="torch", speed=Speed(estimate=-0.01, lower=None, upper=None, pairs=2))
    assert told(unsure) == "unsure: 8 is the best: it was not measured"
    assert told(few) == "unsure: 8 is the best: at worst 1.01 % slower (too few pairs for an interval) than torch"


def test_several_fastest_lines_are_named() -> None:
    faster = replace(STUDY, measured=(*STUDY.measured[:3], measured("torch", "2048", 5.0)))
    assert headline(faster) == "2 of 2 lines are the fastest somewhere, by the medians: flopwatch 8, torch."


def test_an_unfit_machine_has_no_table() -> None:
    text = printed(replace(STUDY, unfit="it is used by another process"))
    assert text.startswith("The machine is unfit")
    assert "160.0" not in text
    assert "holds" not in text


def test_nothing_measured_is_told() -> None:
    nothing = replace(STUDY, measured=STUDY.measured[3:], decisions=())
    assert headline(nothing) == "Nothing could be measured."
    assert headline(replace(nothing, interrupted=True)) == "Interrupted before anything was measured."


def test_the_table_is_that_of_a_perf_report() -> None:
    assert table(STUDY) == TABLE


def test_what_memory_bounds_is_told_in_bytes() -> None:
    bound = replace(STUDY, measured=tuple(replace(each, flops=1e9) for each in STUDY.measured))
    assert unit(bound) == "GB/s"
    assert values(bound)["flopwatch 8"]["1024"] == pytest.approx(100.0)


def test_the_plot_has_a_line_for_each_and_points_by_size() -> None:
    lines = {"a <b>": {"1": 10.0, "2": 12.0, "4": 11.0}, "c": {"1": 9.0, "4": 9.5}}
    root = ET.fromstring(line_plot(lines, ["1", "2", "4"], title="t", across="size", unit="TFLOPS"))  # noqa: S314 - our own
    shapes = [element for element in root.iter() if element.tag.endswith("polyline")]
    paths = [[float(pair.split(",")[0]) for pair in shape.attrib["points"].split()] for shape in shapes[::2]]
    assert [len(path) for path in paths] == [3, 2]
    assert (paths[0][2] - paths[0][1]) == pytest.approx(2 * (paths[0][1] - paths[0][0]), abs=0.2)
    assert any(element.text == "a <b>" for element in root.iter())


def test_points_that_are_no_numbers_stand_evenly() -> None:
    text = line_plot({"a": {"x": 1.0, "y": 1.0}}, ["x", "y"], title="t", across="kind", unit="GB/s")
    assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314 - our own


@pytest.mark.parametrize("points", [[str(2**power) for power in range(7, 17)], ["1", "nan", "3"], ["1", "inf", "3"]])
def test_numbers_whose_names_would_touch_or_that_have_no_place_stand_evenly(points: list[str]) -> None:
    text = line_plot({"a": dict.fromkeys(points, 1.0)}, points, title="t", across="n", unit="GB/s")
    named = re.findall(r'<text x="([\d.]+)" y="370" text-anchor="middle">(\w+)</text>', text)
    assert [name for _, name in named] == points
    places = [float(x) for x, _ in named]
    steps = [right - left for left, right in itertools.pairwise(places)]
    assert steps == pytest.approx([steps[0]] * len(steps), abs=0.2)


def test_names_that_have_no_room_are_left_out_or_cut_and_many_lines_are_all_named() -> None:
    points = [f"4096x4096x{number},float16" for number in range(30)]
    lines = {f"a provider with a long name {number}": dict.fromkeys(points, 1.0) for number in range(25)}
    root = ET.fromstring(line_plot(lines, points, title="t", across="shape", unit="GB/s"))  # noqa: S314 - our own
    height = float(root.attrib["viewBox"].split()[3])
    texts = [element for element in root.iter() if element.tag.endswith("text")]
    assert max(float(element.attrib.get("y", 0)) for element in texts) < height
    assert 2 <= sum((element.text or "").startswith("4096x") for element in texts) < 30
    assert sum((element.text or "") == "a provider wit..." for element in texts) == 25


def test_more_lines_than_colours_differ_in_their_dashes() -> None:
    lines = {str(index): {"1": float(index)} for index in range(12)}
    text = line_plot(lines, ["1"], title="t", across="n", unit="TFLOPS")
    looks = {part.partition("/>")[0] for part in text.split("stroke=")[1:]}
    assert len(looks) == 12


def test_nothing_is_not_drawn() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        line_plot({}, [], title="t", across="n", unit="TFLOPS")
