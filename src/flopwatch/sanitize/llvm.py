"""LLVM's sanitizers: AddressSanitizer in kernels of an AMD GPU, and TritonSan, which compiles kernels for the CPU.

Their reports are read as LLVM's and TritonSan's documents show them. They were not run by those who wrote this.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from typing import TYPE_CHECKING

from flopwatch.errors import MachineError
from flopwatch.sanitize.findings import Access, Finding, Kind, merged
from flopwatch.sanitize.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What Triton's own test of AddressSanitizer sets (third_party/amd/python/test/test_address_sanitizer.py, 3.7): no
#: allocation beside another, pages that are fetched when they are touched, and no loads that mask what they read
#: outside of a buffer.
_ASAN = {
    "TRITON_ENABLE_ASAN": "1",
    "HSA_XNACK": "1",
    "HSA_DISABLE_FRAGMENT_ALLOCATOR": "1",
    "AMD_PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "PYTORCH_NO_HIP_MEMORY_CACHING": "1",
    "AMDGCN_USE_BUFFER_OPS": "0",
}
#: The library that has to be there before any other is loaded.
_RUNTIME = "libclang_rt.asan"
#: Of ThreadSanitizer, which otherwise reports OpenMP's own.
_TSAN = {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1"}
_SUMMARY = re.compile(r"SUMMARY: \w+Sanitizer: (?P<what>.+?) (?P<file>\S+?):(?P<line>\d+)(?::\d+)? in (?P<kernel>\S+)")
_ACCESS = re.compile(r"\b(READ|WRITE) of size (\d+) at (0x[0-9a-f]+)")
_FRAME = re.compile(r"#\d+ (?:0x[0-9a-f]+ in )?(?P<kernel>\w+) (?P<file>\S+\.py):(?P<line>\d+)")
_ERROR = re.compile(r"(?:ERROR|WARNING): \w+Sanitizer: (?P<what>[a-z][\w -]*?)(?= on | \(|$)", re.MULTILINE)


def environment(tool: Tool, variables: Mapping[str, str]) -> dict[str, str]:
    """Return what has to be set for a tool, beside `variables`.

    Raises:
        MachineError: AddressSanitizer's library is not loaded first.
    """
    if tool is Tool.ASAN:
        if _RUNTIME not in variables.get("LD_PRELOAD", ""):
            raise MachineError(
                "AddressSanitizer's library is not loaded",
                why=f"LD_PRELOAD names no {_RUNTIME}-x86_64.so",
                todo=f"find /opt/rocm -name '{_RUNTIME}-x86_64.so', and put what it prints into LD_PRELOAD",
            )
        return dict(_ASAN)
    return dict(_TSAN) if tool is Tool.TRITON_SAN_RACES else {}


def prefix(tool: Tool) -> list[str]:
    """Return the start of the command line; empty for a tool that has none."""
    return [] if tool is Tool.ASAN else [find_triton_san(), "tsan" if tool is Tool.TRITON_SAN_RACES else "asan"]


def find_triton_san() -> str:
    """Return the path of TritonSan's driver.

    Raises:
        MachineError: there is none.
    """
    found = shutil.which("triton-san", path=os.environ.get("PATH"))
    if found is None:
        raise MachineError(
            "there is no triton-san",
            why="it is not on PATH",
            todo="build TritonSan (docs/guide/sanitizing.md has the steps), and put its folder on PATH",
        )
    return found


def read_output(text: str) -> tuple[Finding, ...]:
    """Return what the reports in a process's output say; the line of a kernel is that of the first frame in Python."""
    starts = [*(found.start() for found in _ERROR.finditer(text)), len(text)]
    return merged(_finding(text[start:end]) for start, end in itertools.pairwise(starts))


def _finding(report: str) -> Finding:
    error, access = _ERROR.search(report), _ACCESS.search(report)
    place = _FRAME.search(report) or _SUMMARY.search(report)
    what = error["what"].strip() if error else ""
    kind = (
        Kind.RACE if "race" in what else Kind.OUT_OF_BOUNDS if "overflow" in what or "unknown" in what else Kind.OTHER
    )
    return Finding(
        kind=kind,
        what=f"{what}: {access[0]}" if access else what,
        kernel=place["kernel"] if place else "",
        file=place["file"] if place else "",
        line=int(place["line"]) if place else 0,
        access={"READ": Access.READ, "WRITE": Access.WRITE}[access[1]] if access else None,
        element_bytes=int(access[2]) if access else None,
        address=access[3] if access else "",
        own=place is not None and place["file"].endswith(".py"),
    )
