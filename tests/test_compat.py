"""The opt-in distribution: every snippet of the API reference, word for word, through the top-level names."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import inspect
import io
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from flopwatch.kernels.reference import attention_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
COMPAT = ROOT / "compat"

IMPORTS = """\
from kernels import triton_matmul
from kernels.matmul import triton_matmul_fp32
from kernels import flash_attention
from utils import detect_gpu, GPUCapabilities, GPUArch, print_gpu_info
from utils.benchmark import BenchmarkResult, BenchmarkRunner, benchmark_fn
from utils import validate_matmul, validate_attention
"""

MATMUL = """\
import torch
from kernels import triton_matmul
from utils import validate_matmul
ok, max_diff = validate_matmul(triton_matmul, m=1024, n=1024, k=1024)
print(ok, max_diff)
"""

ATTENTION = """\
import torch
from kernels import flash_attention
from utils import validate_attention
q = torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.float16)
k = torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.float16)
v = torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.float16)
out = flash_attention(q, k, v, causal=True)
ok, max_diff = validate_attention(flash_attention, batch=2, heads=8, seq_len=512, head_dim=64)
print(ok, max_diff)
"""

ADAPTIVE = """\
from kernels import (
AdaptiveKernelSelector,
check_hopper_features,
get_attention_config,
get_matmul_config,
get_optimal_attention,
get_optimal_matmul,
supports_fp8,
)
features = check_hopper_features()
print(features)
matmul_config = get_matmul_config()
attention_config = get_attention_config()
print(matmul_config)
print(attention_config)
selector = AdaptiveKernelSelector()
matmul_fn = selector.select_matmul_kernel()
attention_fn = selector.select_attention_kernel()
print(callable(matmul_fn), callable(attention_fn))
print(supports_fp8())
"""

SIGNATURES = {
    "kernels:triton_matmul": "a, b, block_m=None, block_n=None, block_k=None, use_autotune=True",
    "kernels.matmul:triton_matmul_fp32": "a, b",
    # What it has beyond the reference comes last, and by keyword alone.
    "kernels:flash_attention": "q, k, v, causal=False, sm_scale=None, seq_lens=None, out_dtype=None",
    "utils:detect_gpu": "device_id=0",
    "utils:print_gpu_info": "caps=None",
    "utils.benchmark:BenchmarkResult": "name, size, time_ms, tflops, memory_mb=0.0, block_config=None",
    "utils.benchmark:benchmark_fn": "fn, *args, warmup=25, rep=100, quantiles=None, **kwargs",
    "utils.benchmark:BenchmarkRunner": "device='cuda', warmup=25, rep=100",
    "utils.benchmark:BenchmarkRunner.benchmark_matmul": (
        "self, triton_fn, sizes, block_configs=None, dtype=torch.float16"
    ),
    "utils.benchmark:BenchmarkRunner.benchmark_attention": (
        "self, flash_fn, seq_lengths, batch_size=4, num_heads=8, head_dim=64, causal=False, dtype=torch.float16"
    ),
    "utils.benchmark:BenchmarkRunner.print_comparison_table": "self, results=None, title='Benchmark Results'",
    "utils:validate_matmul": (
        "triton_fn, m, n, k, rtol=0.001, atol=0.001, dtype=torch.float16, device='cuda', verbose=False"
    ),
    "utils:validate_attention": (
        "flash_fn, batch, heads, seq_len, head_dim, causal=False, rtol=0.001, atol=0.001, dtype=torch.float16, "
        "device='cuda', verbose=False"
    ),
}

FIELDS = {
    "utils:GPUCapabilities": (
        "name",
        "arch",
        "compute_capability",
        "has_tma",
        "has_fp8",
        "has_warpgroup_mma",
        "sram_per_sm",
        "num_sms",
        "total_memory_gb",
    ),
    "utils.benchmark:BenchmarkResult": ("name", "size", "time_ms", "tflops", "memory_mb", "block_config"),
}

ARCHITECTURES = {
    "VOLTA": "sm_70",
    "TURING": "sm_75",
    "AMPERE": "sm_80",
    "ADA": "sm_89",
    "HOPPER": "sm_90",
    "BLACKWELL": "sm_100",
    "UNKNOWN": "unknown",
}


def _loaded() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in ("kernels", "utils")]


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the top-level names importable: the installed distribution's, or those of the source tree."""
    try:
        importlib.metadata.version("flopwatch-names")
    except importlib.metadata.PackageNotFoundError:
        monkeypatch.syspath_prepend(COMPAT / "src")
    for name in _loaded():
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in _loaded():
        del sys.modules[name]


def execute(snippet: str) -> tuple[dict[str, Any], list[str]]:
    """Run a snippet as a program; return its names and the lines that it printed."""
    scope: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet, "<the API reference>", "exec"), scope)  # noqa: S102 - the snippets are above
    return scope, printed.getvalue().splitlines()


def test_every_import_of_the_reference_gives_what_flopwatch_has() -> None:
    scope, _ = execute(IMPORTS)
    public = {name: value for name, value in scope.items() if not name.startswith("__")}
    assert len(public) == 12
    assert {value.__module__.partition(".")[0] for value in public.values()} == {"flopwatch"}


def named(path: str) -> Any:  # noqa: ANN401 - a function or a class
    """Return what ``module:name`` names."""
    module, _, name = path.partition(":")
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target


@pytest.mark.parametrize("path", SIGNATURES)
def test_the_signatures_are_those_of_the_reference(path: str) -> None:
    parameters = inspect.signature(named(path)).parameters.values()
    bare = [str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters]
    assert ", ".join(bare) == SIGNATURES[path]


@pytest.mark.parametrize("path", FIELDS)
def test_the_fields_and_their_order_are_those_of_the_reference(path: str) -> None:
    assert tuple(field.name for field in dataclasses.fields(named(path))) == FIELDS[path]


def test_the_architectures_are_those_of_the_reference() -> None:
    # __members__ has aliases too; the pairs compare their order.
    members = [(name, member.value) for name, member in named("utils:GPUArch").__members__.items()]
    assert members == list(ARCHITECTURES.items())


def test_the_matmul_snippet_runs(cuda: str) -> None:
    assert torch.ones(1, device=cuda).is_cuda
    scope, lines = execute(MATMUL)
    assert scope["ok"] is True
    assert lines == [f"True {scope['max_diff']}"]


def test_the_attention_snippet_runs(cuda: str) -> None:
    assert torch.ones(1, device=cuda).is_cuda
    scope, lines = execute(ATTENTION)
    assert scope["ok"] is True
    assert lines == [f"True {scope['max_diff']}"]
    expected = attention_reference(scope["q"], scope["k"], scope["v"], causal=True)
    assert float((scope["out"].double() - expected).abs().max()) < 4e-3


def test_the_adaptive_snippet_runs(cuda: str) -> None:
    assert torch.ones(1, device=cuda).is_cuda
    scope, lines = execute(ADAPTIVE)
    capability = torch.cuda.get_device_capability()
    assert scope["features"]["compute_capability"] == capability
    assert {"BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages"} <= set(scope["matmul_config"].as_dict())
    assert lines[-2:] == ["True True", str(capability >= (8, 9))]


def test_the_adaptive_snippet_runs_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    scope, lines = execute(ADAPTIVE)
    assert scope["features"] == {
        "tma_available": False,
        "fp8_available": False,
        "wgmma_available": False,
        "arch": "unknown",
        "compute_capability": (0, 0),
    }
    assert lines[-2:] == ["True True", "False"]


def _wheel_names(project: Path, into: Path) -> set[str]:
    for tool in ("pip", "hatchling"):
        if importlib.util.find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed, so no wheel can be built offline")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", into, project], check=True)
    (wheel,) = into.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}


def test_the_main_wheel_has_no_top_level_name_but_its_own(tmp_path: Path) -> None:
    assert _wheel_names(ROOT, tmp_path) == {"flopwatch"}


def test_the_opt_in_wheel_has_the_two_names_and_nothing_else(tmp_path: Path) -> None:
    assert _wheel_names(COMPAT, tmp_path) == {"kernels", "utils"}


def test_the_opt_in_distribution_needs_flopwatch_alone() -> None:
    project = tomllib.loads((COMPAT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["name"], project["dependencies"]) == ("flopwatch-names", ["flopwatch>=0.1"])
