"""Triton kernels with float64 references."""

from flopwatch.kernels.vector_add import vector_add

__all__ = ["vector_add"]
