"""Kernels to compile, and the child processes that compile them: the test process itself interprets."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from flopwatch.model import KernelFacts, from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

MATMUL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first_m = pid // (GROUP_M * tiles_n) * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + pid % (GROUP_M * tiles_n) % rows
    tile_n = pid % (GROUP_M * tiles_n) // rows
    m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        total = tl.dot(tl.load(a, mask=k[None, :] < K - start, other=0.0),
                       tl.load(b, mask=k[:, None] < K - start, other=0.0), total)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    m, n = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


tuned = triton.autotune(
    [triton.Config({"BLOCK_M": m, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=4) for m in (2048, 64)],
    key=["M"],
)(matmul)


def arguments():
    a = torch.randn(512, 512, device="cuda", dtype=torch.float16)
    b, c = torch.empty_like(a), torch.empty_like(a)
    return a, b, c, 512, 512, 512, *a.stride(), *b.stride(), *c.stride()


def launch():
    matmul[(32,)](*arguments(), BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP_M=8, num_warps=4, num_stages=3)
"""

# Edits of the source above: what is replaced, and by what.
EDITS = {
    "comment": ("@triton.jit", "# Multiplies two matrices.\n# In tiles.\n\n@triton.jit"),
    "group": ("GROUP_M=8, num", "GROUP_M=4, num"),
    "literal": ("pid = tl.program_id(0)", "pid = tl.program_id(0) + 77"),
    "stages": ("num_stages=3", "num_stages=1"),
    "spill": ("num_stages=3)", "num_stages=3, maxnreg=64)"),
    "tuned": (
        "matmul[(32,)](*arguments(), BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP_M=8, num_warps=4, num_stages=3)",
        "tuned[(32,)](*arguments())",
    ),
}

_COMPILE = """
import importlib, sys
from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu

device, folder, *names = sys.argv[1:]
sys.path.insert(0, folder)
facts = {}
for name in names:
    with pretend_gpu(device) as recorder:
        importlib.import_module(name).launch()
    facts[name] = kernel_facts(recorder)
print(to_json(facts).decode())
"""


def run_child(code: str, *arguments: str, cache: Path, interpret: bool = False) -> str:
    """Run Python code in a fresh process, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(cache)
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., str]:
    """Run code in a process of its own: ``child(code, interpret=False)``; return what it prints."""

    def run(code: str, *, interpret: bool = False) -> str:
        script = tmp_path / "child.py"  # Triton reads a kernel's source from its file
        script.write_text(code)
        return run_child(
            "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')",
            str(script),
            cache=tmp_path / "cache",
            interpret=interpret,
        )

    return run


@pytest.fixture(scope="session")
def compile_sources(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., dict[str, tuple[KernelFacts, ...]]]:
    """Compile modules that have a `launch` in a fresh process, folder and cache; return the facts of each."""

    def compile_all(sources: Mapping[str, str], device: str = "h200") -> dict[str, tuple[KernelFacts, ...]]:
        folder = tmp_path_factory.mktemp("sources")
        for name, source in sources.items():
            (folder / f"{name}.py").write_text(source)
        printed = run_child(_COMPILE, device, str(folder), *sources, cache=folder / "cache")
        return from_json(printed, dict[str, tuple[KernelFacts, ...]])

    return compile_all


@pytest.fixture(scope="session")
def matmul_source() -> str:
    """A module whose `launch` multiplies two matrices."""
    return MATMUL


@pytest.fixture(scope="session")
def amd_edits(
    compile_sources: Callable[..., dict[str, tuple[KernelFacts, ...]]],
) -> dict[str, tuple[KernelFacts, ...]]:
    """Facts of the matmul for an MI300X: as it is, moved within its file, with another constant, and too large."""
    sources = {"base": MATMUL, "moved": "\n\n# moved\n\n" + MATMUL}
    edits = EDITS | {"large": ("BLOCK_M=64, BLOCK_N=64, BLOCK_K=64,", "BLOCK_M=512, BLOCK_N=256, BLOCK_K=16,")}
    for name in ("group", "large", "tuned"):
        old, new = edits[name]
        assert MATMUL.count(old) == 1
        # A tile of 2048 rows takes 28 s to compile; one of 512 does not fit either.
        sources[name] = MATMUL.replace(old, new).replace("(2048, 64)", "(512, 64)")
    return compile_sources(sources, "mi300x")


@pytest.fixture(scope="session")
def edits(
    compile_sources: Callable[[Mapping[str, str]], dict[str, tuple[KernelFacts, ...]]],
) -> dict[str, tuple[KernelFacts, ...]]:
    """Facts of the matmul as it is ("base") and after each edit, by its name."""
    sources = {"base": MATMUL}
    for name, (old, new) in EDITS.items():
        assert MATMUL.count(old) == 1
        sources[name] = MATMUL.replace(old, new)
    return compile_sources(sources)
