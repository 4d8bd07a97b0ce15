"""The kernels of `flopwatch.kernels`, under a shorter name."""

from flopwatch.kernels import (
    AdaptiveKernelSelector,
    check_hopper_features,
    flash_attention,
    get_attention_config,
    get_matmul_config,
    get_optimal_attention,
    get_optimal_matmul,
    supports_fp8,
    triton_matmul,
    triton_matmul_fp32,
    vector_add,
)

__all__ = [
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
    "vector_add",
]
