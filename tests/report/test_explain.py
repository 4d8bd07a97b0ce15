from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from tests.explain.conftest import kernel_facts

from flopwatch.explain.pairing import pair_up
from flopwatch.explain.result import Difference, Explanation, Story
from flopwatch.model import Case
from flopwatch.report.explain import print_explanation
from flopwatch.report.explain_markdown import explanation_markdown
from flopwatch.report.explain_page import explanation_page
from flopwatch.report.explain_parts import MAX_ROWS, parts

if TYPE_CHECKING:
    from flopwatch.model import KernelFacts

DIFFERENCE = Difference(
    level="ttgir",
    base_source="src/kernels.py:112",
    head_source="src/kernels.py:114",
    lines=("- %a = ttg.local_alloc", "+ %a = tt.load %x"),
    removed=62,
    added=11,
)


def story(base: KernelFacts | None, head: KernelFacts | None) -> Story:
    (pair,) = pair_up([base] if base else [], [head] if head else [])
    return Story(pair=pair, differences=(DIFFERENCE,), alike=("ttir",), others=2)


FOUND = Explanation(
    case=Case(suite="Matmul", values=("4096x4096x4096", "float16", "flopwatch")),
    base="a1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
    head="working tree",
    device="h200",
    cause="num_stages=3 -> num_stages=1 in matmul_kernel",
    stories=(story(kernel_facts(), kernel_facts(stages=1)),),
    flops=137438953472.0,
    bytes_moved=100663296.0,
    gpu="NVIDIA H200",
    base_seconds=231.4e-6,
    head_seconds=346.9e-6,
    notes=("the result is about other commits",),
)


def printed(explanation: Explanation) -> str:
    console = Console(file=io.StringIO(), width=140)
    print_explanation(explanation, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_tells_the_cause_then_the_facts_then_the_lines() -> None:
    assert printed(FOUND) == (
        "Likely cause: num_stages=3 -> num_stages=1 in matmul_kernel.\n"
        "Matmul[4096x4096x4096,float16,flopwatch]; a1b2c3d4e5f6 -> working tree; compiled for h200\n"
        "\n"
        "matmul_kernel: what changed, in order of likely effect\n"
        "  note: num_stages=3 -> num_stages=1\n"
        "  warn: lost its pipelining: 36 LDGSTS -> none\n"
        "  2 more configurations of it changed; this one changed most\n"
        "\n"
        "matmul_kernel: configuration\n"
        "  base: BLOCK_M=128,num_stages=3,num_warps=8\n"
        "  head: BLOCK_M=128,num_stages=1,num_warps=8\n"
        "\n"
        "matmul_kernel: machine instructions\n"
        "class         base    head    base, in loops    head, in loops\n"
        "LDGSTS.128      36       0                 0                 0\n"
        "all            600     600               100               100\n"
        "  as many of each on both sides: HGMMA.64x256x16.F32\n"
        "\n"
        "matmul_kernel: TTGIR first differs at src/kernels.py:114 (base: src/kernels.py:112);"
        " 62 lines of base, 11 of head\n"
        "  - %a = ttg.local_alloc\n"
        "  + %a = tt.load %x\n"
        "\n"
        "matmul_kernel: the same on both sides\n"
        "  TTIR\n"
        "\n"
        "Roofline\n"
        "  1.374e+11 FLOPs and 96 MiB, 1365 FLOPs a byte: at best 138.9 µs on h200, bound by arithmetic, 989.4 TFLOPS\n"
        "  measured: base 231.4 µs, 593.9 TFLOPS, 60.0 % of the roofline; head 346.9 µs, 396.2 TFLOPS, 40.0 % of the"
        " roofline\n"
        "\n"
        "Notes\n"
        "  the result is about other commits\n"
    )


def test_markdown_keeps_what_is_somebody_else_s_in_code() -> None:
    text = explanation_markdown(replace(FOUND, cause="a | `b` @all"))
    assert text.splitlines()[0] == "### `Likely cause: a ¦ 'b' @all.`"
    assert "| class | base | head | base, in loops | head, in loops |\n|:--|--:|--:|--:|--:|\n| `LDGSTS.128` |" in text
    assert "```text\n- %a = ttg.local_alloc\n+ %a = tt.load %x\n```" in text


def test_the_page_colours_a_difference_and_needs_nothing_but_itself() -> None:
    page = explanation_page(FOUND)
    assert '<span class="slower">- %a = ttg.local_alloc</span>' in page
    assert "<title>flopwatch: Likely cause: num_stages=3 -&gt; num_stages=1 in matmul_kernel.</title>" in page
    assert "default-src 'none'" in page
    assert page.count("<h1>") == 1
    assert page.count("<svg") == 1
    assert "<svg" not in explanation_page(replace(FOUND, base_seconds=None, head_seconds=None))
    assert not any(word in page for word in ("<script", "<link", " href=", " src=", "url("))


@pytest.mark.parametrize("evil", ["<script>x</script>", "[red]x[/red]", "\x1b[2J", "::error::x", "```\n# x"])
def test_text_of_others_stays_text(evil: str) -> None:
    difference = replace(DIFFERENCE, lines=(f"- {evil}",), head_source=evil)
    first = replace(FOUND.stories[0], differences=(difference,))
    found = replace(FOUND, cause=evil, stories=(first,), notes=(evil,))
    texts = [printed(found), explanation_markdown(found), explanation_page(found)]
    assert "<script>" not in texts[2]
    assert all("\x1b" not in text and "\n# x" not in text for text in texts)
    assert "\n::error" not in texts[1] + texts[2]
    assert texts[1].count("```") % 2 == 0
    if evil.startswith("[red]"):
        assert "[red]x[/red]" in texts[0]


def test_a_kernel_of_one_side_and_one_of_equal_code_have_a_line_each() -> None:
    alone = story(None, kernel_facts(kernel="cast_kernel"))
    same = story(kernel_facts(), kernel_facts())
    titles = [part.title for part in parts(replace(FOUND, stories=(alone, same), notes=(), flops=0.0))]
    assert titles == ["cast_kernel: launched by head alone", "matmul_kernel: the same code"]


def test_a_rewrite_has_only_its_largest_rows() -> None:
    many = {f"MUFU{number}": number for number in range(1, MAX_ROWS + 10)}
    rewritten = kernel_facts(instructions={**many, "all": 5000})
    (table,) = [part for part in parts(replace(FOUND, stories=(story(kernel_facts(), rewritten),))) if part.rows]
    assert len(table.rows) == MAX_ROWS + 1
    assert table.rows[0][0] in {"LDGSTS.128", f"MUFU{MAX_ROWS + 9}"}
    assert table.lines[0] == "and of 11 more, less far"


def test_instructions_that_nobody_counted_are_told_to_be_missing() -> None:
    uncounted = kernel_facts(instructions={}, uncounted="Triton has no nvdisasm")
    lines = [part.lines for part in parts(replace(FOUND, stories=(story(uncounted, uncounted),)))]
    assert ("not counted: Triton has no nvdisasm",) not in lines  # of equal code nothing is compared
    other = replace(uncounted, registers=200, code_fingerprint="other")
    lines = [part.lines for part in parts(replace(FOUND, stories=(story(uncounted, other),)))]
    assert ("not counted: Triton has no nvdisasm",) in lines


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"gpu": None, "base_seconds": None, "head_seconds": None}, "not measured: flopwatch gate --json on a GPU"),
        ({"gpu": "Another GPU"}, "base 231.4 µs, head 346.9 µs; the peaks of the Another GPU are not known"),
        ({"flops": 1e6}, "bound by memory, 4800 GB/s"),
    ],
)
def test_the_roofline_says_what_is_known(changed: dict[str, object], expected: str) -> None:
    assert expected in printed(replace(FOUND, **changed))  # type: ignore[arg-type] # each is of its field's type
