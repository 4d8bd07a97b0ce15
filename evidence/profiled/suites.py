"""8192 x 8192 x 8192 in float16 by cuBLAS itself, by torch and by the bundled kernel; B is stored by columns."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import ClassVar

import torch

from flopwatch.suite import discover

Matmul = discover(Path(__file__).parents[2] / "benchmarks").suites["Matmul"]

#: Of cublas_api.h and library_types.h.
_OP_N, _OP_T, _R_16F, _COMPUTE_32F, _GEMM_DEFAULT = 0, 1, 2, 68, -1


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the cuBLAS that torch has loaded.

    Triton has a binding of its own, ``CublasLt``, which launches into the legacy stream whatever the current one is: a
    CUDA graph captures nothing of it, and the gate's timer would time that (triton's cublas_instance.h).
    """
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return ctypes.CDLL(next(line.split()[-1] for line in maps if "/libcublas.so" in line))


def cublas_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply A (M, K), stored by rows, and B (K, N), stored by columns, with cublasGemmEx on the current stream."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=torch.float16, device=a.device)
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    # cuBLAS has matrices by columns: it computes C^T (N, M) = B^T A^T of what lies in memory as (K, N) and (K, M).
    status = _library().cublasGemmEx(
        handle,
        *(_OP_T, _OP_N, n, m, k, ctypes.byref(one)),
        *(ctypes.c_void_p(b.data_ptr()), _R_16F, b.stride(1)),
        *(ctypes.c_void_p(a.data_ptr()), _R_16F, a.stride(0)),
        *(ctypes.byref(zero), ctypes.c_void_p(c.data_ptr()), _R_16F, c.stride(0)),
        *(_COMPUTE_32F, _GEMM_DEFAULT),
    )
    if status:
        raise RuntimeError(f"cublasGemmEx returned {status}")
    return c


class Product(Matmul):  # type: ignore[misc, valid-type] # discovered, not imported
    """C = A @ B as in the document."""

    params: ClassVar = (("8192x8192x8192",), ("float16",))
    param_names: ClassVar = ("shape", "dtype")
    providers: ClassVar = {"cublas": cublas_matmul, "torch": torch.matmul}
    skip_params: ClassVar = ()
    transposed = "b"
