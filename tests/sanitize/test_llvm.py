from __future__ import annotations

import importlib.util
from types import SimpleNamespace
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

#: From ROCm's guide ("Using the AddressSanitizer on a GPU"), but for the file, which is a kernel's.
ON_A_GPU = """\
=================================================================
==3141==ERROR: AddressSanitizer: heap-buffer-overflow on amdgpu device 0 at pc 0x7fb1410d2cc4
WRITE of size 4 in workgroup id (10,0,0)
  #0 0x7fb1410d2cc4 in set1(int*) at /home/dave/mini/mini.py:24:10

Thread ids and accessed addresses:
00 : 0x7fb14371d190 01 : 0x7fb14371d194 02 : 0x7fb14371d198 03 : 0x7fb14371d19c 04 : 0x7fb14371d1a0
05 : 0x7fb14371d1a4 06 : 0x7fb14371d1a8 07 : 0x7fb14371d1ac
08 : 0x7fb14371d1b0 09 : 0x7fb14371d1b4

0x7fb14371d190 is located 0 bytes after 400-byte region [0x7fb14371d000,0x7fb14371d190)
allocated by thread T0 here:
    #0 0x7fb151c76828 in hsa_amd_memory_pool_allocate /work/compiler-rt/lib/asan/asan_interceptors.cpp:692:3
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


def test_a_report_of_an_amd_gpu_has_the_line_the_workgroup_and_its_threads() -> None:
    (finding,) = read_output(f"something before\n{ON_A_GPU}")

    assert (finding.kind, finding.kernel, finding.own) == (Kind.OUT_OF_BOUNDS, "set1", True)
    assert finding.source == "/home/dave/mini/mini.py:24"
    assert (finding.access, finding.element_bytes, finding.address) == (Access.WRITE, 4, "0x7fb14371d190")
    assert (finding.block, finding.thread, finding.count) == ((10, 0, 0), None, 10)
    assert finding.what == "heap-buffer-overflow: WRITE of size 4 in workgroup id (10,0,0)"


def test_addresssanitizer_needs_its_library_first(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="not loaded"):
        environment(Tool.ASAN, {"LD_PRELOAD": "/lib/other.so"})
    library = tmp_path / "libclang_rt.asan-x86_64.so"
    with pytest.raises(MachineError, match=r"asan-x86_64.so, of LD_PRELOAD, is no file"):
        environment(Tool.ASAN, {"LD_PRELOAD": str(library)})

    library.touch()
    found = environment(Tool.ASAN, {"LD_PRELOAD": f"/lib/other.so:{library}"})
    assert (found["TRITON_ENABLE_ASAN"], found["HSA_XNACK"], found["AMDGCN_USE_BUFFER_OPS"]) == ("1", "1", "0")
    assert found["ASAN_OPTIONS"] == "detect_leaks=0"
    with_options = environment(Tool.ASAN, {"LD_PRELOAD": str(library), "ASAN_OPTIONS": "verbosity=1"})
    assert with_options["ASAN_OPTIONS"] == "detect_leaks=0:verbosity=1"


def plant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install what `build.sh` leaves behind, as far as anybody looks for it."""
    driver = folder / "triton-san"
    driver.write_text("# Executes a triton program with triton-san\n\n#!/bin/bash\n", encoding="utf-8")
    driver.chmod(0o755)
    (folder / "triton" / "backends" / "triton_shared").mkdir(parents=True)
    places = SimpleNamespace(submodule_search_locations=[str(folder / "triton")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: places)
    return driver


def test_tritonsan_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no triton-san"):
        find_triton_san()
    driver = plant(tmp_path, monkeypatch)

    assert prefix(Tool.TRITON_SAN) == ["bash", str(driver), "asan"]
    assert prefix(Tool.TRITON_SAN_RACES) == ["bash", str(driver), "tsan"]
    assert prefix(Tool.ASAN) == []
    assert environment(Tool.TRITON_SAN_RACES, {}) == {}


def test_tritonsan_beside_another_triton_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plant(tmp_path, monkeypatch)
    (tmp_path / "triton" / "backends" / "triton_shared").rmdir()

    with pytest.raises(MachineError, match="no backend for the CPU"):
        prefix(Tool.TRITON_SAN)
