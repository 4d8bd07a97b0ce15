from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from flopwatch.report.footprint import footprint_svg
from flopwatch.static.traffic.footprint import Footprint, Panel, Rectangle

SVG = "{http://www.w3.org/2000/svg}"


def box(column: int, columns: int, first: int, *, last: int | None = None, programs: int = 1) -> Rectangle:
    end = first if last is None else last
    return Rectangle(row=0, column=column, rows=1, columns=columns, first=first, last=end, programs=programs)


#: Two programs read all of x, and write a half of out each.
PANELS = tuple(
    Panel(
        argument=name,
        access=access,
        shape=(8,),
        element_bytes=4,
        rows=1,
        columns=8,
        box=(1, 1),
        layers=layers,
        strays=False,
    )
    for name, access, layers in (
        ("x_ptr", "load", ((box(0, 8, 0, last=1, programs=2),), (box(0, 8, 0),), (box(0, 8, 1),))),
        ("out_ptr", "store", ((box(0, 4, 0), box(4, 4, 1)), (box(0, 4, 0),), (box(4, 4, 1),))),
    )
)
FOUND = Footprint(
    kernel="add_kernel",
    device="h200",
    config="BLOCK=4",
    grid=(2,),
    programs=2,
    wave=2,
    layers=((0, 1), (0, 0), (1, 1)),
    panels=PANELS,
)


def tree(footprint: Footprint) -> ET.Element:
    return ET.fromstring(footprint_svg(footprint, "Add[8,<b>]"))  # noqa: S314 - made a moment ago


def texts(footprint: Footprint) -> list[str]:
    return [element.text or "" for element in tree(footprint).iter(f"{SVG}text")]


def drawn(footprint: Footprint) -> list[tuple[str, str, str]]:
    """Return the column and the colour of each rectangle, and what it says."""
    return [
        (each.get("x", ""), each.get("fill", ""), each.findtext(f"{SVG}title") or "")
        for each in tree(footprint).iter(f"{SVG}rect")
        if each.find(f"{SVG}title") is not None
    ]


def test_a_file_needs_nothing_but_itself_and_says_what_it_shows() -> None:
    text = footprint_svg(FOUND, "Add[8]")
    assert tree(FOUND).get("aria-label") == ("What each program of add_kernel, 2 programs, h200 accesses: Add[8,<b>]")
    assert "prefers-color-scheme: dark" in text
    assert re.findall(r"(?:href|src|<script|url\((?!#order))", text) == []


def test_a_column_is_a_tensor_and_a_row_is_whose_accesses_it_shows() -> None:
    assert texts(FOUND)[:11] == [
        "Add[8,<b>]",
        "add_kernel, 2 programs, h200",
        "BLOCK=4",
        "load x_ptr",
        "8",
        "store out_ptr",
        "8",
        "all 2 programs",
        "0 to 1",
        "program 0",
        "program 1",
    ]


def test_an_element_has_the_colour_of_its_first_program_and_names_the_others() -> None:
    low, high = "#440154", "#fde725"
    assert drawn(FOUND) == [
        ("0", low, "columns 0 to 7: 2 programs, 0 to 1"),
        ("0", low, "columns 0 to 3: program 0"),
        ("4", high, "columns 4 to 7: program 1"),
        ("0", low, "columns 0 to 7: program 0"),
        ("0", low, "columns 0 to 3: program 0"),
        ("0", high, "columns 0 to 7: program 1"),
        ("4", high, "columns 4 to 7: program 1"),
    ]


def test_a_program_that_is_the_first_nowhere_has_a_colour_too() -> None:
    """As where all programs load one table: a colour beyond the last one is none, which is drawn black."""
    layers = ((box(0, 8, 0, last=9, programs=10),), (box(0, 8, 0),), (box(0, 8, 9),))
    footprint = replace(
        FOUND, grid=(10,), programs=10, layers=((0, 9), (0, 0), (9, 9)), panels=(replace(PANELS[0], layers=layers),)
    )
    assert [colour for _, colour, _ in drawn(footprint)] == ["#440154", "#440154", "#fde725"]
    assert "0 to 9" in texts(footprint)


def test_a_wave_has_the_colours_of_its_own_programs() -> None:
    layers = ((box(0, 4, 0), box(4, 4, 8)), (box(0, 4, 0), box(4, 2, 2)))
    footprint = replace(FOUND, programs=9, layers=((0, 8), (0, 2)), panels=(replace(PANELS[0], layers=layers),))
    assert [colour for _, colour, _ in drawn(footprint)] == ["#440154", "#fde725"] * 2
    assert [text for text in texts(footprint) if " to " in text] == ["0 to 8", "first wave: 0 to 2", "0 to 2"]


def test_text_ends_with_the_picture_and_style_has_no_variables() -> None:
    footprint = replace(FOUND, kernel="k" * 200, unknown=("u" * 200,))
    assert max(map(len, texts(footprint))) * 6.8 <= 560 - 12
    assert "var(" not in footprint_svg(footprint, "c" * 200)


def test_a_wave_is_named_and_a_program_has_its_place_in_the_grid() -> None:
    footprint = replace(FOUND, grid=(2, 3), programs=6, layers=((0, 5), (0, 3), (5, 5)), panels=PANELS[:1])
    assert texts(footprint)[1] == "add_kernel, 6 programs (2x3), h200"
    assert [text for text in texts(footprint) if "program" in text or "wave" in text][1:4] == [
        "all 6 programs",
        "first wave: 0 to 3",
        "program 5 (1, 2)",
    ]


def test_of_more_axes_the_first_place_is_named() -> None:
    panel = replace(PANELS[0], shape=(2, 4, 1, 8))
    assert "0, 0, :, : of 2x4x1x8" in texts(replace(FOUND, panels=(panel,)))


def test_what_is_not_shown_is_told() -> None:
    strays = replace(PANELS[1], strays=True)
    footprint = replace(FOUND, panels=(PANELS[0], strays), unknown=("the address at k.py:3",))
    assert "store out_ptr *" in texts(footprint)
    assert texts(footprint)[-1] == "* also accessed beside its elements; not shown: the address at k.py:3"
    assert "not shown" not in texts(FOUND)[-1]


def test_nothing_has_no_picture() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        footprint_svg(replace(FOUND, panels=()), "Add[8]")
