"""Suites of Liger-Kernel, layers for training language models. See README.md beside this file."""

import torch
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction

from flopwatch import Suite

EPSILON = 1e-6


class RMSNorm(Suite):
    """x / sqrt(mean(x^2) + eps) * w over rows, as in Llama."""

    params = (["2048x4096", "4096x896"], ["float16", "bfloat16"])
    param_names = ("shape", "dtype")
    small = {"shape": "5x70"}

    def inputs(self, shape, dtype, *, seed):
        rows, columns = map(int, shape.split("x"))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        kind = getattr(torch, dtype)
        x, w = (torch.randn(size, generator=generator, device="cuda").to(kind) for size in ((rows, columns), columns))
        return x, w

    def run(self, x, w):
        return LigerRMSNormFunction.apply(x, w, EPSILON, 0.0, "llama", False)

    def reference(self, x, w):
        x, w = x.double(), w.double()
        return x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * w

    def flops(self, shape, dtype):
        rows, columns = map(int, shape.split("x"))
        return 4 * rows * columns

    def bytes_moved(self, shape, dtype):
        rows, columns = map(int, shape.split("x"))
        return (2 * rows * columns + columns) * getattr(torch, dtype).itemsize


class RMSNormBackward(RMSNorm):
    """The gradients of the rows and of the weights, together with the forward pass."""

    def inputs(self, shape, dtype, *, seed):
        x, w = super().inputs(shape, dtype, seed=seed)
        return x.requires_grad_(), w.requires_grad_(), super().inputs(shape, dtype, seed=seed + 1)[0]

    def run(self, x, w, gradient):
        return torch.autograd.grad(super().run(x, w), (x, w), gradient)

    def reference(self, x, w, gradient):
        x, w = (tensor.detach().double().requires_grad_() for tensor in (x, w))
        return torch.autograd.grad(super().reference(x, w), (x, w), gradient.double())


class SwiGLU(Suite):
    """silu(a) * b."""

    params = (["2048x11008"], ["bfloat16"])
    param_names = ("shape", "dtype")
    small = {"shape": "5x70"}

    def inputs(self, shape, dtype, *, seed):
        size = tuple(map(int, shape.split("x")))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return tuple(torch.randn(size, generator=generator, device="cuda").to(getattr(torch, dtype)) for _ in range(2))

    def run(self, a, b):
        return LigerSiLUMulFunction.apply(a, b)

    def reference(self, a, b):
        return torch.nn.functional.silu(a.double()) * b.double()

    def flops(self, shape, dtype):
        rows, columns = map(int, shape.split("x"))
        return 5 * rows * columns

    def bytes_moved(self, shape, dtype):
        rows, columns = map(int, shape.split("x"))
        return 3 * rows * columns * getattr(torch, dtype).itemsize
