"""Calls of every public function that launches: the plain kernels, and what Hopper has beside them.

Made here and not in a test, so that a process in which kernels are compiled can make them, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flopwatch.kernels import flash_attention, launch, triton_matmul, triton_matmul_fp8, triton_matmul_fp32, vector_add

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest


def half(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="cuda", dtype=torch.float16).fill_(0.5)


def product(m: int, n: int, k: int, blocks: tuple[int, int, int] | None = None) -> Callable[[], torch.Tensor]:
    a, b = half(m, k), half(k, n)
    block_m, block_n, block_k = blocks or (None, None, None)
    return lambda: triton_matmul(a, b, block_m, block_n, block_k)


def product_fp8(side: int) -> Callable[[], torch.Tensor]:
    a, one = half(side, side).to(torch.float8_e4m3fn), torch.ones((), device="cuda")
    return lambda: triton_matmul_fp8(a, a.T, one, one)


def product_fp32(side: int) -> Callable[[], torch.Tensor]:
    a = half(side, side)
    return lambda: triton_matmul_fp32(a, a)


def addition() -> Callable[[], torch.Tensor]:
    a = half(256, 256)
    return lambda: vector_add(a, a)


def attention(*shape: int, causal: bool = False, lengths: Sequence[int] = ()) -> Callable[[], torch.Tensor]:
    q = half(*shape)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device="cuda") if lengths else None
    return lambda: flash_attention(q, q, q, causal=causal, seq_lens=seq_lens)


#: What is called on a GPU, and the kernels that a Hopper launches: the plain ones, others, and what needs a workspace
#: or copies.
ON_GPU: dict[str, tuple[Callable[[], Callable[[], torch.Tensor]], str]] = {
    "flash_attention": (lambda: attention(2, 4, 256, 64, causal=True), "attention_kernel"),
    "flash_attention, larger": (lambda: attention(8, 16, 1024, 64, causal=True), "hopper_attention_kernel"),
    "flash_attention, lengths": (lambda: attention(8, 16, 1024, 64, lengths=8 * (700,)), "hopper_attention_kernel"),
    "triton_matmul": (lambda: product(128, 128, 128), "matmul_kernel"),
    "triton_matmul, short": (lambda: product(1024, 1024, 1024), "hopper_short_kernel"),
    "triton_matmul, tiles shared": (lambda: product(2560, 2560, 2560), "hopper_matmul_kernel"),
    "triton_matmul, few rows": (lambda: product(16, 4096, 4096), "thin_matmul_kernel"),
    "triton_matmul, copies": (lambda: product(320, 2049, 4099, (64, 128, 64)), "copy_kernel matmul_kernel copy_kernel"),
    "triton_matmul, few rows in one launch": (lambda: product(320, 2049, 4099), "hopper_copying_short_kernel"),
    "triton_matmul, copies in one launch": (lambda: product(4095, 4097, 515), "hopper_copying_kernel"),
    "triton_matmul, short, in one launch": (lambda: product(777, 1234, 5678), "hopper_copying_short_kernel"),
    "triton_matmul, a copy of B": (lambda: product(2504, 2504, 2504), "hopper_copying_kernel"),
    "triton_matmul_fp8": (lambda: product_fp8(256), "matmul_fp8_kernel"),
    "triton_matmul_fp8, larger": (lambda: product_fp8(1024), "hopper_matmul_kernel"),
    "triton_matmul_fp32": (lambda: product_fp32(128), "matmul_kernel"),
    "vector_add": (addition, "vector_add_kernel"),
}


def launched_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the kernels noted that are launched past Triton's dispatch from now on; return the list of their names."""
    again: list[str] = []
    launched = launch._launched

    def noted(kept: launch.Launch, stream: int, addresses: tuple[int, ...]) -> torch.Tensor | None:
        again.append(kept.function.__name__)
        return launched(kept, stream, addresses)

    monkeypatch.setattr(launch, "_launched", noted)
    return again
