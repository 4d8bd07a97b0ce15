"""Reports, made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.model import Case
from flopwatch.sanitize import CaseReport, Finding, Kind, Tool
from flopwatch.sanitize.findings import Access

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def asan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install LLVM's AddressSanitizer, as far as anybody asks."""
    library = tmp_path / "libclang_rt.asan-x86_64.so"
    library.touch()
    monkeypatch.setenv("LD_PRELOAD", str(library))


@pytest.fixture
def case() -> Case:
    return Case(suite="Scale", values=("1000", "float32", "flopwatch"))


@pytest.fixture
def fault() -> Finding:
    return Finding(
        kind=Kind.OUT_OF_BOUNDS,
        what="program (3, 0, 0) reads 4 bytes, the first byte after x, float32[1000]",
        kernel="scale_kernel",
        file="src/toykernels/__init__.py",
        line=12,
        access=Access.READ,
        argument="x",
        element_bytes=4,
        address="4000",
        block=(3, 0, 0),
        count=24,
    )


@pytest.fixture
def clean(case: Case) -> CaseReport:
    return CaseReport(case=case, tool=Tool.INTERPRETER, kernels=("scale_kernel",))
