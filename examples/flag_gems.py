"""Suites of FlagGems. See README.md beside this file."""

import torch
from flag_gems.ops.gelu import gelu
from flag_gems.ops.mm import mm

from flopwatch import Suite


class Gelu(Suite):
    """x / 2 (1 + erf(x / sqrt 2)), whose kernel FlagGems writes into a file when it is first called."""

    params = (["4096x1000"],)
    param_names = ("shape",)
    small = {"shape": "3x70"}

    def inputs(self, shape, *, seed):
        rows, columns = map(int, shape.split("x"))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return (torch.randn(rows, columns, generator=generator, device="cuda").half(),)

    def run(self, x):
        return gelu(x)

    def reference(self, x):
        return torch.nn.functional.gelu(x.double())

    def flops(self, shape):
        rows, columns = map(int, shape.split("x"))
        return 5 * rows * columns

    def bytes_moved(self, shape):
        rows, columns = map(int, shape.split("x"))
        return 4 * rows * columns


class Product(Suite):
    """C = A B, under a tuner that keeps its times in a database; `shape` is M x N x K."""

    params = (["2048x2048x2048"],)
    param_names = ("shape",)
    small = {"shape": "33x40x70"}

    def inputs(self, shape, *, seed):
        m, n, k = map(int, shape.split("x"))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return tuple(torch.randn(size, generator=generator, device="cuda").half() for size in ((m, k), (k, n)))

    def run(self, a, b):
        return mm(a, b)

    def reference(self, a, b):
        return a.double() @ b.double()

    def flops(self, shape):
        m, n, k = map(int, shape.split("x"))
        return 2 * m * n * k

    def bytes_moved(self, shape):
        m, n, k = map(int, shape.split("x"))
        return 2 * (m * n + m * k + n * k)
