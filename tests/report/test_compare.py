from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from flopwatch.compare import ComparedCase, Comparison, Contender, Kind, Speed
from flopwatch.gate.result import PairLog
from flopwatch.measure.machine import Gpu, Machine
from flopwatch.model import Case, Numbers
from flopwatch.report.compare import headline, print_compare, rate

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0"}


def contender(suite: str, values: str, provider: str, seconds: float | None, eps: float) -> Contender:
    return Contender(
        case=Case(suite=suite, values=(*values.split(","), provider)),
        numbers=Numbers(dtype="float16", max_diff=eps / 1000, max_diff_eps=eps, finite=True, bitwise="0"),
        seconds=seconds,
        launch_seconds=None if seconds is None else 9.8e-6 if provider == "flopwatch" else 5.2e-6,
    )


def speed(ratio: float) -> Speed:
    return Speed(estimate=math.log(ratio), lower=math.log(ratio - 0.004), upper=math.log(ratio + 0.005), pairs=8)


def compared(values: str, *, ratio: float, seconds: float, flops: float, moved: float) -> ComparedCase:
    suite = "Matmul"
    return ComparedCase(
        base=contender(suite, values, "torch", seconds * ratio, 0.44),
        head=contender(suite, values, "flopwatch", seconds, 0.48),
        flops=flops,
        bytes_moved=moved,
        ceiling_eps=2.0,
        speed=speed(ratio),
        method="graph",
    )


LARGE = compared("8192x8192x8192,float16", ratio=1.052, seconds=1.49e-3, flops=2 * 8192.0**3, moved=6 * 8192.0**2)
SKINNY = compared("16x4096x4096,float16", ratio=0.874, seconds=13.7e-6, flops=32 * 4096.0**2, moved=2 * 4096.0**2)
WRONG = replace(
    LARGE,
    base=contender("Matmul", "777x1234x5678,float16", "torch", None, 6.1),
    head=contender("Matmul", "777x1234x5678,float16", "flopwatch", None, 0.48),
    speed=None,
    reason="torch is wrong: error 6.1 eps, ceiling 2",
)
PAIR = PairLog(stage="compare", head_slot=1, seconds=13.2, log_ratios={}, launch_log_ratios={}, faults={})
PROVIDERS = Comparison(
    kind=Kind.PROVIDERS,
    base="torch",
    head="flopwatch",
    gpu="NVIDIA H200",
    machine=Machine(
        gpu=Gpu(name="NVIDIA H200", uuid="GPU-4a1f6e2c", driver="580.159.04"),
        versions={**VERSIONS, "cuda": "13.0", "ptxas": "12.8.93"},
        cpu_model="Intel(R) Xeon(R) Platinum 8480+",
        cpu_count=16,
    ),
    base_versions=VERSIONS,
    head_versions=VERSIONS,
    cases=(LARGE, SKINNY, WRONG),
    speed=speed(0.959),
    pairs=(PAIR,) * 8,
    command="flopwatch compare --provider flopwatch --provider torch -k Matmul",
    seconds=131.0,
)
ENVIRONMENTS = replace(
    PROVIDERS,
    kind=Kind.ENVIRONMENTS,
    base="/old/bin/python",
    head="/new/bin/python",
    head_versions={**VERSIONS, "triton": "3.9.0"},
    cases=(
        replace(
            LARGE,
            base=replace(LARGE.head, seconds=1.58e-3),
            notes=("configuration changed: matmul_kernel from num_stages: 3 to num_stages: 4",),
        ),
    ),
    speed=LARGE.speed,
    command="flopwatch compare --base-python /old/bin/python --head-python /new/bin/python -k 8192x8192x8192",
    notes=("workers start anew, 3 s slower: head: CUDA was initialised while the suites were imported",),
)
FEW = replace(
    PROVIDERS,
    kind=Kind.COMMITS,
    base="a1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
    head="working tree",
    cases=(replace(LARGE, base=LARGE.head, speed=Speed(estimate=0.001, lower=None, upper=None, pairs=2)),),
    speed=Speed(estimate=0.001, lower=None, upper=None, pairs=2),
    pairs=(PAIR,) * 2,
    interrupted=True,
    command="flopwatch compare a1b2c3d4e5f6 -k Matmul",
)
UNFIT = replace(PROVIDERS, unfit="the GPU is used by another process (99) (it takes turns): stop it")
NOTHING = replace(PROVIDERS, cases=(WRONG,), speed=None, pairs=())


def rendered(comparison: Comparison) -> str:
    console = Console(file=io.StringIO(), width=140, color_system=None, force_terminal=False)
    print_compare(comparison, console)
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(
    ("name", "comparison"),
    [
        ("providers", PROVIDERS),
        ("environments", ENVIRONMENTS),
        ("few", FEW),
        ("unfit", UNFIT),
        ("nothing", NOTHING),
    ],
)
def test_the_output_is_the_golden_file(name: str, comparison: Comparison) -> None:
    # To accept a change: write rendered(...) into the file, and read the diff as a user would.
    assert rendered(comparison) == (GOLDEN / f"compare-{name}.txt").read_text(encoding="utf-8")


def test_one_case_is_its_own_mean() -> None:
    assert headline(ENVIRONMENTS).endswith("the speed of base, in 1 case.")
    assert "geometric mean of 2 cases" in headline(PROVIDERS)


def test_an_interrupt_before_the_first_pair_is_told() -> None:
    assert headline(replace(NOTHING, interrupted=True)) == "Interrupted before anything was measured."


@pytest.mark.parametrize(("flops", "expected"), [(1e8, "100.0 TFLOPS"), (0.99e8, "1000 GB/s")])
def test_a_case_is_told_in_what_bounds_it(flops: float, expected: str) -> None:
    assert rate(replace(LARGE, flops=flops, bytes_moved=1e6), 1e-6) == expected


def test_nothing_foreign_is_obeyed() -> None:
    evil = "[red]boo[/red] :bug: \x1b[2J\nNothing"
    case = replace(LARGE, head=replace(LARGE.head, case=Case(suite=evil, values=(evil,) * 2)), notes=(evil,))
    wrong = replace(WRONG, reason=evil)
    hostile = replace(
        PROVIDERS,
        base=evil,
        head=evil,
        gpu=evil,
        base_versions={evil: evil},
        cases=(case, wrong),
        command=evil,
        notes=(evil,),
        machine=replace(PROVIDERS.machine, gpu=None, versions={evil: evil}),
    )
    for kind in Kind:
        text = rendered(replace(hostile, kind=kind, unfit=evil))
        assert "\x1b" not in text
        assert "[red]boo[/red]" in text
        assert [line for line in text.splitlines() if line.startswith("Nothing")] == []
