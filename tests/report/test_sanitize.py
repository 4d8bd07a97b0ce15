from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from flopwatch.model import Case, Failure
from flopwatch.report.sanitize import print_sanitized
from flopwatch.report.sanitize_markdown import sanitized_markdown
from flopwatch.report.sanitized import sentence
from flopwatch.sanitize import CaseReport, Finding, Kind, Sanitized, Tool
from flopwatch.sanitize.tools import NVIDIA

CASES = tuple(Case(suite="Scale", values=("1000", dtype, "flopwatch")) for dtype in ("float16", "float32"))
FAULT = Finding(
    kind=Kind.OUT_OF_BOUNDS,
    what="program (3, 0, 0) reads 4 bytes, the first byte after x, float32[1000]",
    kernel="scale_kernel",
    file="src/toykernels/__init__.py",
    line=12,
    count=24,
)


def result(*reports: CaseReport) -> Sanitized:
    return Sanitized(
        head="working tree",
        gpu=None,
        tools={"interpreter": "0.1.0"},
        versions={"triton": "3.7.1"},
        selected=7,
        reports=reports,
        seconds=4.5,
    )


def clean(case: Case) -> CaseReport:
    return CaseReport(case=case, tool=Tool.INTERPRETER)


def printed(record: Sanitized) -> list[str]:
    file = io.StringIO()
    print_sanitized(record, Console(file=file, width=200))
    return file.getvalue().splitlines()


def test_a_fault_that_several_cases_show_is_told_once() -> None:
    record = result(*(replace(clean(case), findings=(FAULT,)) for case in CASES))

    fault = f"fault: out of bounds: scale_kernel, src/toykernels/__init__.py:12: {FAULT.what} (24 times)"
    assert printed(record) == [
        "Faulty: 1 fault in scale_kernel, found by interpreter.",
        "working tree; no GPU; interpreter 0.1.0; triton 3.7.1; 7 cases, which are 2 at their small sizes; 4.500 s",
        f"{fault} [Scale[1000,float16,flopwatch] and 1 more]",
    ]


def test_cases_at_full_size_stand_for_themselves() -> None:
    assert "; 7 cases at full size; " in printed(replace(result(clean(CASES[0])), full=True))[1]


def test_what_is_clean_says_what_was_not_covered_or_checked() -> None:
    uncovered = replace(clean(CASES[0]), failure=Failure(kind="NotCovered", message="inline_asm"))
    noted = replace(clean(CASES[1]), notes=("k uses atomics",))

    assert printed(result(uncovered, noted))[0] == "Clean: interpreter found no fault in 1 case, 1 not covered."
    assert printed(result(uncovered, noted))[2:] == [
        "not covered: Scale[1000,float16,flopwatch]: interpreter: NotCovered: inline_asm",
        "Scale[1000,float32,flopwatch]: k uses atomics",
    ]


def test_a_case_that_failed_leaves_it_undecided() -> None:
    broken = replace(clean(CASES[0]), failure=Failure(kind="RuntimeError", message="no [red]scale[/red]"))

    assert sentence(result(broken, clean(CASES[1]))) == "Undecided: 1 case could not be looked at."
    assert printed(result(broken))[2] == (
        "not run: Scale[1000,float16,flopwatch]: interpreter: RuntimeError: no [red]scale[/red]"
    )


def test_a_case_that_several_tools_looked_at_counts_once() -> None:
    nvidia = [replace(clean(CASES[0]), tool=tool) for tool in NVIDIA]
    broken = [replace(report, failure=Failure(kind="ToolFailed", message="no end")) for report in nvidia]
    uncovered = [replace(report, failure=Failure(kind="NotCovered", message="inline_asm")) for report in nvidia]

    assert sentence(result(*broken)) == "Undecided: 1 case could not be looked at."
    assert sentence(result(*uncovered)) == "Undecided: 1 case could not be looked at."
    assert sentence(result(*uncovered, clean(CASES[1]))).endswith("in 1 case, 1 not covered.")


def test_only_who_found_something_is_said_to_have() -> None:
    found = replace(clean(CASES[0]), tool=Tool.RACECHECK, findings=(FAULT,))
    record = replace(
        result(replace(found, tool=Tool.MEMCHECK, findings=()), found), tools={"memcheck": "", "racecheck": ""}
    )

    assert sentence(record) == "Faulty: 1 fault in scale_kernel, found by racecheck."


def test_a_fault_in_another_s_kernel_is_told_and_accuses_nobody() -> None:
    record = result(replace(clean(CASES[0]), findings=(replace(FAULT, own=False, kernel="fill", file="", line=0),)))

    assert printed(record)[0] == "Clean: interpreter found no fault in 1 case."
    assert printed(record)[2].startswith("in another's code: out of bounds: fill: program")


@pytest.mark.parametrize("hostile", ["```\n::error::no", "\x1b[2Jx", "<script>@all #1"])
def test_somebody_else_s_words_stay_in_their_block(hostile: str) -> None:
    text = sanitized_markdown(result(replace(clean(CASES[0]), findings=(replace(FAULT, what=hostile),))))

    assert text.startswith("### Faulty: 1 fault in scale\\_kernel, found by interpreter.\n")
    assert text.count("```") == 2
    assert "\x1b" not in text
    assert "\n::error" not in text


def test_clean_markdown_has_no_block() -> None:
    assert "```" not in sanitized_markdown(result(clean(CASES[0])))
