from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import MachineError
from flopwatch.sanitize.findings import Access, Kind
from flopwatch.sanitize.llvm import environment, find_triton_san, prefix, read_output
from flopwatch.sanitize.tools import Tool

if TYPE_CHECKING:
    from pathlib import Path

#: From TritonSan's own description (microsoft/triton-shared, triton-san/README.md).
OVERFLOW = """\
=================================================================
==1074677==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x7c4fdf343104 at pc 0x7dffde70ccd5
WRITE of size 8192 at 0x7c4fdf343104 thread T0
    #0 0x7dffde70ccd4 in __asan_memcpy ./llvm/compiler-rt/lib/asan/asan_interceptors_memintrinsics.cpp:63:3
    #1 0x7dffdd92cce1 in kernel ./triton-san/example/buffer-overflow.py:28:35
    #2 0x7dffdd928626 in _launch(int, int, int, void*, int, _object*) /tmp/tmp7zn051vm/main.cxx:26:11

SUMMARY: AddressSanitizer: heap-buffer-overflow ./triton-san/example/buffer-overflow.py:28:35 in kernel
"""
RACE = """\
==================
WARNING: ThreadSanitizer: data race (pid=1073103)
Write of size 8 at 0x7260004bd800 by thread T35:
    #0 __tsan_memcpy ./llvm/compiler-rt/lib/tsan/rtl/tsan_interceptors_memintrinsics.cpp:27:3
    #1 kernel ./triton-san/example/data-race.py:28:35 (__triton_shared_ref_cpu_kernel_launcher.so+0xcdaa)

SUMMARY: ThreadSanitizer: data race ./triton-san/example/data-race.py:28:35 in kernel
"""


def test_an_overflow_has_the_line_of_the_kernel() -> None:
    (finding,) = read_output(f"something before\n{OVERFLOW}")

    assert (finding.kind, finding.kernel, finding.own) == (Kind.OUT_OF_BOUNDS, "kernel", True)
    assert finding.source == "./triton-san/example/buffer-overflow.py:28"
    assert (finding.access, finding.element_bytes, finding.address) == (Access.WRITE, 8192, "0x7c4fdf343104")
    assert finding.what == "heap-buffer-overflow: WRITE of size 8192 at 0x7c4fdf343104"


def test_races_at_one_line_are_one_fault() -> None:
    (finding,) = read_output(RACE + RACE)

    assert (finding.kind, finding.what, finding.count) == (Kind.RACE, "data race", 2)
    assert finding.source == "./triton-san/example/data-race.py:28"


def test_other_output_has_no_fault() -> None:
    assert read_output("UserWarning: a sanitizer\nERROR: something else\n") == ()


def test_addresssanitizer_needs_its_library_first() -> None:
    with pytest.raises(MachineError, match="not loaded"):
        environment(Tool.ASAN, {"LD_PRELOAD": "/lib/other.so"})

    found = environment(Tool.ASAN, {"LD_PRELOAD": "/opt/rocm/lib/libclang_rt.asan-x86_64.so"})
    assert (found["TRITON_ENABLE_ASAN"], found["HSA_XNACK"], found["AMDGCN_USE_BUFFER_OPS"]) == ("1", "1", "0")


def test_tritonsan_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no triton-san"):
        find_triton_san()
    driver = tmp_path / "triton-san"
    driver.write_text("#!/bin/sh\n", encoding="utf-8")
    driver.chmod(0o755)

    assert prefix(Tool.TRITON_SAN) == [str(driver), "asan"]
    assert prefix(Tool.TRITON_SAN_RACES) == [str(driver), "tsan"]
    assert prefix(Tool.ASAN) == []
