"""Programs that launch kernels on a stand-in for a GPU, in a process of their own, where none is interpreted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks_host.stand_in import compiler
from tests.conftest import HAS_GPU

ROOT = Path(__file__).parents[2]


def printed(program: str) -> list[str]:
    """Run a program that enters `benchmarks_host.stand_in.stand_in_gpu`; return the lines that it prints."""
    if HAS_GPU:
        pytest.skip("the stand-in for libcuda cannot lie beside the real one")
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libcuda")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()
