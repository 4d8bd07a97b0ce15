"""Triton kernels with float64 references."""

from flopwatch.kernels.matmul import triton_matmul, triton_matmul_fp32
from flopwatch.kernels.vector_add import vector_add

__all__ = ["triton_matmul", "triton_matmul_fp32", "vector_add"]
