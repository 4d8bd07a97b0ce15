from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from flopwatch.model import Case, Failure, KernelFacts
from flopwatch.report.static import MAX_NOTES, print_survey
from flopwatch.report.static_lines import sentence
from flopwatch.report.static_markdown import survey_markdown
from flopwatch.static.comparison import compare_facts
from flopwatch.static.recorder import Autotune
from flopwatch.survey import Drift, Gap, Held, LaunchWork, Survey

GOLDEN = Path(__file__).parent / "golden"
TOO_LARGE = Failure(kind="OutOfResources", message="out of resource: shared memory, Required: 262144")
CASE = Case(suite="Norm", values=("4096", "float16", "flopwatch"))
H200 = KernelFacts(
    kernel="matmul_kernel",
    device="h200",
    config="BLOCK_M=128,BLOCK_N=256,EVEN_K=False,num_stages=3,num_warps=8",
    variant="*fp16:16,*fp16:16,i32",
    chosen=True,
    registers=168,
    spill_store_bytes=0,
    spill_load_bytes=0,
    stack_bytes=0,
    shared_bytes=147456,
    num_warps=8,
    num_stages=3,
    occupancy=0.125,
    occupancy_limit="registers",
    code_fingerprint="0123",
    code_bytes=6144,
    instructions={"all": 384, "HGMMA.64x256x16.F32": 4, "HGMMA.64x128x16.F32": 2},
)
H100 = replace(H200, device="h100")
A100 = replace(
    H200,
    device="a100",
    registers=255,
    spill_store_bytes=96,
    spill_load_bytes=104,
    code_fingerprint="4567",
    instructions={"all": 900, "HMMA.16816.F32": 128},
)
TRIAL = replace(
    KernelFacts(
        kernel=H200.kernel, device="a100", config="BLOCK_M=256,num_stages=4", variant=H200.variant, chosen=False
    ),
    failure=TOO_LARGE,
)
ADD = replace(
    H200,
    kernel="add_kernel",
    config="BLOCK=1024,num_stages=3,num_warps=4",
    variant="*fp32:16,i32",
    shared_bytes=0,
    registers=18,
    occupancy=1.0,
    occupancy_limit="warps",
    instructions={"all": 40},
)
FACTS = Survey(
    base=None,
    head="working tree",
    devices=("a100", "h100", "h200"),
    autotune=Autotune.ALL,
    versions={"python": "3.12.3", "torch": "2.13.0", "triton": "3.7.1", "ptxas": "12.8.93"},
    cases=3,
    facts=(replace(ADD, device="h100"), ADD, A100, TRIAL, H100, H200),
    gaps=(Gap(side="head", device="a100", case=CASE, cause="x.item() needs a [bold]value[/bold]"),),
    recalled=7,
    seconds=12.345,
)
WORSE = tuple(
    replace(
        fact, registers=255, spill_store_bytes=512, code_fingerprint="89ab", instructions={"all": 2000, "FFMA": 512}
    )
    for fact in (H100, H200)
)
COMPARED = replace(
    FACTS,
    base="a1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
    head="0123456789abcdef0123456789abcdef01234567",
    facts=(replace(ADD, code_fingerprint="cdef"), A100, TRIAL, *WORSE),
    base_facts=(ADD, A100, TRIAL, H100, H200),
    fact_changes=compare_facts(
        (ADD, A100, TRIAL, H100, H200), (replace(ADD, code_fingerprint="cdef"), A100, TRIAL, *WORSE)
    ),
)
DRIFTS = tuple(
    Drift(
        kernel=H200.kernel,
        device=device,
        variant=H200.variant,
        config=H200.config,
        fact=fact,
        held=held,
        found=found,
    )
    for device in ("h100", "h200")
    for fact, held, found in (("registers", "168", "170"), ("instructions FFMA", "0", "48"))
)
DRIFTED = replace(FACTS, held=Held(path="static-facts.json", drifts=DRIFTS))
SURVEYS = {
    "facts": FACTS,
    "compared": COMPARED,
    "same": replace(FACTS, base=COMPARED.base, base_facts=FACTS.facts, gaps=()),
    "gap": replace(FACTS, base=COMPARED.base, base_facts=FACTS.facts),
    "drifted": DRIFTED,
    "other-triton": replace(
        FACTS, held=Held(path="static-facts.json", refusal="it is of triton 3.6.0, and this is triton 3.7.1")
    ),
    "unlaunchable": replace(FACTS, facts=(H200, replace(TRIAL, chosen=True)), autotune=Autotune.FIRST),
}


TRIED = {
    Autotune.ALL: "; no GPU was used",
    Autotune.PREDICTED: "; of autotuned kernels the configurations that a call would time; no GPU was used",
    Autotune.FIRST: "; the first configuration of each autotuned kernel alone; no GPU was used",
}


LAUNCH = LaunchWork(
    case=CASE,
    kernel="matmul_kernel",
    device="h200",
    variant=H200.variant,
    config=H200.config,
    grid=(512,),
    least_seconds=1.39e-4,
    limit="compute",
    dot_flops=137438953472,
    compulsory_bytes=100663296,
    waves=512 / 132,
    wave_reuse=9.0,
    imbalance=1.0,
)
LAUNCHES = replace(
    FACTS,
    launches=(
        LAUNCH,
        replace(LAUNCH, device="h100"),
        replace(LAUNCH, device="a100", limit="memory", dot_flops=0, waves=512 / 108, wave_reuse=None),
        LaunchWork(
            case=CASE,
            kernel="gluon_kernel",
            device="h200",
            variant="",
            config="",
            grid=(1,),
            unknown=("Gluon has no TTIR",),
        ),
    ),
)


def printed(survey: Survey, *, everything: bool = False, launches: bool = False) -> str:
    console = Console(file=io.StringIO(), width=140, color_system=None)
    print_survey(survey, console, everything=everything, launches=launches)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def golden(name: str, text: str) -> str:
    """Return the golden text; FLOPWATCH_GOLDEN=1 writes it."""
    path = GOLDEN / name
    if os.environ.get("FLOPWATCH_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SURVEYS)
def test_a_survey_in_a_terminal(name: str) -> None:
    text = printed(SURVEYS[name])
    assert golden(f"static-{name}.txt", text) == text


@pytest.mark.parametrize("name", ["facts", "compared", "drifted"])
def test_a_survey_as_markdown(name: str) -> None:
    text = survey_markdown(SURVEYS[name])
    assert golden(f"static-{name}.md", text) == text


def test_launches_are_shown_where_they_are_asked_for() -> None:
    text, markdown = printed(LAUNCHES, launches=True), survey_markdown(LAUNCHES, launches=True)
    assert golden("static-launches.txt", text) == text
    assert golden("static-launches.md", markdown) == markdown
    assert printed(LAUNCHES) == printed(FACTS)
    assert survey_markdown(LAUNCHES) == survey_markdown(FACTS)


def test_what_compiling_took_is_told_stage_by_stage_and_shares_rows_nevertheless() -> None:
    slow = replace(H200, compile_seconds={"ttir": 0.25, "cubin": 1.5})
    survey = replace(FACTS, facts=(replace(H100, compile_seconds={"ttir": 0.25, "cubin": 0.5}), slow, TRIAL))
    told = (
        "compiling took 2.500 s when it was done: ttir 500.0 ms, cubin 2.000 s; the longest 1.750 s, matmul_kernel"
        f" [{H200.config}] for h200"
    )
    assert told in printed(survey)
    assert "compiling took 2.500 s when it was done: ttir 500.0 ms" in survey_markdown(survey)
    assert "h100, h200" in printed(survey)
    assert "done, of base 1.750 s: ttir" in printed(replace(survey, base_facts=(slow,)))
    assert "compiling took" not in printed(FACTS)


def test_devices_for_which_nothing_differs_share_a_row() -> None:
    text = printed(FACTS)
    assert text.count("h100, h200") == 2
    assert "6 HGMMA" in text
    assert "128 HMMA" in text


def test_a_comparison_has_its_table_where_everything_is_asked_for() -> None:
    assert "6 KiB" not in printed(COMPARED)
    assert "6 KiB" in printed(COMPARED, everything=True)
    assert "| 255 |" not in survey_markdown(COMPARED)
    assert "| 255 |" in survey_markdown(COMPARED, everything=True)


def test_the_first_line_is_the_verdict_and_agrees_with_the_exit_code() -> None:
    words = {
        0: ("What is launched", "Nothing changed", "Nothing regressed", "No drift", "Written"),
        1: ("Regressed", "Drifted", "Does not compile or fit"),
        3: ("Not compared", "Undecided"),
    }
    for survey in SURVEYS.values():
        assert printed(survey).startswith(sentence(survey))
        assert sentence(survey).startswith(words[survey.exit_code])


def test_notes_are_cut_and_counted_but_never_a_warning() -> None:
    base = [replace(H200, config=f"BLOCK_M={number}") for number in range(20)]
    head = [replace(fact, registers=200, code_fingerprint="other") for fact in base]
    survey = replace(COMPARED, fact_changes=compare_facts(base, head), facts=tuple(head), gaps=())
    assert printed(survey).count("note: ") == MAX_NOTES
    assert "and 8 more notes; --all shows them." in printed(survey)
    assert printed(survey, everything=True).count("note: ") == 20
    spilling = [replace(fact, spill_store_bytes=64) for fact in head]
    warned = replace(survey, fact_changes=compare_facts(base, spilling))
    assert printed(warned).count("warn: ") == 20


@pytest.mark.parametrize("everything", [False, True])
def test_what_others_wrote_is_obeyed_nowhere(everything: bool) -> None:
    evil = "[red]x[/red]\x1b[2J|`<b>@all"
    fact = replace(H200, kernel=evil, config=f"A={evil}", variant=evil, occupancy_limit="")
    failed = replace(fact, device="a100", chosen=True, failure=Failure(kind=evil, message=f"{evil}\n::error::{evil}"))
    gap = Gap(side="head", device="h200", case=Case(suite="S", values=(evil,)), cause=evil)
    survey = replace(FACTS, facts=(fact, failed), gaps=(gap,))
    held = replace(survey, held=Held(path=evil, drifts=(replace(DRIFTS[0], kernel=evil, variant=evil),)))
    for found in (survey, held):
        text = printed(found, everything=everything)
        assert "\x1b" not in text
        assert "[red]" in text
        for line in survey_markdown(found, everything=everything).splitlines():
            assert "\x1b" not in line
            assert not line.lstrip().startswith("::")
            outside = "".join(line.split("`")[::2]) if not line.startswith(("drift", "does", "not")) else ""
            assert "<b>" not in outside


@pytest.mark.parametrize("autotune", Autotune, ids=str)
def test_which_configurations_were_compiled_is_told(autotune: Autotune) -> None:
    assert f"working tree{TRIED[autotune]}" in printed(replace(FACTS, autotune=autotune))
