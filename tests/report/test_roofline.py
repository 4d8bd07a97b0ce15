from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flopwatch.asv.derived import ROOFLINE
from flopwatch.report.roofline import MAX_POINTS, Placed, left_out, placed, roofline, told
from flopwatch.static.devices import DEVICES, device_called
from flopwatch.verdict import Side

if TYPE_CHECKING:
    from tests.report.conftest import Gates

H200 = DEVICES["h200"]


def case(*, flops: float = 1e13, bytes_moved: float = 1e11, name: str = "Toy[1]", **seconds: float | None) -> Placed:
    return Placed(
        name=name,
        kind="slower",
        flops=flops,
        bytes_moved=bytes_moved,
        seconds={side: value for side, value in ({"base": 1.0, "head": 10.0} | seconds).items() if value is not None},
    )


def shapes(text: str) -> list[str]:
    """Return the points of the plot, without what is the same for all."""
    return re.findall(r'<(circle class="(?:ring|point)" cx="[\d.]+" cy="[\d.]+"|rect class="\w+")', text)


def test_a_known_case_is_where_it_belongs() -> None:
    # 100 operations a byte at 10 TFLOPS, then at 1. The axes go from 10 to 10^4, and from 1 to 10^0.2 times the peak.
    text = roofline([case()], H200)
    x, y = 64 + 868 / 3, 372 - 348 / 3.19537
    assert shapes(text) == [
        f'circle class="ring" cx="{x:.1f}" cy="{y:.1f}"',
        f'circle class="point" cx="{x:.1f}" cy="372.0"',
    ]
    assert f'<line class="moved" x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="372.0"/>' in text


def test_the_roof_bends_where_memory_feeds_the_tensor_cores() -> None:
    text = roofline([case()], H200)
    # At 10 operations a byte, 4.8 TB/s feed 48 TFLOPS: 10^1.68124. The ridge is at 989.4 / 4.8 = 10^2.31417.
    left, ridge, peak = 372 - 348 * 1.68124 / 3.19537, 64 + 868 * 1.31417 / 3, 24 + 348 * 0.2 / 3.19537
    assert f'<line class="roof" x1="64.0" y1="{left:.1f}" x2="{ridge:.1f}" y2="{peak:.1f}"/>' in text
    assert f'<line class="roof" x1="{ridge:.1f}" y1="{peak:.1f}" x2="932.0" y2="{peak:.1f}"/>' in text
    assert "<title>memory: 4800 GB/s</title>" in text
    assert "<title>tensor cores at 16 bits: 989.4 TFLOPS</title>" in text


def test_each_type_of_operands_has_its_own_roof() -> None:
    eight = replace(case(name="Toy[float8]"), values=("8192", "float8_e4m3fn", "flopwatch"))
    text = roofline([case(), eight], H200)
    # The peak of 8 bits is on top, 10^0.30102 times that of 16 bits, and memory feeds it from 10^2.61520 on. The axes
    # go from 10 to 10^4, and from 1 to 10^0.2 times that peak.
    heights = [24 + 348 * below / 3.49642 for below in (0.2, 0.2 + 0.30102)]
    ridges = [64 + 868 * (ridge - 1) / 3 for ridge in (2.61520, 2.31417)]
    for ridge, height in zip(ridges, heights, strict=True):
        assert f'<line class="roof" x1="{ridge:.1f}" y1="{height:.1f}" x2="932.0" y2="{height:.1f}"/>' in text
    assert "<title>tensor cores at 16 bits: 989.4 TFLOPS</title>" in text
    assert "<title>float8_e4m3fn: 1979 TFLOPS</title>" in text
    assert "<title>memory" in text
    assert text.count("<title>memory") == 1


def test_a_case_is_held_against_the_peak_of_its_own_operands() -> None:
    sixteen = case(flops=989.4e12, bytes_moved=1.0, head=None)
    eight = replace(sixteen, values=("8192", "float8_e5m2", "flopwatch"))
    assert "100.0 % of the roofline" in told(sixteen, H200)
    assert "50.0 % of the roofline" in told(eight, H200)


@pytest.mark.parametrize("work", [(1e12, 1e9), (1e6, 12e6), (989.4e12, 4.8e12)])
@pytest.mark.parametrize("key", DEVICES)
def test_the_roof_is_the_dashboards(key: str, work: tuple[float, float]) -> None:
    device = DEVICES[key]
    benchmark = {"flops": [work[0]], "bytes_moved": [work[1]]}
    assert ROOFLINE.works(benchmark, device.name) == [device.least_seconds(*work)]
    (percent,) = ROOFLINE.values([0.5], ROOFLINE.works(benchmark, device.name)).tolist()
    seen = told(case(flops=work[0], bytes_moved=work[1], base=0.5, head=None), device)
    assert seen.endswith(f", {percent:.1f} % of the roofline")
    assert device_called(device.name) is device


@pytest.mark.parametrize(
    ("flops", "bytes_moved", "base", "head"),
    [(989.4e12, 1e12, "989.4 TFLOPS", "494.7 TFLOPS"), (1e12, 4.8e12, "4800 GB/s", "2400 GB/s")],
)
def test_what_lies_on_the_roof_reaches_all_of_it(flops: float, bytes_moved: float, base: str, head: str) -> None:
    assert told(case(flops=flops, bytes_moved=bytes_moved, base=1.0, head=2.0), H200) == (
        f"Toy[1]: slower: base 1.000 s, {base}, 100.0 % of the roofline; head 2.000 s, {head}, 50.0 % of the roofline"
    )


def test_what_is_beyond_the_axes_is_a_square_and_moves_no_other() -> None:
    usual = case()
    far = [case(base=1e-9, head=1e-9), case(flops=1e24, bytes_moved=1.0, base=1e9, head=1e9), case(base=1e9, head=1e9)]
    for absurd in far:
        text = roofline([usual, absurd], H200)
        assert text.count("<rect") == 2
        assert len(shapes(text)) == 4
    assert "base 1.000 ns, more than 100 times the roofline" in roofline(far[:1], H200)


def test_the_first_is_drawn_last_and_so_on_top() -> None:
    text = roofline([case(name="First[1]"), case(name="Second[1]")], H200)
    assert 0 < text.index("Second[1]") < text.index("First[1]")


def test_a_side_that_was_not_timed_has_no_point() -> None:
    text = roofline([case(base=None)], H200)
    assert [shape.partition(" cx")[0] for shape in shapes(text)] == ['circle class="point"']
    assert "base" not in told(case(base=None), H200)


def test_no_case_is_no_plot() -> None:
    assert roofline([], H200) == ""


def test_names_are_text() -> None:
    text = roofline([case(name="</title><script>")], H200)
    assert "<script" not in text
    assert "&lt;/title&gt;&lt;script&gt;" in text


def test_cases_without_a_time_or_work_are_left_out_and_counted(gates: Gates) -> None:
    usual = gates.slower.verdicts[0]
    verdicts = [
        usual,
        replace(usual, flops=None),
        replace(usual, flops=0.0),
        replace(usual, bytes_moved=0.5),
        replace(usual, base=Side(), head=Side(seconds=0.0)),
        *gates.laptop.verdicts,
    ]
    cases = placed(verdicts)
    assert [found.name for found in cases] == ["Matmul[512x512x512,float16,flopwatch]"]
    assert left_out(verdicts, cases) == "Not drawn: 2 cases without a time, 3 cases without FLOPs or bytes."
    assert left_out(verdicts[:1], cases) == ""


def test_of_many_cases_the_first_are_drawn(gates: Gates) -> None:
    verdicts = [gates.slower.verdicts[0]] * (MAX_POINTS + 1)
    cases = placed(verdicts)
    assert len(shapes(roofline(cases, H200))) == 2 * MAX_POINTS
    assert left_out(verdicts, cases) == f"Not drawn: 1 case beyond the first {MAX_POINTS}."
