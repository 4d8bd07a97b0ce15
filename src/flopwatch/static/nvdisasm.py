"""Run the disassembler of Triton's wheel."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path

from flopwatch.errors import UnsupportedTritonError

_DEADLINE_S = 120.0


def find_nvdisasm() -> Path | None:
    """Return the disassembler that Triton would run: the one of TRITON_NVDISASM_PATH, or of its own wheel."""
    if named := os.environ.get("TRITON_NVDISASM_PATH"):
        path = Path(named)
    else:
        spec = importlib.util.find_spec("triton")
        if spec is None or not spec.submodule_search_locations:
            return None
        path = Path(spec.submodule_search_locations[0], "backends", "nvidia", "bin", "nvdisasm")
    return path if path.is_file() else None


def run_nvdisasm(code: bytes, *options: str) -> str:
    """Return what nvdisasm prints of code, or of a CUDA binary.

    Args:
        code: the contents of the file that it is given.
        options: its own.

    Raises:
        UnsupportedTritonError: Triton has no nvdisasm, or it does not understand the code.
    """
    program = find_nvdisasm()
    if program is None:
        raise UnsupportedTritonError(
            "Triton has no nvdisasm",
            why="its wheel has one, in backends/nvidia/bin",
            todo="install Triton from PyPI, or name a nvdisasm in TRITON_NVDISASM_PATH",
        )
    with tempfile.TemporaryDirectory(prefix="flopwatch-") as folder:
        file = Path(folder, "code")
        file.write_bytes(code)
        command = [str(program), *options, str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)  # noqa: S603 - Triton's own program
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed(str(error)) from None
    if done.returncode:
        raise _failed(next(iter(done.stderr.strip().splitlines()), f"exit {done.returncode}"))
    return done.stdout


def _failed(why: str) -> UnsupportedTritonError:
    return UnsupportedTritonError(
        "nvdisasm does not list the machine code",
        why=why[:500],
        todo="reinstall triton, or unset TRITON_NVDISASM_PATH",
    )
