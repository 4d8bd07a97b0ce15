"""Suites of triton-lang/kernels, of which attention was Triton's own tutorial. See README.md beside this file."""

import torch
from kernels.flash_attention import attention

from flopwatch import Suite


class Attention(Suite):
    """softmax(Q K^T / sqrt(d)) V in float16, causal; `shape` is b x h x s x d."""

    params = (["4x16x2048x64", "2x16x4096x128"],)
    param_names = ("shape",)
    small = {"shape": "1x2x128x16"}

    def inputs(self, shape, *, seed):
        size = tuple(map(int, shape.split("x")))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return tuple(torch.randn(size, generator=generator, device="cuda").half() for _ in range(3))

    def run(self, q, k, v):
        return attention(q, k, v, True, q.shape[-1] ** -0.5)

    def reference(self, q, k, v):
        q, k, v = q.double(), k.double(), v.double()
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def flops(self, shape):
        b, h, s, d = map(int, shape.split("x"))
        return 2 * b * h * s * s * d

    def bytes_moved(self, shape):
        b, h, s, d = map(int, shape.split("x"))
        return 4 * b * h * s * d * 2
