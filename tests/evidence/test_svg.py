from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from evidence.svg import Axis, Plot

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_a_plot_is_an_svg_with_its_points_where_they_belong() -> None:
    plot = Plot(
        title="a < b",
        x=Axis(title="time", low=1, high=100, ticks={1: "1", 10: "10", 100: "100"}, log=True),
        y=Axis(title="share", low=0, high=1, ticks={0: "0", 1: "1"}),
    )
    plot.points([(10, 0.5, "one & two")], "cases", "#000000")
    plot.line([(1, 0), (100, 1)], "goal", "#ffffff", dashed=True)
    root = ET.fromstring(plot.render())  # noqa: S314 - our own text
    dot, line = root.find(f"{NAMESPACE}circle"), root.find(f"{NAMESPACE}polyline")

    assert root.findtext(f"{NAMESPACE}title") == "a < b"
    assert dot is not None
    assert line is not None
    ends = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    middle = tuple((first + last) / 2 for first, last in zip(*ends, strict=True))
    assert (float(dot.attrib["cx"]), float(dot.attrib["cy"])) == pytest.approx(middle, abs=0.1)
    assert dot.findtext(f"{NAMESPACE}title") == "one & two"


@pytest.mark.parametrize(("value", "share"), [(-1.0, 0.0), (0.25, 0.25), (2.0, 1.0)])
def test_what_lies_beyond_an_axis_is_drawn_at_its_border(value: float, share: float) -> None:
    assert Axis(title="", low=0, high=1, ticks={}).share(value) == share
