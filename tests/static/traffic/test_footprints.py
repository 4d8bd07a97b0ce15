"""Which program accesses what, held against Triton's interpreter, which runs one program after the other."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
import pytest
from tests.static.conftest import run_child

from flopwatch.static.traffic.elements import Elements
from flopwatch.static.traffic.footprint import Footprint, Rectangle
from flopwatch.static.traffic.footprints import _rectangles

if TYPE_CHECKING:
    from flopwatch.static.traffic.footprint import Panel

DOCS = Path(__file__).parents[3] / "docs"
#: Program, kind of access, tensor, row and column.
Touched: TypeAlias = set[tuple[int, str, int, int, int]]

#: Of the conftest's; their tensors have 64 rows and columns at most, or are told in boxes.
CASES = ["add", "odd matmul", "matmul", "causal attention", "softmax", "transpose", "triangle", "control", "described"]
GATHER = "launch_on_data(gather, device, D=64)"
STRAY = "launch_stray(one_too_far, device, n=100, block=64)"
OTHERS = [GATHER, STRAY, "launch_narrow(device, 2**31)"]

_COMPILE = """
import sys
sys.path.insert(0, sys.argv[1])
import kernels
from kernels import *
from flopwatch.model import to_json
from flopwatch.static import pretend_gpu
from flopwatch.static.traffic.footprints import footprints_of

told = {}
for call in sys.argv[2:]:
    with pretend_gpu("h200") as recorder:
        CASES[call]("cuda") if call in CASES else eval(call, vars(kernels) | {"device": "cuda"})
    (told[call],) = footprints_of(recorder, range(64))
print(to_json(told).decode())
"""

_INTERPRET = """
import json, sys
sys.path.insert(0, sys.argv[1])
import kernels, numpy as np
from kernels import CASES
from triton.runtime import interpreter

tensors, touched, made = [], set(), kernels.empty


def noted(*shape, **options):
    tensors.append(made(*shape, **options))
    return tensors[-1]


class Noting:
    def __getattr__(self, name):
        return getattr(real, name)

    def note(self, kind, pointers, mask):
        builder = interpreter.interpreter_builder
        (x, y, z), (width, height, _) = builder.grid_idx, builder.grid_dim
        mask = np.broadcast_to(np.asarray(mask, bool), np.shape(pointers))
        for address in np.asarray(pointers)[mask].astype(np.int64).reshape(-1).tolist():
            for number, tensor in enumerate(tensors):
                place = (address - tensor.data_ptr()) // tensor.element_size()
                if 0 <= place < tensor.numel():
                    touched.add((x + width * (y + height * z), kind, number, place))

    def load(self, pointers, mask, other, dtype):
        self.note("load", pointers, mask)
        return real.load(pointers, mask, other, dtype)

    def store(self, pointers, value, mask):
        self.note("store", pointers, mask)
        return real.store(pointers, value, mask)

    def atomic_rmw(self, operation, pointers, value, mask, sem):
        self.note("atomic", pointers, mask)
        return real.atomic_rmw(operation, pointers, value, mask, sem)


real, interpreter._interpreter = interpreter._interpreter, Noting()
kernels.empty = noted
told = {}
for name in sys.argv[2:]:
    tensors.clear(), touched.clear()
    CASES[name]("cpu")
    told[name] = [sorted(touched), [list(tensor.shape) for tensor in tensors]]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, kernels: str) -> Path:
    folder = tmp_path_factory.mktemp("footprints")
    (folder / "kernels.py").write_text(kernels)
    return folder


@pytest.fixture(scope="module")
def drawn(folder: Path) -> dict[str, Footprint]:
    text = run_child(_COMPILE, str(folder), *CASES, *OTHERS, cache=folder / "cache")
    return msgspec.json.decode(text, type=dict[str, Footprint])


@pytest.fixture(scope="module")
def interpreted(folder: Path) -> dict[str, tuple[Touched, list[list[int]]]]:
    """The places of each case's tensors that each program accesses, and the shapes of these."""
    text = run_child(_INTERPRET, str(folder), *CASES, cache=folder / "cache", interpret=True)
    found: dict[str, tuple[list[tuple[int, str, int, int]], list[list[int]]]] = msgspec.json.decode(text)
    told = {}
    for name, (places, shapes) in found.items():
        touched = set()
        for program, kind, tensor, place in places:
            index = np.unravel_index(place, shapes[tensor])
            if not any(index[:-2]):  # the first place of the other axes is shown
                row = int(index[-2]) if len(index) > 1 else 0
                touched.add((program, kind, tensor, row, int(index[-1])))
        told[name] = (touched, shapes)
    return told


def single(footprint: Footprint) -> dict[int, int]:
    """Return the layer of each single program."""
    return {first: index for index, (first, last) in enumerate(footprint.layers) if first == last}


def boxes_in(panel: Panel, tensor: int, program: int, layer: tuple[Rectangle, ...]) -> Touched:
    tall, wide = panel.box
    return {
        (program, panel.access, tensor, row, column)
        for each in layer
        for row in range(each.row // tall, -(-(each.row + each.rows) // tall))
        for column in range(each.column // wide, -(-(each.column + each.columns) // wide))
    }


@pytest.mark.parametrize("case", CASES)
def test_each_program_accesses_what_it_accesses_in_the_interpreter(
    case: str, drawn: dict[str, Footprint], interpreted: dict[str, tuple[Touched, list[list[int]]]]
) -> None:
    footprint, (touched, shapes) = drawn[case], interpreted[case]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(p.argument for p in footprint.panels))}
    assert [list(panel.shape) for panel in footprint.panels] == [
        shapes[numbers[panel.argument]] for panel in footprint.panels
    ]
    found, box = set(), {}
    for panel in footprint.panels:
        number = numbers[panel.argument]
        box[number] = panel.box
        for program, index in single(footprint).items():
            found |= boxes_in(panel, number, program, panel.layers[index])

    assert found == {
        (program, kind, tensor, row // box[tensor][0], column // box[tensor][1])
        for program, kind, tensor, row, column in touched
    }
    assert footprint.unknown == ()
    assert not any(panel.strays for panel in footprint.panels)


@pytest.mark.parametrize("case", CASES)
def test_all_programs_together_are_the_single_ones(case: str, drawn: dict[str, Footprint]) -> None:
    footprint = drawn[case]
    assert footprint.layers[0] == (0, footprint.programs - 1)
    for panel in footprint.panels:
        together = {place[2:] for place in boxes_in(panel, 0, 0, panel.layers[0])}
        apart = set()
        for program, index in single(footprint).items():
            apart |= {place[2:] for place in boxes_in(panel, 0, program, panel.layers[index])}
        assert together == apart


def test_what_depends_on_values_is_not_shown_and_told(drawn: dict[str, Footprint]) -> None:
    footprint = drawn[GATHER]
    assert {panel.argument for panel in footprint.panels} == {"at_ptr", "out_ptr"}
    assert len(footprint.unknown) == 1
    assert "depends on values loaded at kernels.py" in footprint.unknown[0]


def test_what_leaves_its_tensor_is_told(drawn: dict[str, Footprint]) -> None:
    assert {panel.access: panel.strays for panel in drawn[STRAY].panels} == {"load": False, "store": True}


def test_more_programs_than_can_be_told_apart_have_no_picture(drawn: dict[str, Footprint]) -> None:
    footprint = drawn[OTHERS[-1]]
    assert (footprint.programs, footprint.panels) == (2**31 // 4096, ())
    assert footprint.unknown == ("524,288 programs are too many to be told apart",)


def test_boxes_of_the_same_programs_are_one_rectangle() -> None:
    """Two programs on four columns: the first on the left half of three rows, both on the first of its columns."""
    elements = Elements((3, 4), (4, 1), 2, 0)
    pairs = [(0, box) for box in (0, 1, 4, 5, 8, 9)] + [(1, box) for box in (0, 4, 11)]
    programs, boxes = np.array(pairs).T

    assert list(_rectangles(programs, boxes, elements)) == [
        Rectangle(row=0, column=0, rows=2, columns=1, first=0, last=1, programs=2),
        Rectangle(row=0, column=1, rows=2, columns=1, first=0, last=0, programs=1),
        Rectangle(row=2, column=0, rows=1, columns=2, first=0, last=0, programs=1),
        Rectangle(row=2, column=3, rows=1, columns=1, first=1, last=1, programs=1),
    ]


_TRITON_VIZ = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, triton_viz
from kernels import add
from triton_viz.clients import Tracer

tracer = Tracer()
x, y, out = (torch.zeros(100) for _ in range(3))
triton_viz.trace(client=tracer)(add)[(4,)](x, y, out, 100, BLOCK=32)
names = {tensor.data_ptr(): name for name, tensor in (("x_ptr", x), ("y_ptr", y), ("out_ptr", out))}
program, told = 0, []
for record in tracer.records:
    kind = type(record).__name__.lower()
    if kind == "grid":
        program = record.idx[0]
    elif kind in ("load", "store"):
        places = record.offsets[record.masks] // 4
        told.append([program, kind, names[record.ptr], int(places.min()), len(places)])
print(json.dumps(told))
"""


@pytest.mark.skipif(importlib.util.find_spec("triton_viz") is None, reason="triton-viz is not installed")
def test_triton_viz_traces_the_same(folder: Path) -> None:
    traced = msgspec.json.decode(run_child(_TRITON_VIZ, str(folder), cache=folder / "cache"))
    call = "launch_add(device, 100, torch.float32, 32)"
    text = run_child(_COMPILE, str(folder), call, cache=folder / "cache")
    footprint = msgspec.json.decode(text, type=dict[str, Footprint])[call]
    found = [
        [program, panel.access, panel.argument, each.column, each.columns]
        for panel in footprint.panels
        for program, index in single(footprint).items()
        for each in panel.layers[index]
    ]

    assert sorted(traced) == sorted(found)


@pytest.mark.skipif(importlib.util.find_spec("triton_viz") is None, reason="needs flopwatch[viz]")
def test_triton_viz_takes_what_the_page_shows_it(folder: Path) -> None:
    page = (DOCS / "guide" / "footprints.md").read_text()
    (program,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    start = "import triton_viz\ntriton_viz.launch = lambda share: None\n"
    end = "from triton_viz.core.trace import launches\nprint(float(out.sum()), len(launches[-1].records) > 24)\n"
    assert run_child(start + program + end, cache=folder / "cache").split() == ["2002.0", "True"]


def test_the_pictures_of_the_page_are_what_its_program_draws(folder: Path) -> None:
    """Where this fails the program has to run again, and its files go into docs/images."""
    page = (DOCS / "guide" / "footprints.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    start = f"import os, sys\nsys.path.insert(0, {str(DOCS.parent)!r})\nos.chdir({str(folder)!r})\n"
    run_child(start + program, cache=folder / "cache")

    drawn = {path.name: path.read_text() for path in folder.glob("footprint-matmul-*.svg")}
    assert drawn == {path.name: path.read_text() for path in (DOCS / "images").glob("footprint-matmul-*.svg")}
    assert len(drawn) == 2
