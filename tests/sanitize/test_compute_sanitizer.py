from __future__ import annotations

from pathlib import Path

import pytest

from flopwatch.sanitize.compute_sanitizer import PRINT_LIMIT, command, read_log
from flopwatch.sanitize.findings import Access, Finding, Kind
from flopwatch.sanitize.tools import NVIDIA, Tool

#: As compute-sanitizer 2025 writes of a kernel of Triton's, and then of one of torch's.
MEMCHECK = """\
========= COMPUTE-SANITIZER
a line of the program itself
========= Invalid __global__ read of size 16 bytes
=========     at matmul_kernel+0xec0 in /home/me/kernels/matmul.py:43
=========     by thread (18,0,0) in block (3,1,0)
=========     Access to 0x74505bcccca0 is out of bounds
=========     and is 161 bytes after the nearest allocation at 0x74505bccc800 of size 1,024 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: _PyEval_EvalFrameDefault [0x1afb7e] in python3
=========
========= Invalid __global__ read of size 16 bytes
=========     at matmul_kernel+0xec0 in /home/me/kernels/matmul.py:43
=========     by thread (19,0,0) in block (3,1,0)
=========     Access to 0x74505bccccb0 is out of bounds
=========     and is 177 bytes after the nearest allocation at 0x74505bccc800 of size 1,024 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2)+0x90
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x710fdca00001 is misaligned
=========     and is inside the nearest allocation at 0x710fdca00000 of size 4 bytes
=========
========= ERROR SUMMARY: 3 errors
"""
#: As it wrote in 2024.
BEFORE = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ atomic of size 4 bytes
=========     at 0xda0 in /opt/dlami/nvme/sglang/fused_moe.py:175:fused_moe_kernel
=========     by thread (96,0,0) in block (44,0,0)
=========     Address 0x763995f9f000 is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum_kernel+0x90 in /home/me/sum.py:41
=========     and Read access at sum_kernel+0x100 in /home/me/sum.py:51 [508 hazards]
=========
========= Warning: (Warp Level Programming) Potential RAW hazard detected at __shared__ 0x8c in block (0,0,0) :
=========     Write Thread (35,0,0) at sum_kernel+0x90 in /home/me/sum.py:44
=========     Read Thread (32,0,0) at sum_kernel+0x120 in /home/me/sum.py:56
=========     Current Value : 35
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at load_part+0x70 in /home/me/add.py:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========     Device Frame: add_kernel+0x30 in /home/me/add.py:60
=========
========= ERROR SUMMARY: 1 error
"""
SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at add_kernel+0x11f0 in add.py:42
=========     by thread (32,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
#: As 2025.3 wrote of a kernel in Gluon whose warps have different parts (H200, triton 3.6.0, 2026-11-23).
DISPATCH = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Read access at attend_kernel+0xf0 in {path}:{line}
=========     and Write access at attend_kernel+0x5ef0 in {path}:{line} [192 hazards]
=========     and Write access at attend_kernel+0xa3d0 in {path}:4 [277 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def only(text: str, *launched: str) -> Finding:
    (finding,) = read_log(text, launched).findings
    return finding


def test_an_access_has_its_kernel_line_thread_and_address() -> None:
    finding, foreign = read_log(MEMCHECK, ["matmul_kernel"]).findings

    assert finding == Finding(
        kind=Kind.OUT_OF_BOUNDS,
        what="Invalid __global__ read of size 16 bytes; Access to 0x74505bcccca0 is out of bounds; "
        "and is 161 bytes after the nearest allocation at 0x74505bccc800 of size 1,024 bytes",
        kernel="matmul_kernel",
        file="/home/me/kernels/matmul.py",
        line=43,
        access=Access.READ,
        element_bytes=16,
        address="0x74505bcccca0",
        thread=(18, 0, 0),
        block=(3, 1, 0),
        count=2,
    )
    assert (foreign.kind, foreign.access, foreign.own) == (Kind.MISALIGNED, Access.WRITE, False)
    assert foreign.kernel.startswith("void at::native::vectorized_elementwise_kernel<")


def test_what_no_case_launched_is_another_s() -> None:
    assert [finding.own for finding in read_log(MEMCHECK, ["other_kernel"]).findings] == [False, False]


def test_the_words_of_older_versions_are_read() -> None:
    finding = only(BEFORE, "fused_moe_kernel")

    assert (finding.kernel, finding.line, finding.own) == ("fused_moe_kernel", 175, True)
    assert (finding.file, finding.access) == ("/opt/dlami/nvme/sglang/fused_moe.py", Access.ATOMIC)


def test_a_race_is_where_it_is_written_and_its_hazards_are_counted() -> None:
    first, second = read_log(RACECHECK, ["sum_kernel"]).findings

    assert (first.kind, first.source, first.count) == (Kind.RACE, "/home/me/sum.py:41", 508)
    assert (second.kind, second.source, second.own) == (Kind.RACE, "/home/me/sum.py:44", True)


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("def attend_kernel(", False),
        ("def attend_kernel(x, n: tl.constexpr):  # noqa: C901", False),
        ("def attend_kernel(p): tl.store(p, 1)", True),
        ("    gl.warp_specialize([(_consume, (x,)), (_produce, (x,))], [1], [240])", True),
    ],
)
def test_a_race_at_the_first_line_of_a_kernel_is_the_compiler_s(tmp_path: Path, line: str, own: bool) -> None:
    path = tmp_path / "attend.py"
    path.write_text(f"@gluon.jit\n{line}\n", encoding="utf-8")
    finding = only(DISPATCH.format(path=path, line=2), "attend_kernel")

    assert (finding.kind, finding.count, finding.own) == (Kind.RACE, 192, own)
    assert ("first line" in finding.what) is not own


def test_a_function_that_a_kernel_calls_is_the_place_and_the_kernel_is_its_last_frame() -> None:
    finding = only(INITCHECK, "add_kernel")

    assert (finding.kind, finding.kernel, finding.line) == (Kind.UNINITIALISED, "add_kernel", 41)
    assert (finding.element_bytes, finding.address, finding.own) == (4, "0x7f3c7ec000fc", True)


def test_a_barrier_is_told() -> None:
    finding = only(SYNCCHECK, "add_kernel")

    assert (finding.kind, finding.source, finding.thread) == (Kind.BARRIER, "add.py:42", (32, 0, 0))


def test_what_is_not_known_is_kept_in_its_own_words() -> None:
    text = CLEAN.replace("========= ERROR", "========= Device stack is exhausted\n========= ERROR")

    assert [(finding.kind, finding.what) for finding in read_log(text, []).findings] == [
        (Kind.OTHER, "Device stack is exhausted")
    ]


def test_a_clean_log_is_finished_and_has_nothing() -> None:
    log = read_log(CLEAN, ["k"])

    assert (log.findings, log.finished, log.problem, log.is_cut) == ((), True, "", False)


@pytest.mark.parametrize("text", ["", "========= COMPUTE-SANITIZER\n", MEMCHECK.partition("========= ERROR")[0]])
def test_a_log_without_an_end_is_not_finished(text: str) -> None:
    assert not read_log(text, []).finished


@pytest.mark.parametrize(
    "words",
    [
        "Error: No attachable process found. compute-sanitizer timed-out.",
        "Error: Target application terminated before first instrumented API call",
        "Target application terminated before first instrumented API call",
        "Internal Sanitizer Error: The Sanitizer encountered an error when launching a kernel",
    ],
)
def test_what_is_wrong_with_the_tool_is_no_fault_of_a_kernel(words: str) -> None:
    log = read_log(f"========= COMPUTE-SANITIZER\n========= {words}\n========= ERROR SUMMARY: 0 errors\n", [])

    assert (log.findings, log.problem) == ((), words)


def test_a_target_that_does_not_start_is_told_by_the_first_line() -> None:
    """This is what 2026.4 writes where it may not start a process."""
    text = """\
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host.
========= Error: Target application terminated before first instrumented API call
========= Tracking kernels launched by child processes requires the --target-processes all option.
"""
    log = read_log(text, ["k"])

    assert (log.findings, log.finished, log.problem) == ((), False, "Error: process didn't terminate successfully")


def test_the_last_fault_of_a_log_that_breaks_off_is_kept() -> None:
    (found,) = read_log(MEMCHECK.partition("=========     by thread (18")[0], {"matmul_kernel"}).findings
    assert (found.kernel, found.line, found.thread) == ("matmul_kernel", 43, None)


def test_faults_that_are_not_printed_are_known_to_be_missing() -> None:
    text = f"{MEMCHECK}========= ERROR SUMMARY: 32 errors were not printed. Use --print-limit option to adjust\n"

    assert read_log(text, []).is_cut


@pytest.mark.parametrize("tool", NVIDIA)
def test_the_command_names_the_tool_and_the_log(tool: Tool) -> None:
    words = command("/cuda/bin/compute-sanitizer", tool, Path("/logs/a.log"))

    assert words[:5] == ["/cuda/bin/compute-sanitizer", "--tool", tool.value, "--log-file", "/logs/a.log"]
    assert str(PRINT_LIMIT) in words
    assert ("--padding" in words) == (tool is Tool.MEMCHECK)
