"""Suites of attorch, torch's layers written in Triton. See README.md beside this file."""

import attorch
import torch

from flopwatch import Suite


class LayerNorm(Suite):
    """Layer normalisation over rows, in float32."""

    params = (["4096x1024", "512x8192"],)
    param_names = ("shape",)
    small = {"shape": "5x70"}

    def inputs(self, shape, *, seed):
        rows, columns = map(int, shape.split("x"))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        layer = attorch.LayerNorm(columns).requires_grad_(requires_grad=False)
        return layer, torch.randn(rows, columns, generator=generator, device="cuda")

    def run(self, layer, x):
        return layer(x)

    def reference(self, layer, x):
        return torch.nn.functional.layer_norm(x.double(), x.shape[-1:])

    def flops(self, shape):
        rows, columns = map(int, shape.split("x"))
        return 8 * rows * columns

    def bytes_moved(self, shape):
        rows, columns = map(int, shape.split("x"))
        return (2 * rows + 2) * columns * 4


class Linear(Suite):
    """gelu(X W + b) in float16, fused; `shape` is m x k x n."""

    params = (["1024x1024x4096"],)
    param_names = ("shape",)
    small = {"shape": "33x48x40"}

    def inputs(self, shape, *, seed):
        m, k, n = map(int, shape.split("x"))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        x, w, b = (torch.randn(size, generator=generator, device="cuda") for size in ((m, k), (k, n), (n,)))
        layer = attorch.Linear(k, n, act_func="gelu", dtype=torch.float16).requires_grad_(requires_grad=False)
        layer.weight.copy_(w / k**0.5)
        layer.bias.copy_(b)
        return layer, x.half()

    def run(self, layer, x):
        return layer(x)

    def reference(self, layer, x):
        return torch.nn.functional.gelu(x.double() @ layer.weight.double() + layer.bias.double())

    def flops(self, shape):
        m, k, n = map(int, shape.split("x"))
        return 2 * m * k * n

    def bytes_moved(self, shape):
        m, k, n = map(int, shape.split("x"))
        return 2 * (m * k + k * n + n + m * n)
