"""Results of gates, made by hand: one for each thing that a report has to say."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, field, replace

import pytest

from flopwatch.gate import CaseKernels, CaseVerdict, GateResult, PairLog, Uncovered
from flopwatch.gate.conclusions import (
    CONFIRM,
    CONFIRM_ROUNDS,
    PATH,
    SCREEN_ROUNDS,
    Beside,
    Look,
    Verdict,
    WatchedConclusion,
)
from flopwatch.measure.machine import Gpu, Machine
from flopwatch.model import Case, Choice, Failure, KernelFacts, Mark, Memory, Numbers
from flopwatch.static.comparison import compare_facts
from flopwatch.stats import Design, SeriesResult
from flopwatch.verdict import Side
from flopwatch.waivers import Timed, Waiver, apply_waivers

MARGIN = math.log1p(0.005)
DESIGN = Design()
SHAPES = ("512x512x512", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096", "16x4096x4096")
WIDE = "BLOCK_M: 128, BLOCK_N: 256, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None"
NARROW = WIDE.replace("num_stages: 3", "num_stages: 1")


def facts(registers: int, *, spills: int = 0, stages: int = 3, dtype: str = "fp16") -> KernelFacts:
    return KernelFacts(
        kernel="matmul_kernel",
        device="h200",
        config=f"BLOCK_M=128,BLOCK_N=256,EVEN_K=True,num_stages={stages},num_warps=8",
        variant=f"*{dtype}:16,*{dtype}:16,*{dtype}:16,i32:16",
        chosen=True,
        registers=registers,
        spill_store_bytes=spills,
        spill_load_bytes=spills,
        stack_bytes=0,
        shared_bytes=147456,
        num_warps=8,
        num_stages=stages,
        occupancy=0.125,
        occupancy_limit="registers",
        code_fingerprint=f"{registers}-{stages}-{dtype}",
    )


def series(
    mark: Mark, estimate: float, *, spread: float = 0.0035, deviation: float = 0.002, inside_margin: bool = False
) -> SeriesResult:
    return SeriesResult(
        mark=mark,
        estimate=estimate,
        lower=estimate - spread,
        upper=estimate + spread,
        pairs=DESIGN.pairs,
        deviation=deviation,
        detectable=MARGIN + 2 * deviation,
        inside_margin=inside_margin,
        p_slower=0.0001 if mark is Mark.SLOWER else 0.7,
        p_faster=0.0001 if mark is Mark.FASTER else 0.7,
        confirm_p=0.0001 if mark in (Mark.SLOWER, Mark.FASTER) else None,
    )


def numbers(max_diff_eps: float, bits: str = "00") -> Numbers:
    return Numbers(dtype="float16", max_diff=max_diff_eps / 64, max_diff_eps=max_diff_eps, finite=True, bitwise=bits)


def timed(shape: str, mark: Mark, change: float, *, config: str = WIDE, dtype: str = "float16") -> CaseVerdict:
    """Make a case whose sides return the same bits and that was timed; its calls cost the host what they did."""
    base = Side(
        bits=tuple(f"float16 (64, 48) {seed:016x}" for seed in range(3)),
        seconds=231.4e-6,
        launch_seconds=9.8e-6,
        memory=Memory(peak_bytes=1 << 25, growth_bytes=0.0),
        choices=(Choice(kernel="matmul_kernel", config=WIDE),),
    )
    head = replace(base, seconds=231.4e-6 * math.exp(change), choices=(Choice(kernel="matmul_kernel", config=config),))
    m, n, k = map(int, shape.split("x"))
    return CaseVerdict(
        case=Case(suite="Matmul", values=(shape, dtype, "flopwatch")),
        base=base,
        head=head,
        mark=mark,
        time=series(mark, change),
        launch=series(Mark.SAME, 0.001),
        method="graph",
        margin=MARGIN,
        flops=2.0 * m * n * k,
        bytes_moved=2.0 * (m * k + k * n + m * n),
    )


def small(shape: str, eps: float = 0.5, reason: str = "") -> CaseVerdict:
    """Make a case as it is where there is no GPU."""
    side = Side(numbers=numbers(eps))
    return CaseVerdict(
        case=Case(suite="Matmul", values=(shape, "float16", "flopwatch")), base=side, head=side, reason=reason
    )


def identical(shape: str) -> CaseVerdict:
    return CaseVerdict(
        case=Case(suite="Matmul", values=(shape, "float16", "flopwatch")), mark=Mark.SAME, identical=True
    )


def pairs(number: int, stage: str = "screen", cases: int = 5) -> tuple[PairLog, ...]:
    log = PairLog(
        stage=stage,
        head_slot=1,
        seconds=1.5 + 0.2 * cases,
        log_ratios={f"case {index}": 0.0 for index in range(cases)},
        launch_log_ratios={},
        faults={},
    )
    return (log,) * number


LAPTOP = GateResult(
    base="a1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
    head="working tree",
    gpu=None,
    device="h200",
    versions={"python": "3.12.3", "torch": "2.13.0", "triton": "3.7.1"},
    facts=(facts(168),),
    base_facts=(facts(168),),
    fact_changes=(),
    verdicts=(small("33x65x47"),),
    seconds=21.4,
)
SPILLING = replace(
    LAPTOP,
    facts=(facts(255, spills=96),),
    fact_changes=compare_facts([facts(168)], [facts(255, spills=96)]),
    verdicts=(replace(small("33x65x47"), head=Side(numbers=numbers(0.75, bits="01"))),),
    uncovered=(
        Uncovered(side="base", case=small("1x1x1").case, cause="x.item() needs a value"),
        Uncovered(side="head", case=small("1x1x1").case, cause="x.item() needs a value"),
    ),
)
CLEAN = replace(
    LAPTOP,
    gpu="NVIDIA H200",
    machine=Machine(
        gpu=Gpu(name="NVIDIA H200", uuid="GPU-4a1f6e2c", driver="580.159.04"),
        versions={"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "cuda": "13.0", "ptxas": "12.8.93"},
        cpu_model="Intel(R) Xeon(R) Platinum 8480+",
        cpu_count=16,
    ),
    verdicts=(
        *(timed(shape, Mark.SAME, 0.0002) for shape in SHAPES[:2]),
        replace(timed(SHAPES[2], Mark.SAME, 0.0002), time=series(Mark.SAME, 0.0002, deviation=0.003)),
        replace(
            timed(SHAPES[3], Mark.SAME, 0.003),
            time=series(Mark.SAME, 0.003, spread=0.001, deviation=0.001, inside_margin=True),
            notes=("peak memory 36 MiB, was 32 MiB",),
        ),
        timed(SHAPES[4], Mark.FASTER, -0.03),
        *(identical(f"{size}x{size}x{size}") for size in range(3, 44)),
    ),
    suite=series(Mark.SAME, 0.0002),
    pairs=pairs(DESIGN.first_look, cases=8),
    seconds=31.2,
    notes=("measured though identical, as a check on the machine: Matmul[3x3x3,float16,flopwatch]",),
)
CHANGED = (facts(255, spills=96, stages=1), facts(168, dtype="bf16"))


def kernels(shape: str, position: int, dtype: str = "float16") -> CaseKernels:
    """Say that a case launches one kernel, whose facts are at the same position on both sides."""
    case = Case(suite="Matmul", values=(shape, dtype, "flopwatch"))
    return CaseKernels(case=case, base=(position,), head=(position,))


SLOWER = replace(
    CLEAN,
    head="0123456789abcdef0123456789abcdef01234567",
    facts=CHANGED,
    base_facts=(facts(168), facts(168, dtype="bf16")),
    fact_changes=compare_facts([facts(168), facts(168, dtype="bf16")], CHANGED),
    kernels=(*(kernels(shape, 0) for shape in SHAPES[:3]), kernels(SHAPES[3], 1, "bfloat16")),
    verdicts=(
        timed(SHAPES[0], Mark.SAME, 0.0002),
        replace(
            timed(SHAPES[1], Mark.SLOWER, 0.018, config=NARROW),
            notes=("configuration changed: matmul_kernel from num_stages: 3 to num_stages: 1",),
        ),
        timed(SHAPES[2], Mark.SLOWER, 0.405, config=NARROW),
        replace(
            timed(SHAPES[3], Mark.SLOWER, 0.0001, dtype="bfloat16"),
            reason="a call costs the host more",
            time=series(Mark.SAME, 0.0001),
            launch=series(Mark.SLOWER, 0.11),
            head=replace(timed(SHAPES[3], Mark.SAME, 0.0001).head, launch_seconds=10.94e-6),
        ),
    ),
    suite=series(Mark.SLOWER, 0.0102, spread=0.001),
    pairs=(*pairs(DESIGN.pairs), *pairs(DESIGN.confirm_pairs, "confirm")),
    seconds=91.2,
)
UNSURE = replace(
    CLEAN,
    verdicts=(
        timed(SHAPES[0], Mark.SAME, 0.0002),
        replace(timed(SHAPES[1], Mark.UNSURE, 0.004), time=series(Mark.UNSURE, 0.004, spread=0.006)),
        replace(timed(SHAPES[2], Mark.UNSURE, 0.0074), time=series(Mark.UNSURE, 0.0074, spread=0.006, deviation=0.004)),
        replace(timed(SHAPES[3], Mark.UNSURE, 0.0075), time=series(Mark.UNSURE, 0.0075, spread=0.1, deviation=0.08)),
        replace(
            timed(SHAPES[4], Mark.UNSURE, 0.0), reason="fails while it is measured (WorkerDied: signal 11)", time=None
        ),
    ),
    pairs=(*pairs(DESIGN.pairs), *pairs(DESIGN.settle_pairs, "settle", cases=3)),
    seconds=96.4,
)
GONE = Failure(kind="CompilationError", message="no [bold]such[/bold] thing")
BROKEN = replace(
    CLEAN,
    verdicts=(
        timed(SHAPES[0], Mark.SAME, 0.0002),
        replace(
            timed(SHAPES[1], Mark.BROKEN, 0.0002),
            base=Side(bits=("00",), numbers=numbers(0.5)),
            head=Side(bits=("01",), numbers=numbers(12.0, bits="01")),
            reason="error 12 eps, was 0.5, ceiling 2",
            time=series(Mark.SAME, 0.0002),
        ),
        replace(
            timed(SHAPES[2], Mark.SAME, 0.0003),
            base=Side(bits=("00",), numbers=numbers(0.5), seconds=231.4e-6),
            head=Side(bits=("01",), numbers=numbers(0.5, bits="01"), seconds=231.4e-6),
        ),
        *(
            replace(
                small(shape, reason="fails on head, runs on base (CompilationError: no [bold]such[/bold] thing)"),
                mark=Mark.BROKEN,
                head=Side(failure=GONE),
            )
            for shape in ("1x1x1", "3x3x3")
        ),
        replace(small("7x7x7", reason="not compared: new, base does not have it"), base=Side(failure=GONE)),
    ),
)
UNFIT = replace(
    CLEAN,
    verdicts=tuple(replace(timed(shape, Mark.UNSURE, 0.01), reason="the machine is unfit") for shape in SHAPES),
    suite=None,
    unfit="the GPU is used by another process (99) (it takes turns with what is measured): stop it",
)
INTERRUPTED = replace(
    CLEAN,
    verdicts=tuple(
        replace(timed(shape, Mark.UNSURE, 0.001 * index), reason="the run was interrupted", launch=None)
        for index, shape in enumerate(SHAPES, start=3)
    ),
    suite=None,
    interrupted=True,
    pairs=pairs(5),
    seconds=19.0,
    notes=(),
)
ALL_IDENTICAL = replace(CLEAN, verdicts=tuple(map(identical, SHAPES)), suite=None, pairs=(), seconds=12.3, notes=())


def look(stage: str, side: str, verdict: Verdict, slower: float) -> Look:
    number = CONFIRM_ROUNDS if stage == CONFIRM else SCREEN_ROUNDS
    rounds = tuple(slower + 0.001 * (turn % 3 - 1) for turn in range(number))
    beside = (Beside(other="flopwatch none", at="12288", log_ratios=(-0.1,) * 8),)
    return Look(
        stage=stage,
        side=side,
        verdict=verdict,
        beside=(*beside, Beside(other="flopwatch 16", at="16384", log_ratios=rounds)),
    )


def conclusion(says: str, *slower: float, verdicts: str = "", reason: str = "") -> WatchedConclusion:
    of_letter = {"H": Verdict.HOLDS, "F": Verdict.FAILS, "?": Verdict.UNSURE}
    looks = tuple(
        look(stage, side, of_letter[letter], change)
        for (stage, side, _), letter, change in zip(PATH, verdicts, slower, strict=False)
    )
    return WatchedConclusion(study="L2Swizzle", says=says, line="flopwatch 8", percent=1.0, looks=looks, reason=reason)


CONCLUDED = replace(
    CLEAN,
    conclusions=(
        conclusion("groups of 8 are faster than tiles row by row", -0.05, verdicts="H"),
        conclusion("groups of 8 need no waves", 0.04, 0.05, verdicts="FF"),
        conclusion("groups of 8 are within 1 % of the best", 0.031, -0.006, -0.005, 0.03, verdicts="FHHF"),
        conclusion("groups of 8 are [red]old[/red]", 0.009, verdicts="?"),
        conclusion("groups of 8 are even", reason="a suite cannot be imported (l2_swizzle.py: `SyntaxError`)"),
        replace(conclusion("panels of 10 are faster than none"), identical=True),
    ),
)


def on(today: dt.date) -> GateResult:
    """Make a run with a slower case whose waiver holds until the end of the year, on a given day."""
    waiver = Waiver(
        case="Matmul[1024*",
        reason="64-bit [red]offsets[/red]",
        owner="Ada",
        until=dt.date(2026, 12, 31),
        limit_percent=5.0,
    )
    old = Waiver(case="Attention*", reason="gone", owner="Bo", until=dt.date(2027, 6, 30), limit_percent=1.0)
    verdicts = (timed(SHAPES[0], Mark.SAME, 0.0002), timed(SHAPES[1], Mark.SLOWER, 0.018))
    if today > waiver.until:
        verdicts = (verdicts[0], timed(SHAPES[1], Mark.SAME, 0.0002))
    measured = [
        Timed(case_id=verdict.case.id, mark=found.mark, log_ratio=found.estimate or 0.0, lower=found.lower or 0.0)
        for verdict in verdicts
        if (found := verdict.time) is not None
    ]
    cases = [verdict.case.id for verdict in verdicts]
    uses = apply_waivers([waiver, old], measured, declared=cases, selected=cases, today=today)
    return replace(CLEAN, verdicts=verdicts, waivers=uses, notes=())


@dataclass(frozen=True, kw_only=True, slots=True)
class Gates:
    """What tests start from, by name."""

    laptop: GateResult = LAPTOP
    spilling: GateResult = SPILLING
    clean: GateResult = CLEAN
    slower: GateResult = SLOWER
    unsure: GateResult = UNSURE
    broken: GateResult = BROKEN
    unfit: GateResult = UNFIT
    interrupted: GateResult = INTERRUPTED
    identical: GateResult = ALL_IDENTICAL
    concluded: GateResult = CONCLUDED
    waived: GateResult = field(default_factory=lambda: on(dt.date(2026, 12, 1)))
    expired: GateResult = field(default_factory=lambda: on(dt.date(2027, 1, 3)))


@pytest.fixture
def gates() -> Gates:
    return Gates()
