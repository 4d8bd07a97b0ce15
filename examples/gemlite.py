"""Suites of gemlite, matrix products with weights of few bits. See README.md beside this file."""

import torch
from gemlite import DType, GemLiteLinear

from flopwatch import Suite

GROUP = 128


class GemLite(Suite):
    """Y = X W^T in float16, W of 4 bits in groups of 128, each with a scale and a zero; `shape` is m x k x n."""

    params = (["1x4096x4096", "16x4096x4096", "256x4096x4096"],)
    param_names = ("shape",)
    small = {"shape": "3x256x256"}

    def inputs(self, shape, *, seed):
        m, k, n = map(int, shape.split("x"))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        x = torch.randn(m, k, generator=generator, device="cuda").half()
        weights = torch.randint(0, 16, (n, k), generator=generator, device="cuda", dtype=torch.uint8)
        scales, zeros = (torch.rand(n, k // GROUP, generator=generator, device="cuda").half() for _ in range(2))
        scales, zeros = scales / 16, zeros * 16
        layer = GemLiteLinear(4, GROUP, k, n, input_dtype=DType.FP16, output_dtype=DType.FP16)
        layer.pack(weights, scales, zeros)
        return x, layer, weights, scales, zeros

    def run(self, x, layer, weights, scales, zeros):
        return layer(x)

    def reference(self, x, layer, weights, scales, zeros):
        n, k = weights.shape
        grouped = weights.view(n, k // GROUP, GROUP).double()
        dense = (grouped - zeros.double()[..., None]) * scales.double()[..., None]
        return x.double() @ dense.view(n, k).T

    def flops(self, shape):
        m, k, n = map(int, shape.split("x"))
        return 2 * m * k * n

    def bytes_moved(self, shape):
        m, k, n = map(int, shape.split("x"))
        return 2 * (m * k + m * n) + n * k // 2 + 2 * 2 * n * k // GROUP
