from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from flopwatch.gate import GateResult
from flopwatch.model import Case, Failure, KernelFacts, Mark, Numbers
from flopwatch.report.terminal import headline, print_gate, reproduce
from flopwatch.static.comparison import compare_facts
from flopwatch.stats import estimate
from flopwatch.verdict import CaseVerdict, Side

GOLDEN = Path(__file__).parent / "golden"


def facts(registers: int, *, spills: int = 0, config: str = "BLOCK_M=128,num_stages=3,num_warps=8") -> KernelFacts:
    return KernelFacts(
        kernel="matmul_kernel",
        device="h200",
        config=config,
        variant="*fp16:16,i32:16",
        chosen=True,
        registers=registers,
        spill_store_bytes=spills,
        spill_load_bytes=spills,
        stack_bytes=0,
        shared_bytes=147456,
        num_warps=8,
        num_stages=3,
        occupancy=0.125,
        occupancy_limit="registers",
        code_fingerprint=f"{registers}",
    )


def verdict(name: str, mark: Mark | None, log_ratio: float | None = None, reason: str = "") -> CaseVerdict:
    numbers = Numbers(dtype="float16", max_diff=0.0078, max_diff_eps=0.5, finite=True, bitwise="00")
    case = Case(suite="Matmul", values=(name, "float16", "flopwatch"))
    side = Side(numbers=numbers, seconds=None if log_ratio is None else 231.4e-6)
    effect = None
    if log_ratio is not None:
        effect = estimate([log_ratio + jitter for jitter in (-0.001, -0.0005, 0.0, 0.0005, 0.001)], cases=3)
    return CaseVerdict(case=case, base=side, head=side, mark=mark, reason=reason, effect=effect)


LAPTOP = GateResult(
    base="a1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
    head="working tree",
    gpu=None,
    device="h200",
    versions={"python": "3.12.3", "torch": "2.13.0", "triton": "3.7.1"},
    facts=(facts(168),),
    base_facts=(facts(168),),
    fact_changes=(),
    verdicts=(verdict("33x65x47", None),),
    uncovered=(),
)
SPILLING = replace(
    LAPTOP, facts=(facts(255, spills=96),), fact_changes=compare_facts([facts(168)], [facts(255, spills=96)])
)
FAILED = Side(failure=Failure(kind="CompilationError", message="no [bold]such[/bold] thing"))
REGRESSED = replace(
    SPILLING,
    gpu="NVIDIA H200",
    verdicts=(
        verdict("4096x4096x4096", Mark.SLOWER, 0.018),
        verdict("16x4096x4096", Mark.SAME, 0.0001),
        verdict("2048x2048x2048", Mark.UNSURE, 0.0095),
        replace(verdict("1x1x1", Mark.BROKEN, reason="fails on head, runs on base"), head=FAILED),
        replace(verdict("7x7x7", None, reason="not compared: new, base does not have it"), base=FAILED),
    ),
)


def rendered(result: GateResult) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None, force_terminal=False)
    print_gate(result, console)
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(("name", "result"), [("laptop", LAPTOP), ("spilling", SPILLING), ("regressed", REGRESSED)])
def test_the_output_is_the_golden_file(name: str, result: GateResult) -> None:
    # To accept a change: write rendered(...) into the file, and read the diff as a user would.
    assert rendered(result) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_markup_in_foreign_text_is_shown_not_obeyed() -> None:
    hostile = replace(LAPTOP, verdicts=(verdict("[bold]x[/bold]", None, reason="[red]boo[/red]"),))
    assert "[bold]x[/bold]" in rendered(hostile)
    assert "[red]boo[/red]" in rendered(hostile)


def test_the_headline_names_the_worst_case() -> None:
    worse = replace(
        REGRESSED, verdicts=(verdict("a", Mark.SLOWER, 0.02), verdict("b", Mark.SLOWER, 0.05)), fact_changes=()
    )
    assert headline(worse) == "Regressed: 2 cases slower (worst: Matmul[b,float16,flopwatch], 5.13 % slower)."


def test_doubt_is_not_called_fine() -> None:
    unsure = replace(
        REGRESSED, verdicts=(verdict("a", Mark.SAME, 0.0), verdict("b", Mark.UNSURE, 0.0095)), fact_changes=()
    )
    assert headline(unsure) == "Undecided: 1 case unsure, 1 the same, none slower."


def test_every_accused_case_has_a_line_that_repeats_it() -> None:
    assert reproduce(REGRESSED)[0] == "flopwatch gate a1b2c3d4e5f6 -k 'Matmul[4096x4096x4096,float16,flopwatch]'"
    assert len(reproduce(REGRESSED)) == 3
