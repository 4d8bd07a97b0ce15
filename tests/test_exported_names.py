"""The public names, exactly: one more or one less is a decision, and changes this file."""

from __future__ import annotations

import importlib
import inspect

import pytest

EXPORTED = {
    "flopwatch": {"Suite", "__version__"},
    "flopwatch.kernels": {
        "AdaptiveKernelSelector",
        "check_hopper_features",
        "flash_attention",
        "get_attention_config",
        "get_matmul_config",
        "get_optimal_attention",
        "get_optimal_matmul",
        "supports_fp8",
        "triton_matmul",
        "triton_matmul_fp32",
        "triton_matmul_fp8",
        "vector_add",
    },
    "flopwatch.utils": {
        "GPUArch",
        "GPUCapabilities",
        "detect_gpu",
        "print_gpu_info",
        "validate_attention",
        "validate_matmul",
    },
}
#: Not a package, so without `__all__`.
TOOLS = {"flopwatch.utils.benchmark": {"BenchmarkResult", "BenchmarkRunner", "benchmark_fn"}}
NAMES = [(module, name) for module, names in (EXPORTED | TOOLS).items() for name in sorted(names)]


@pytest.mark.parametrize("module", EXPORTED)
def test_a_module_exports_exactly_the_documented_names(module: str) -> None:
    exported = importlib.import_module(module).__all__

    assert set(exported) == EXPORTED[module]
    assert len(exported) == len(set(exported))


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_an_exported_name_can_be_imported_and_is_documented(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)

    if not isinstance(value, str):
        doc = inspect.getdoc(value) or ""
        assert doc.splitlines()[0].endswith(".")
        # A dataclass without a docstring gets one that is its signature.
        assert not doc.startswith(f"{name}(")


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_an_exported_name_is_in_the_documentation(module: str, name: str, pytestconfig: pytest.Config) -> None:
    reference = "".join(
        path.read_text(encoding="utf-8") for path in sorted((pytestconfig.rootpath / "docs").glob("*.md"))
    )

    assert f"{module}.{name}" in reference or name == "__version__"
