from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from flopwatch.model import Case
from flopwatch.profile.roofline import Point, RooflinePoints
from flopwatch.report.roofline_plot import headline, roofline_page, roofline_svg, short_name

SVG = "{http://www.w3.org/2000/svg}"


def point(name: str, *, flops: float = 1e12, bytes_moved: float = 4e8, seconds: float = 1.5e-3, **kind: bool) -> Point:
    case = Case(suite="Matmul", values=(name, "float16", "flopwatch"))
    return Point(case=case, flops=flops, bytes_moved=bytes_moved, seconds=seconds, measured=kind.get("measured", True))


FOUND = RooflinePoints(
    device="h200",
    points=(point("8192"), point("4096", flops=1.4e11, bytes_moved=1e8, seconds=1.5e-4, measured=False)),
    source="asv's results",
    left_out=("Peer[<8>] was not measured",),
)


def tree(found: RooflinePoints) -> ET.Element:
    return ET.fromstring(roofline_svg(found))  # noqa: S314 - made a moment ago


def texts(found: RooflinePoints) -> list[str]:
    return [element.text or "" for element in tree(found).iter(f"{SVG}text")]


def test_a_file_needs_nothing_but_itself_and_says_what_it_shows() -> None:
    text = roofline_svg(FOUND)
    root = tree(FOUND)
    assert root.find(f"{SVG}title").text == "Roofline of the NVIDIA H200"  # type: ignore[union-attr] # it is there
    described = root.find(f"{SVG}desc").text or ""  # type: ignore[union-attr] # likewise
    assert described.startswith("1 case as measured (asv's results) and 1 case at the most")
    assert {"roofline-title", "roofline-desc"} == set((root.get("aria-labelledby") or "").split())
    assert "prefers-color-scheme: dark" in text
    assert re.findall(r"(?:href|src|url\()", text) == []


def test_measured_and_estimated_points_differ_and_are_named() -> None:
    groups = [group.get("class") for group in tree(FOUND).iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]
    assert groups.count("measured") == groups.count("estimated") == 1
    assert {"Matmul 8192 float16", "Matmul 4096 float16", "measured", "estimated"} <= set(texts(FOUND))


def test_points_of_one_kind_need_no_key_unless_they_are_estimates() -> None:
    assert "measured" not in texts(replace(FOUND, points=FOUND.points[:1]))
    assert "estimated" in texts(replace(FOUND, points=FOUND.points[1:]))


def boxes(found: RooflinePoints) -> list[tuple[float, float, float, float]]:
    names = [element for element in tree(found).iter(f"{SVG}text") if element.get("class") == "name"]
    places = [(float(name.get("x") or 0), float(name.get("y") or 0), len(name.text or "")) for name in names]
    return [(x, y - 9, x + 6 * length, y + 3) for x, y, length in places]


def test_names_cover_neither_points_nor_each_other() -> None:
    crowd = tuple(point(f"shape-{index}", seconds=1.5e-3 * 1.02**index) for index in range(40))
    found = replace(FOUND, points=crowd)
    written = boxes(found)
    assert 3 <= len(written) < 40
    for place, (left, top, right, bottom) in enumerate(written):
        assert 0 <= left < right <= 960
        for other in written[place + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
        for circle in tree(found).iter(f"{SVG}circle"):
            x, y = float(circle.get("cx") or 0), float(circle.get("cy") or 0)
            assert not (left < x < right and top < y < bottom)
    assert f"{40 - len(written)} points had no room for a name." in roofline_svg(found)


def test_the_page_has_the_numbers_and_what_has_no_point() -> None:
    page = roofline_page(FOUND)
    assert "<h1>Roofline of the NVIDIA H200</h1>" in page
    assert "Matmul[8192,float16,flopwatch]: measured: in 1.500 ms, 666.7 TFLOPS" in page
    assert "Matmul[4096,float16,flopwatch]: estimated: at best 150.0 µs, 933.3 TFLOPS" in page
    assert "Peer[&lt;8&gt;] was not measured" in page
    assert "<script" not in page


def test_names_of_others_are_text() -> None:
    hostile = replace(FOUND, points=(point('"><script>'),), left_out=())
    assert "<script" not in roofline_svg(hostile) + roofline_page(hostile)
    assert tree(hostile).tag == f"{SVG}svg"


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (slice(0, 1), "1 case as measured (asv's results), under the roofs of the NVIDIA H200."),
        (slice(1, 2), "1 case at the most that their work allows, under the roofs of the NVIDIA H200."),
    ],
)
def test_the_headline_says_what_is_drawn(kept: slice, expected: str) -> None:
    assert headline(replace(FOUND, points=FOUND.points[kept])) == expected


def test_long_names_are_cut() -> None:
    assert short_name(f"Attention[{'8x' * 40},flopwatch]").endswith("…")
