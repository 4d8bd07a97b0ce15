from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from flopwatch.doctor import DoctorReport, Finding, Severity
from flopwatch.measure.machine import Gpu, Machine, Snapshot
from flopwatch.report.doctor import headline, print_doctor
from flopwatch.stats.noise import NoiseFloor

GOLDEN = Path(__file__).parent / "golden"

SOUND = Finding(severity=Severity.OK, what="triton 3.6.0, ptxas 12.8.93")
CORES = Finding(
    severity=Severity.WARN,
    what="2 processor cores to run on",
    why="two workers and the gate itself take turns; launch costs will scatter",
    todo="give it 3 or more",
)
BUSY = Finding(
    severity=Severity.FAIL,
    what="NVIDIA H200 is used by another process (99)",
    why="it takes turns with what is measured, and moves clocks and caches",
    todo="stop it (nvidia-smi names it), or choose another GPU with CUDA_VISIBLE_DEVICES",
)
FIT = DoctorReport(
    machine=Machine(
        gpu=Gpu(
            name="NVIDIA H200",
            uuid="GPU-4a1f6e2c-0000-1111-2222-333344445555",
            driver="580.159.04",
            total_memory_bytes=143771 << 20,
            max_sm_clock_mhz=1980,
            power_limit_w=700.0,
            ecc=True,
        ),
        versions={"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "cuda": "13.0", "ptxas": "12.8.93"},
        cpu_model="Intel(R) Xeon(R) Platinum 8480+",
        cpu_count=16,
    ),
    snapshot=Snapshot(time_s=0.0),
    findings=(
        SOUND,
        replace(SOUND, what="NVIDIA H200 is fit to measure, 33 degrees C"),
        replace(SOUND, what="noise floor: a pair errs by 0.08 to 0.20 %; a gate here finds slowdowns from 0.79 %"),
    ),
    noise=(
        NoiseFloor(
            case="VectorAdd[1048576,float32,flopwatch]", seconds=4.48e-6, pairs=5, deviation=0.002, detectable=0.00787
        ),
        NoiseFloor(
            case="Matmul[8192x8192x8192,float16,flopwatch]",
            seconds=1.49e-3,
            pairs=5,
            deviation=0.0008,
            detectable=0.0063,
        ),
    ),
)
LAPTOP = replace(
    FIT,
    machine=replace(FIT.machine, gpu=None, versions={"python": "3.12.3"}),
    snapshot=None,
    findings=(
        SOUND,
        replace(CORES, what="no GPU: the static gate and small numbers only", why="no driver", todo=""),
        replace(SOUND, what="noise floor: not measured, because that takes a GPU"),
    ),
    noise=(),
)
NO_GIT = Finding(severity=Severity.FAIL, what="git is not installed", todo="install git; flopwatch compares commits")
UNFIT = replace(FIT, findings=(SOUND, CORES, BUSY, NO_GIT), noise=())
NOISY = replace(
    FIT,
    findings=(
        Finding(
            severity=Severity.WARN,
            what="noise floor: a pair errs by 0.31 %; a gate here finds slowdowns from 0.93 %",
            why="Matmul[8192x8192x8192,float16,flopwatch] takes 1.490 ms, for which the aim is 0.1 %",
            todo="stop what else runs on this machine; a gate stays honest, but needs more pairs",
        ),
        Finding(severity=Severity.WARN, what="the noise floor was interrupted"),
    ),
    noise=(replace(FIT.noise[1], pairs=3, deviation=0.0031, detectable=0.00926),),
)


def rendered(report: DoctorReport) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None, force_terminal=False)
    print_doctor(report, console)
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(("name", "report"), [("fit", FIT), ("noisy", NOISY), ("no-gpu", LAPTOP), ("unfit", UNFIT)])
def test_the_output_is_the_golden_file(name: str, report: DoctorReport) -> None:
    # To accept a change: write rendered(...) into the file, and read the diff as a user would.
    assert rendered(report) == (GOLDEN / f"doctor-{name}.txt").read_text(encoding="utf-8")


def test_markup_in_foreign_text_is_shown_not_obeyed() -> None:
    hostile = replace(
        UNFIT,
        machine=replace(UNFIT.machine, cpu_model="[red]CPU[/red]"),
        findings=(replace(BUSY, what="[bold]x[/bold]", why="[link=http://y]y[/link]", todo="[/]"),),
        noise=(replace(FIT.noise[0], case="Add[1,[red]2[/red]]"),),
    )

    for text in ("[red]CPU[/red]", "[bold]x[/bold]", "[link=http://y]y[/link]", "do:  [/]", "Add[1,[red]2[/red]]"):
        assert text in rendered(hostile)


def test_an_error_beyond_the_aim_is_marked_and_others_are_not() -> None:
    console = Console(file=io.StringIO(), width=100, color_system="standard", force_terminal=True)
    print_doctor(replace(NOISY, noise=(*FIT.noise, *NOISY.noise)), console)
    output = console.file
    assert isinstance(output, io.StringIO)

    assert re.findall(r"\x1b\[33m *(\d.*?) *\x1b", output.getvalue()) == ["0.31 %"]


def test_control_characters_in_foreign_text_do_not_reach_the_terminal() -> None:
    hostile = replace(UNFIT, findings=(replace(BUSY, what="a\x1b[2Jb", why="c\nd", todo=":bug:"),))

    assert "fail  a [2Jb\n      why: c d\n      do:  :bug:\n" in rendered(hostile)


def test_the_headline_counts_warnings() -> None:
    assert headline(replace(FIT, findings=(CORES,))) == "Fit to measure on NVIDIA H200; 1 warning."
    assert headline(replace(FIT, findings=(CORES, CORES))) == "Fit to measure on NVIDIA H200; 2 warnings."


def test_a_failure_leads_and_the_rest_are_counted() -> None:
    assert headline(UNFIT) == "Unfit: NVIDIA H200 is used by another process (99), and 1 more."
