from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from flopwatch.model import Case, Choice, Failure, Memory
from flopwatch.profile import Counted, Profile, ProfiledCase
from flopwatch.profile.hatchet import Frame
from flopwatch.report.profile import headline, print_profile, print_tree

BIG = ProfiledCase(
    case=Case(suite="Matmul", values=("8192x8192x8192", "float16", "flopwatch")),
    flops=2 * 8192.0**3,
    bytes_moved=3 * 8192.0**2 * 2,
    calls=64,
    kernel_seconds=1.7e-3,
    call_seconds=1.71e-3,
    host_seconds=2e-5,
    wall_seconds=1.702e-3,
    choices=(Choice(kernel="matmul_kernel", config="BLOCK_M: 128"),),
    memory=Memory(peak_bytes=1 << 27, growth_bytes=0.0),
)
SMALL = ProfiledCase(
    case=Case(suite="VectorAdd", values=("65536", "float16", "torch")),
    flops=65536.0,
    bytes_moved=393216.0,
    calls=1000,
    kernel_seconds=2e-6,
    call_seconds=2.4e-6,
    host_seconds=9e-6,
    wall_seconds=9.5e-6,
)
BROKEN = ProfiledCase(
    case=Case(suite="Add", values=("8", "torch")),
    flops=8.0,
    bytes_moved=96.0,
    failure=Failure(kind="RuntimeError", message="[red]no[/red]\x1b[2J"),
)
TREE = Frame(
    name="ROOT",
    children=(
        Frame(
            name=BIG.case.id,
            flops=64 * BIG.flops,
            bytes_moved=64 * BIG.bytes_moved,
            children=(Frame(name="matmul_kernel", time_ns=1.088e8, count=64),),
        ),
        Frame(name=SMALL.case.id, children=(Frame(name="void at::[b]add<2>", time_ns=2e6, count=1000),)),
    ),
)
FOUND = Profile(
    gpu="NVIDIA H200",
    versions={"torch": "2.11.0", "triton": "3.6.0"},
    cases=(BIG, SMALL, BROKEN),
    tree=TREE,
    files={"tree": "out/profile.hatchet"},
    seconds=12.0,
)


def printed(profile: Profile) -> str:
    text = io.StringIO()
    print_profile(profile, Console(file=text, width=160))
    return text.getvalue()


def row(text: str, start: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.strip("│ ").startswith(start))
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_the_tree_has_times_shares_launches_and_rates() -> None:
    text = io.StringIO()
    print_tree(TREE, Console(file=text, width=160))
    assert row(text.getvalue(), BIG.case.id) == [
        BIG.case.id,
        "108.8 ms",
        "98.2 %",
        "64",
        "1.700 ms",
        "646.8",
        "236.9",
    ]
    assert row(text.getvalue(), "void") == ["void at::[b]add<2>", "2.000 ms", "1.8 %", "1000", "2.000 µs", "", ""]
    assert row(text.getvalue(), "ROOT")[1:4] == ["110.8 ms", "100.0 %", "1064"]


def test_a_call_has_its_kernels_its_host_and_what_a_loop_waits_for() -> None:
    text = printed(FOUND)
    assert row(text, BIG.case.id) == [
        BIG.case.id,
        *("1.700 ms", "646.8", "236.9", "65.4 %", "1.710 ms", "20.00 µs", "1.702 ms", "2.000 µs"),
    ]
    assert "VectorAdd[65536,float16,torch]: the host needs 9.000 µs a call, and the GPU is without a kernel" in text
    assert f"{BIG.case.id}: the host" not in text


def test_what_failed_what_was_chosen_and_what_was_taken_is_told() -> None:
    text = printed(FOUND)
    assert "Add[8,torch] failed: RuntimeError: [red]no[/red] [2J" in text
    assert f"{BIG.case.id}: matmul_kernel runs in BLOCK_M: 128" in text
    assert "takes 128 MiB of memory at its peak, and leaves 0 B behind" in text
    assert "tree: out/profile.hatchet" in text


def test_what_a_tuner_chose_for_a_kernel_that_makes_inputs_is_not_told() -> None:
    choices = (*BIG.choices, Choice(kernel="fill_kernel", config="BLOCK: 8"))
    text = printed(replace(FOUND, cases=(replace(BIG, choices=choices),)))
    assert "matmul_kernel runs in BLOCK_M: 128" in text
    assert "fill_kernel" not in text


def test_counters_stand_by_kernel_and_tensor_counters_that_are_zero_are_left_out() -> None:
    counters = {
        "dram__bytes_read.sum": 268435456.0,
        "lts__t_sector_hit_rate.pct": 81.54,
        "sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off.sum": 1.0995e12,
        "sm__ops_path_tensor_src_fp8_dst_fp32_sparsity_off.sum": 0.0,
    }
    counted = replace(BIG, counters=(Counted(kernel="matmul_kernel", counters=counters),))
    text = printed(replace(FOUND, cases=(counted,)))
    assert row(text, "dram__bytes_read.sum")[1] == "256 MiB"
    assert row(text, "lts__t_sector_hit_rate.pct")[1] == "81.5 %"
    assert "src_fp16" in text
    assert "src_fp8" not in text


def test_the_headline_says_whether_the_host_is_waited_for() -> None:
    assert headline(FOUND) == "2 cases on NVIDIA H200: loops of 1 wait for the host."
    assert headline(replace(FOUND, cases=(BIG,))) == "1 case on NVIDIA H200: a loop of calls keeps the GPU busy."
    assert headline(replace(FOUND, cases=(SMALL,))) == "1 case on NVIDIA H200: a loop of calls waits for the host."
    assert headline(replace(FOUND, cases=(BROKEN,))) == "Nothing could be profiled."


def test_a_gpu_whose_peaks_are_not_known_has_no_roof() -> None:
    assert row(printed(replace(FOUND, gpu="another")), BIG.case.id)[4] == ""
