"""The suites of both kernels: the autotuned one is tuned, the one by heuristics is its peer.

``flopwatch tune TunedMatmul --against heuristics`` says what either loses against a search of the `tuning_space`;
docs/tune.md tells how this folder becomes a project, in which the command finds it.
"""

from __future__ import annotations

import torch

from flopwatch import Suite

from .rules import add, add_by_rule, matmul, matmul_by_rule


class TunedAdd(Suite):
    """out = x + y."""

    params = (("1000", "65536", "1048576", "16777216", "67108864"), ("float32",))
    param_names = ("n", "dtype")
    small = {"n": "1001"}
    own_provider = "autotune"
    providers = {"heuristics": add_by_rule}
    max_diff_eps = 0.5
    tuning_space = {"BLOCK": (128, 256, 512, 1024, 2048, 4096), "num_warps": (2, 4, 8)}

    def inputs(self, n, dtype, *, seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return tuple(torch.randn(int(n), device="cuda", generator=generator).to(getattr(torch, dtype)) for _ in "xy")

    def run(self, x, y):
        return add(x, y)

    def reference(self, x, y):
        return x.double() + y.double()

    def flops(self, n, dtype):
        return float(n)

    def bytes_moved(self, n, dtype):
        return 3.0 * int(n) * getattr(torch, dtype).itemsize


class TunedMatmul(Suite):
    """C = A @ B; `shape` is MxNxK."""

    params = (
        ("512x512x512", "1024x1024x1024", "4096x4096x4096", "8192x8192x8192", "16x4096x4096", "4096x4096x128"),
        ("float16",),
    )
    param_names = ("shape", "dtype")
    small = {"shape": "33x65x47"}
    own_provider = "autotune"
    providers = {"heuristics": matmul_by_rule}
    max_diff_eps = 2.0
    tuning_space = {
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (64, 128, 256),
        "BLOCK_K": (32, 64),
        "num_warps": (4, 8),
        "num_stages": (3, 4),
    }

    def inputs(self, shape, dtype, *, seed):
        m, n, k = map(int, shape.split("x"))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return tuple(
            torch.randn(size, device="cuda", generator=generator).to(getattr(torch, dtype)) for size in ((m, k), (k, n))
        )

    def run(self, a, b):
        return matmul(a, b)

    def reference(self, a, b):
        return a.double() @ b.double()

    def flops(self, shape, dtype):
        m, n, k = map(int, shape.split("x"))
        return 2.0 * m * n * k

    def bytes_moved(self, shape, dtype):
        m, n, k = map(int, shape.split("x"))
        return float((m * k + k * n + m * n) * getattr(torch, dtype).itemsize)
