"""A suite of AutoGPTQ's kernel, which brings an autotuner of its own. See README.md beside this file."""

import torch
from triton_utils.kernels import quant_matmul_248

from flopwatch import Suite

BITS = 4
GROUP = 128
PER_WORD = 32 // BITS


class QuantMatmul(Suite):
    """Y = X W in float16, W of 4 bits in groups of 128, packed into 32; `shape` is m x k x n."""

    params = (["16x4096x4096"],)
    param_names = ("shape",)
    small = {"shape": "5x256x64"}

    def inputs(self, shape, *, seed):
        m, k, n = map(int, shape.split("x"))
        generator = torch.Generator(device="cuda").manual_seed(seed)

        def words(*size):
            return torch.randint(-(2**31), 2**31, size, generator=generator, device="cuda").int()

        x = torch.randn(m, k, generator=generator, device="cuda").half()
        scales = torch.rand(k // GROUP, n, generator=generator, device="cuda").half() / 16
        groups = torch.arange(k, device="cuda", dtype=torch.int32) // GROUP
        return x, words(k // PER_WORD, n), scales, words(k // GROUP, n // PER_WORD), groups

    def run(self, x, weights, scales, zeros, groups):
        return quant_matmul_248(x, weights, scales, zeros, groups, BITS, 2**BITS - 1)

    def reference(self, x, weights, scales, zeros, groups):
        shifts = torch.arange(0, 32, BITS, device=x.device, dtype=torch.int32)
        w = (weights[:, None, :] >> shifts[None, :, None] & 15).flatten(0, 1)
        z = (zeros[:, :, None] >> shifts & 15).flatten(1) + 1
        return x.double() @ ((w - z[groups]).double() * scales.double()[groups])

    def flops(self, shape):
        m, k, n = map(int, shape.split("x"))
        return 2 * m * k * n

    def bytes_moved(self, shape):
        m, k, n = map(int, shape.split("x"))
        return 2 * (m * k + m * n) + n * k // 2 + 2 * n * k // GROUP + n * k // GROUP // 2
