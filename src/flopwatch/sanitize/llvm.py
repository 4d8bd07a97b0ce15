"""LLVM's sanitizers: AddressSanitizer in kernels of an AMD GPU, and TritonSan, which compiles kernels for the CPU.

Their reports are read as LLVM's, ROCm's and TritonSan's documents show them. They were not run by those who wrote this.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import MachineError
from flopwatch.sanitize.findings import Access, Finding, Kind, merged
from flopwatch.sanitize.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What Triton's own test of AddressSanitizer sets (third_party/amd/python/test/test_address_sanitizer.py, 3.7): no
#: allocation beside another, pages that are fetched when they are touched, and no loads that mask what they read
#: outside of a buffer. And what ROCm's guide to it advises: nothing of what the language's runtime never frees.
_ASAN = {
    "TRITON_ENABLE_ASAN": "1",
    "HSA_XNACK": "1",
    "HSA_DISABLE_FRAGMENT_ALLOCATOR": "1",
    "AMD_PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "PYTORCH_NO_HIP_MEMORY_CACHING": "1",
    "AMDGCN_USE_BUFFER_OPS": "0",
    "ASAN_OPTIONS": "detect_leaks=0",
}
#: The library that has to be there before any other is loaded.
_RUNTIME = "libclang_rt.asan"
#: triton-shared, as it lies in the Triton that it was built into.
_SHARED = Path("backends", "triton_shared")
_SUMMARY = re.compile(r"SUMMARY: \w+Sanitizer: (?P<what>.+?) (?P<file>\S+?):(?P<line>\d+)(?::\d+)? in (?P<kernel>\S+)")
#: On the CPU, "WRITE of size 4 at 0x7c4f"; on a GPU, "WRITE of size 4 in workgroup id (10,0,0)".
_ACCESS = re.compile(
    r"\b(?P<access>READ|WRITE) of size (?P<bytes>\d+)"
    r"(?: at (?P<address>0x[0-9a-f]+)| in workgroup id \((?P<block>\d+,\d+,\d+)\))"
)
#: Of a GPU, whose function has its parameters, and "at" before the file.
_FRAME = re.compile(r"#\d+ (?:0x[0-9a-f]+ in )?(?P<kernel>\w+)(?:\([^\n]*?\))? (?:at )?(?P<file>\S+\.py):(?P<line>\d+)")
#: What each thread of a GPU's wave accesses there, "08 : 0x7fb14371d1b0 09 : 0x7fb14371d1b4".
_THREADS = re.compile(r"^Thread ids and accessed addresses:\n((?:\s*\d+ : 0x[0-9a-f]+)+)", re.MULTILINE)
_THREAD = re.compile(r"(\d+) : (0x[0-9a-f]+)")
_ERROR = re.compile(r"(?:ERROR|WARNING): \w+Sanitizer: (?P<what>[a-z][\w -]*?)(?= on | \(|$)", re.MULTILINE)


def environment(tool: Tool, variables: Mapping[str, str]) -> dict[str, str]:
    """Return what has to be set for a tool, beside `variables`.

    Raises:
        MachineError: AddressSanitizer's library is not loaded first.
    """
    if tool is not Tool.ASAN:
        return {}  # TritonSan's driver sets what it needs
    named = [part for part in re.split(r"[: ]", variables.get("LD_PRELOAD", "")) if _RUNTIME in part]
    if not any(Path(part).is_file() for part in named):  # the loader passes over what is not there, and all is clean
        raise MachineError(
            "AddressSanitizer's library is not loaded",
            why=f"{named[0]}, of LD_PRELOAD, is no file" if named else f"LD_PRELOAD names no {_RUNTIME}-x86_64.so",
            todo=f"find /opt/rocm -name '{_RUNTIME}-x86_64.so', and put what it prints into LD_PRELOAD",
        )
    options = [_ASAN["ASAN_OPTIONS"], *filter(None, [variables.get("ASAN_OPTIONS")])]  # of two, the last one counts
    return {**_ASAN, "ASAN_OPTIONS": ":".join(options)}


def prefix(tool: Tool) -> list[str]:
    """Return the start of the command line; empty for a tool that has none.

    The driver's first line does not say that it is bash's (triton-san/template/triton-san.in, 2025-10-27), so that no
    shell is found for it where it is started by itself.

    Raises:
        MachineError: TritonSan is not installed.
    """
    if tool is Tool.ASAN:
        return []
    return ["bash", find_triton_san(), "tsan" if tool is Tool.TRITON_SAN_RACES else "asan"]


def find_triton_san() -> str:
    """Return the path of TritonSan's driver.

    Raises:
        MachineError: there is none, or Triton is not the one that it was built with.
    """
    found = shutil.which("triton-san", path=os.environ.get("PATH"))
    if found is None:
        raise MachineError(
            "there is no triton-san",
            why="it is not on PATH",
            todo="build TritonSan (docs/guide/sanitizing.md has the steps), and put its folder on PATH",
        )
    spec = importlib.util.find_spec("triton")
    folders = [Path(folder, _SHARED) for folder in (spec.submodule_search_locations or ())] if spec else []
    if not any(folder.is_dir() for folder in folders):
        raise MachineError(
            "Triton has no backend for the CPU",
            why=f"{folders[0] if folders else _SHARED} is not there: TritonSan was built into another Triton",
            todo="activate the virtual environment that its build.sh made, and install flopwatch there",
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
    lanes = _THREADS.search(report)
    threads = _THREAD.findall(lanes[1]) if lanes else []
    x, y, z = map(int, access["block"].split(",")) if access and access["block"] else (0, 0, 0)
    kind = (
        Kind.RACE if "race" in what else Kind.OUT_OF_BOUNDS if "overflow" in what or "unknown" in what else Kind.OTHER
    )
    return Finding(
        kind=kind,
        what=f"{what}: {access[0]}" if access else what,
        kernel=place["kernel"] if place else "",
        file=place["file"] if place else "",
        line=int(place["line"]) if place else 0,
        access={"READ": Access.READ, "WRITE": Access.WRITE}[access["access"]] if access else None,
        element_bytes=int(access["bytes"]) if access else None,
        address=threads[0][1] if threads else (access["address"] or "") if access else "",
        block=(x, y, z) if access and access["block"] else None,
        count=max(len(threads), 1),
        own=place is not None and place["file"].endswith(".py"),
    )
