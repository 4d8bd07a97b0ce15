"""Plant faults, and see who finds which: ``python -m evidence.sanitizers OUT.json [--page docs/guide/sanitizing.md]``.

The kernels of `evidence.faults` have a fault each, but for one. Each runs under every sanitizer that can run here
(those of compute-sanitizer need a GPU, triton-viz has to be installed), under the numbers check of the gate and through
the traffic model of ``flopwatch static``; with --only some of them do. Written down after each is who finds something,
and whether it names the line; with --page also the columns of that page's table. Columns of what did not run stay as
they are.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.config import Config
from flopwatch.gate.pairs import Observer
from flopwatch.gate.static import select_cases
from flopwatch.measure.client import CaseFailed, Code, Mode, Worker
from flopwatch.model import SCHEMA_VERSION, to_json
from flopwatch.sanitize.looking import Looking
from flopwatch.sanitize.result import NOT_COVERED
from flopwatch.sanitize.run import has_gpu
from flopwatch.sanitize.tools import NVIDIA, Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from flopwatch.model import Case
    from flopwatch.sanitize import CaseReport

FAULTS = Path(__file__).parent / "faults"
#: The suites, and what the fault of each is called.
ROWS = {
    "Sound": "nothing",
    "Load": "a load one element behind the tensor",
    "Neighbour": "a load one element behind the tensor, where another begins",
    "Store": "a store one element behind the tensor",
    "Mask": "a load whose mask is missing, its value unused",
    "Gather": "a load whose index, read from memory, is too large",
    "View": "a load beside the columns of a view",
    "Accumulate": "a load of what nobody has written",
    "Short": "a grid one program short",
    "Race": "stores of several programs to one place",
    "Shift": "a load of what another program stores",
    "Handover": "a load of shared memory that other warps store to meanwhile",
    "Barrier": "a barrier that some threads of a warp pass by",
}
#: What looks beside the sanitizers.
NUMBERS, TRAFFIC = "numbers check", "traffic model"
COLUMNS = (*(tool.value for tool in (*NVIDIA, Tool.INTERPRETER, Tool.TRITON_VIZ)), NUMBERS, TRAFFIC)
NOT_RUN = "not run yet"
#: What a tool cannot run, or read, such as Gluon in the interpreter: it may be sound or not.
UNCOVERED = "not covered"
SEEDS = (0, 1, 2)
_FIRST = "fault"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Who found what.

    Attributes:
        fault: the suite's name.
        tool: a column.
        verdict: "line" where the line at fault is named, "found" where something is told, "no", "failed", or
            "uncovered" where it cannot run such a kernel, or not read it.
        what: it said first.
    """

    fault: str
    tool: str
    verdict: str
    what: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All that was found, on which machine."""

    recorded: str
    gpu: str | None
    versions: dict[str, str]
    cells: tuple[Cell, ...]
    schema_version: int = SCHEMA_VERSION


def main(arguments: list[str]) -> None:
    """Compare, and write the file."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.sanitizers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--page", type=Path, help="whose table gets what is found")
    parser.add_argument("--only", metavar="COLUMN,...", help=f"of {', '.join(COLUMNS)}")
    options = parser.parse_args(arguments)
    columns = runnable()
    if options.only:
        wanted = options.only.split(",")
        if unknown := [name for name in wanted if name not in columns]:
            parser.error(f"{', '.join(unknown)} cannot run here; these can: {', '.join(columns)}")
        columns = tuple(wanted)
    for comparison in compare(columns):
        options.out.write_bytes(to_json(comparison, indent=1) + b"\n")
        if options.page:
            page = options.page.read_text(encoding="utf-8")
            options.page.write_text(with_cells(page, table(comparison.cells)), encoding="utf-8")
    for cell in comparison.cells:
        sys.stdout.write(f"{cell.fault}, {cell.tool}: {cell.verdict} {cell.what}\n".replace(" \n", "\n"))


def runnable() -> tuple[str, ...]:
    """Return the columns that can be filled here."""
    wanted = [tool.value for tool in NVIDIA] if has_gpu() else []
    wanted.append(Tool.INTERPRETER.value)
    if importlib.util.find_spec("triton_viz") is not None:
        wanted.append(Tool.TRITON_VIZ.value)
    return (*wanted, NUMBERS, TRAFFIC)


def compare(columns: Sequence[str]) -> Iterator[Comparison]:
    """Have each of these look at every planted fault; yield what is known after each."""
    code = Code(benchmarks=FAULTS)
    with Worker(Mode.STATIC, code) as worker:
        hello = worker.hello
        cases = [entry.case for entry in select_cases(hello, "")]
    known: list[Cell] = []
    for column in columns:
        known += _look(column, code, cases)
        yield Comparison(
            recorded=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            gpu=hello.gpu,
            versions=hello.versions,
            cells=tuple(sorted(known, key=lambda cell: COLUMNS.index(cell.tool))),
        )


def _look(column: str, code: Code, cases: Sequence[Case]) -> list[Cell]:
    if column in (TRAFFIC, NUMBERS):
        mode, judge = (Mode.STATIC, _modelled) if column == TRAFFIC else (Mode.INTERPRET, _checked)
        with Worker(mode, code) as worker:
            return [judge(worker, case) for case in cases]
    with tempfile.TemporaryDirectory() as folder:
        return [cell_of(report) for report in Looking(Tool(column), code, Path(folder)).at(cases, Observer())]


def cell_of(report: CaseReport) -> Cell:
    """Judge what a sanitizer found."""
    fault, tool = report.case.suite, report.tool.value
    own = [finding for finding in report.findings if finding.own]
    for finding in own:
        if finding.line and finding.line in lines_at_fault(finding.kernel):
            return Cell(fault=fault, tool=tool, verdict="line", what=finding.what)
    if own:
        return Cell(fault=fault, tool=tool, verdict="found", what=own[0].what)
    if report.failure is not None:
        verdict = "uncovered" if report.is_not_covered else "failed"
        return Cell(fault=fault, tool=tool, verdict=verdict, what=report.failure.message)
    return Cell(fault=fault, tool=tool, verdict="no")


def lines_at_fault(kernel: str) -> set[int]:
    """Return the lines of a planted kernel, and of its parts above it, that end with the word FAULT."""
    name, lines, found = "", set[int](), dict[str, set[int]]()
    for number, line in enumerate((FAULTS / "kernels.py").read_text(encoding="utf-8").splitlines(), start=1):
        if named := re.match(r"def (\w+)\(", line):
            if not name.startswith("_"):
                lines = set()
            name = named[1]
            found[name] = lines
        if line.endswith("FAULT"):
            lines.add(number)
    return found.get(kernel, set())


def _modelled(worker: Worker, case: Case) -> Cell:
    """Judge what the traffic model says of a case's launches."""
    launches = worker.compile(case).traffic
    for launch in launches:
        for stray in launch.out_of_bounds:
            named = re.search(r":(\d+)$", stray.where)
            line = int(named[1]) if named else 0
            verdict = "line" if line in lines_at_fault(launch.kernel) else "found"
            return Cell(fault=case.suite, tool=TRAFFIC, verdict=verdict, what=f"{stray.operation} at {stray.where}")
    if not any(launch.coverage for launch in launches):
        why = "; ".join(reason for launch in launches for reason in launch.uncovered)
        return Cell(fault=case.suite, tool=TRAFFIC, verdict="uncovered", what=why)
    return Cell(fault=case.suite, tool=TRAFFIC, verdict="no")


def _checked(worker: Worker, case: Case) -> Cell:
    """Judge a case by its results, as the gate does without a GPU."""
    for seed in SEEDS:
        try:
            numbers = worker.numbers(case, seed=seed)
        except CaseFailed as error:
            if error.failure.kind == NOT_COVERED:
                return Cell(fault=case.suite, tool=NUMBERS, verdict="uncovered", what=error.failure.message)
            return Cell(fault=case.suite, tool=NUMBERS, verdict="found", what=str(error))
        if numbers.max_diff_eps is None or numbers.max_diff_eps > Config().max_diff_eps:
            what = "not finite" if numbers.max_diff_eps is None else f"{numbers.max_diff_eps:.3g} eps off"
            return Cell(fault=case.suite, tool=NUMBERS, verdict="found", what=what)
    return Cell(fault=case.suite, tool=NUMBERS, verdict="no")


def table(cells: Iterable[Cell]) -> dict[str, dict[str, str]]:
    """Return the words of the table: fault -> column -> word."""
    words = {"line": "its line", "found": "yes", "no": "no", "failed": "failed", "uncovered": UNCOVERED}
    found: dict[str, dict[str, str]] = {}
    for cell in cells:
        found.setdefault(ROWS[cell.fault], {})[cell.tool] = words[cell.verdict]
    return found


def with_cells(page: str, found: Mapping[str, Mapping[str, str]]) -> str:
    r"""Return the page with what was found in its table; other cells stay, and are `NOT_RUN` where there are none.

    >>> page = "| fault | memcheck | interpreter |\n| --- | --- | --- |\n| a race | no | no |\n"
    >>> print(with_cells(page, {"a race": {"interpreter": "its line"}}).splitlines()[2][:54])
    | a race | no | not run yet | not run yet | not run ye
    """
    lines = page.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"| {_FIRST} |"))
    end = next((index for index in range(start, len(lines)) if not lines[index].startswith("|")), len(lines))
    before = columns_of(page)
    rows = [[_FIRST, *COLUMNS], ["---"] * (len(COLUMNS) + 1)]
    for fault in dict.fromkeys([*found, *before]):
        known = {**before.get(fault, {}), **found.get(fault, {})}
        rows.append([fault, *(known.get(column, NOT_RUN) for column in COLUMNS)])
    return "\n".join([*lines[:start], *(f"| {' | '.join(row)} |" for row in rows), *lines[end:]]) + "\n"


def columns_of(page: str) -> dict[str, dict[str, str]]:
    """Return the table of a page: fault -> column -> word."""
    lines = page.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"| {_FIRST} |"))
    end = next((index for index in range(start, len(lines)) if not lines[index].startswith("|")), len(lines))
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


if __name__ == "__main__":
    main(sys.argv[1:])
