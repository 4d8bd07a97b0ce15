"""The table of planted faults, in docs/guide/sanitizing.md, holds."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evidence.sanitizers import (
    COLUMNS,
    FAULTS,
    NOT_RUN,
    NUMBERS,
    ROWS,
    TRAFFIC,
    UNCOVERED,
    Cell,
    cell_of,
    columns_of,
    compare,
    lines_at_fault,
    table,
    with_cells,
)

from flopwatch.errors import MachineError
from flopwatch.model import Case, Failure
from flopwatch.sanitize import CaseReport, Tool
from flopwatch.sanitize.tools import NVIDIA, find_compute_sanitizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.gate.pairs import Observer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "sanitizing.md"
WITHOUT_A_GPU = [Tool.INTERPRETER.value, NUMBERS, TRAFFIC]
#: Who else than one of compute-sanitizer's tools looks at shared memory and at barriers: nobody.
CONTROLS = {Tool.RACECHECK: "Handover", Tool.SYNCCHECK: "Barrier"}
#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints the code of one suite's.
COMPILE = """
import sys
import torch
from evidence.faults import suites
from flopwatch.static import pretend_gpu

with pretend_gpu("h200", tensors="meta") as recorder:
    getattr(suites, sys.argv[1])().run(torch.empty(1000, device="cuda"))
(kernel,) = recorder.compiled.values()
print(kernel.asm["ptx"])
"""


@pytest.fixture(scope="module")
def documented() -> dict[str, dict[str, str]]:
    return columns_of(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    return table([*compare(WITHOUT_A_GPU)][-1].cells)


@pytest.mark.parametrize("column", WITHOUT_A_GPU)
def test_the_table_says_what_is_found(
    column: str, found: dict[str, dict[str, str]], documented: dict[str, dict[str, str]]
) -> None:
    assert {fault: cells[column] for fault, cells in found.items()} == {
        fault: cells[column] for fault, cells in documented.items()
    }


@pytest.mark.skipif(importlib.util.find_spec("triton_viz") is None, reason="triton-viz is not installed")
def test_the_table_says_what_triton_viz_finds(documented: dict[str, dict[str, str]]) -> None:
    column = Tool.TRITON_VIZ.value

    assert {fault: cells[column] for fault, cells in table([*compare([column])][-1].cells).items()} == {
        fault: cells[column] for fault, cells in documented.items()
    }


def test_nobody_finds_anything_where_nothing_is_wrong(documented: dict[str, dict[str, str]]) -> None:
    assert set(documented["nothing"].values()) <= {"no", NOT_RUN}


def test_the_interpreter_misses_no_planted_fault(documented: dict[str, dict[str, str]]) -> None:
    found = {fault: cells["interpreter"] for fault, cells in documented.items()}

    assert found.pop("nothing") == "no"
    assert {found.pop(ROWS[suite]) for suite in CONTROLS.values()} == {UNCOVERED}
    assert set(found.values()) <= {"its line", "yes"}


def test_what_a_tool_cannot_run_is_not_covered_and_what_fails_has_failed() -> None:
    words = []
    for kind in ("NotCovered", "WorkerDied"):
        failure = Failure(kind=kind, message="Gluon")
        report = CaseReport(case=Case(suite="Handover", values=("1000",)), tool=Tool.INTERPRETER, failure=failure)
        words.append(table([cell_of(report)])[ROWS["Handover"]]["interpreter"])

    assert words == [UNCOVERED, "failed"]


@pytest.mark.parametrize(("tool", "suite"), CONTROLS.items())
def test_no_fault_but_its_own_is_seen_by_a_tool_for_shared_memory_and_barriers(
    tool: Tool, suite: str, documented: dict[str, dict[str, str]]
) -> None:
    found = {fault: cells[tool.value] for fault, cells in documented.items()}

    assert found.pop(ROWS[suite]) in {"its line", "yes", NOT_RUN}
    assert set(found.values()) <= {"no", NOT_RUN}


@pytest.mark.parametrize("tool", NVIDIA)
def test_a_column_of_a_gpu_is_filled_with_every_fault(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(_self: object, cases: Sequence[Case], _observer: Observer) -> list[CaseReport]:
        return [CaseReport(case=case, tool=tool) for case in cases]

    monkeypatch.setattr("evidence.sanitizers.Looking.at", at)
    page = with_cells(PAGE.read_text(encoding="utf-8"), table([*compare([tool.value])][-1].cells))

    assert [cells[tool.value] for cells in columns_of(page).values()] == ["no"] * len(ROWS)


@pytest.mark.gpu
@pytest.mark.parametrize(("tool", "suite"), CONTROLS.items())
def test_a_tool_for_shared_memory_and_barriers_finds_its_fault_and_no_other(tool: Tool, suite: str) -> None:
    try:
        find_compute_sanitizer()
    except MachineError as error:
        pytest.skip(error.what)
    found = {fault: cells[tool.value] for fault, cells in table([*compare([tool.value])][-1].cells).items()}

    assert found.pop(ROWS[suite]) == "its line"
    assert set(found.values()) == {"no"}


@pytest.mark.parametrize(
    ("suite", "kernel", "instructions"),
    [
        ("Handover", "handover_kernel", {"st.shared.b64", "ld.shared.b64"}),
        ("Barrier", "barrier_kernel", {"bar.sync"}),
    ],
)
def test_what_no_plain_kernel_has_is_compiled_for_hopper_at_the_lines_at_fault(
    suite: str, kernel: str, instructions: set[str]
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ptx = subprocess.check_output([sys.executable, "-c", COMPILE, suite], env=environment, cwd=ROOT, text=True)
    found, line = set(), 0
    for text in ptx.splitlines():
        if place := re.match(r"\s*\.loc\s+\d+ (\d+)", text):
            line = int(place[1])
        found |= {(line, instruction) for instruction in instructions if f"{instruction} " in text}

    assert {instruction for _, instruction in found} == instructions
    assert {line for line, _ in found} == lines_at_fault(kernel)
    assert "mbarrier" not in ptx


def test_every_suite_has_a_row(documented: dict[str, dict[str, str]]) -> None:
    text = (FAULTS / "suites.py").read_text(encoding="utf-8")

    assert [line.split()[1].partition("(")[0] for line in text.splitlines() if line.startswith("class ")] == list(ROWS)
    assert list(documented) == list(ROWS.values())


def test_every_faulty_kernel_marks_one_line_and_a_race_of_warps_both_sides() -> None:
    text = (FAULTS / "kernels.py").read_text(encoding="utf-8")
    kernels = re.findall(r"^def (\w+_kernel)\(", text, re.MULTILINE)
    marked = {kernel: len(lines_at_fault(kernel)) for kernel in kernels}

    assert (marked.pop("sound_kernel"), marked.pop("handover_kernel")) == (0, 2)
    assert set(marked.values()) == {1}


def test_what_did_not_run_stays_as_it_is() -> None:
    page = "Before.\n\n| fault | memcheck | interpreter |\n| --- | --- | --- |\n| nothing | yes | yes |\n\nAfter.\n"
    cells = [Cell(fault="Sound", tool="interpreter", verdict="no"), Cell(fault="Load", tool="memcheck", verdict="line")]

    rows = columns_of(with_cells(page, table(cells)))

    assert rows["nothing"]["memcheck"] == "yes"
    assert rows["nothing"]["interpreter"] == "no"
    assert rows["a load one element behind the tensor"]["memcheck"] == "its line"
    assert rows["a load one element behind the tensor"]["racecheck"] == NOT_RUN
    assert tuple(rows["nothing"]) == COLUMNS
