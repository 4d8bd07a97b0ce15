"""The matrix products of `flopwatch.kernels`, under a shorter name."""

from flopwatch.kernels import triton_matmul, triton_matmul_fp32

__all__ = ["triton_matmul", "triton_matmul_fp32"]
