"""Fixtures for every test, and the choice between a real GPU and Triton's interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    # Triton reads this when it is imported and when a kernel is decorated, so it must be set before any test module.
    os.environ["TRITON_INTERPRET"] = "1"
# What a shell starts in the background ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    if HAS_GPU:
        return
    reason = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(reason)


@pytest.fixture
def cuda() -> Iterator[str]:
    """Make ``device="cuda"`` work: the real one, or a pretended H200 whose kernels the interpreter runs."""
    if HAS_GPU:
        yield "cuda"
        return
    from flopwatch.static import pretend_gpu  # noqa: PLC0415 - after TRITON_INTERPRET is set

    with pretend_gpu("h200", tensors="cpu"):
        yield "cuda"


TOY_KERNEL = '''\
"""A kernel of somebody else's."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)


def scale(x, factor):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 256),)
    scale_kernel[grid](x, out, x.numel(), factor, BLOCK=256, num_warps=4)
    return out
'''
TOY_SUITE = '''\
"""The suite of the toy kernel."""

import torch
from flopwatch import Suite
from toykernels import scale


class Scale(Suite):
    """out = factor * x."""

    params = (["1000000"], ["float16", "float32"])
    param_names = ("n", "dtype")
    small = {"n": "1000"}
    providers = {"torch": torch.mul}

    def inputs(self, n, dtype, *, seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return torch.randn(int(n), device="cuda", generator=generator).to(getattr(torch, dtype)), 3.0

    def run(self, x, factor):
        return scale(x, factor)

    def reference(self, x, factor):
        return x.double() * factor

    def flops(self, n, dtype):
        return int(n)

    def bytes_moved(self, n, dtype):
        return 2 * int(n) * getattr(torch, dtype).itemsize
'''
TOY_PROJECT = '[tool.flopwatch]\npackages = ["toykernels"]\nsource = "src"\n'


@dataclass(frozen=True, kw_only=True, slots=True)
class ToyRepository:
    """A git repository of one Triton kernel and its suite, as a stranger's would be."""

    root: Path

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        return subprocess.check_output(["git", *identity, *arguments], cwd=self.root, text=True)

    @property
    def kernel(self) -> Path:
        return self.root / "src" / "toykernels" / "__init__.py"

    @property
    def suite(self) -> Path:
        return self.root / "benchmarks" / "scale.py"

    def edit(self, old: str, new: str) -> None:
        """Change the kernel's source; the edit must apply, or the test would test nothing."""
        text = self.kernel.read_text(encoding="utf-8")
        assert text.count(old) == 1
        self.kernel.write_text(text.replace(old, new), encoding="utf-8")

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()


@pytest.fixture
def toy(tmp_path: Path) -> ToyRepository:
    """A fresh toy repository with one commit on main."""
    repository = ToyRepository(root=tmp_path / "toy")
    for path, text in (
        (repository.kernel, TOY_KERNEL),
        (repository.suite, TOY_SUITE),
        (repository.root / "benchmarks" / "__init__.py", ""),
        (repository.root / "pyproject.toml", TOY_PROJECT),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    repository.git("init", "-q", "-b", "main")
    repository.commit("a kernel")
    return repository


@pytest.fixture(autouse=True)
def usual_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what a program asks for of this process's kernels forgotten after the test that called it."""
    monkeypatch.setenv("FLOPWATCH_KERNELS", "")
