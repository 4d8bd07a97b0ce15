"""Triton kernels with float64 references: matrix multiplication, attention, vector addition, and what selects them."""

from flopwatch.kernels.attention import flash_attention
from flopwatch.kernels.matmul import triton_matmul, triton_matmul_fp32
from flopwatch.kernels.matmul_fp8 import triton_matmul_fp8
from flopwatch.kernels.selection import (
    AdaptiveKernelSelector,
    check_hopper_features,
    get_attention_config,
    get_matmul_config,
    get_optimal_attention,
    get_optimal_matmul,
    supports_fp8,
)
from flopwatch.kernels.vector_add import vector_add

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
    "triton_matmul_fp8",
    "triton_matmul_fp32",
    "vector_add",
]
