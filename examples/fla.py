"""Suites of flash-linear-attention. See README.md beside this file."""

import torch
from fla.ops.attn import parallel_attn
from fla.ops.gla import chunk_gla

from flopwatch import Suite


class GatedLinearAttention(Suite):
    """O_t = q_t S_t, S_t = diag(exp(g_t)) S_(t-1) + k_t^T v_t, in chunks; `shape` is b x t x h x d."""

    params = (["2x2048x4x128"],)
    param_names = ("shape",)
    small = {"shape": "1x70x2x16"}

    def inputs(self, shape, *, seed):
        size = tuple(map(int, shape.split("x")))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        q, k, v, g = (torch.randn(size, generator=generator, device="cuda") for _ in range(4))
        return q.half(), k.half(), v.half(), torch.nn.functional.logsigmoid(g)

    def run(self, q, k, v, g):
        return chunk_gla(q, k, v, g)[0]

    def reference(self, q, k, v, g):
        q, k, v, g = (tensor.double() for tensor in (q, k, v, g))
        state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
        outputs = []
        for t in range(q.shape[1]):
            state = state * g[:, t].exp()[..., None] + k[:, t][..., None] * v[:, t][..., None, :]
            outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * q.shape[-1] ** -0.5, state))
        return torch.stack(outputs, dim=1)

    def flops(self, shape):
        b, t, h, d = map(int, shape.split("x"))
        return 4 * b * t * h * d * d

    def bytes_moved(self, shape):
        b, t, h, d = map(int, shape.split("x"))
        return (4 * 2 + 4) * b * t * h * d


class ParallelAttention(Suite):
    """Causal softmax attention; `shape` is b x t x h x d."""

    params = (["2x2048x8x64"],)
    param_names = ("shape",)
    small = {"shape": "1x70x2x16"}

    def inputs(self, shape, *, seed):
        size = tuple(map(int, shape.split("x")))
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return tuple(torch.randn(size, generator=generator, device="cuda").half() for _ in range(3))

    def run(self, q, k, v):
        return parallel_attn(q, k, v)

    def reference(self, q, k, v):
        q, k, v = (tensor.double().transpose(1, 2) for tensor in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    def flops(self, shape):
        b, t, h, d = map(int, shape.split("x"))
        return 2 * b * h * t * t * d

    def bytes_moved(self, shape):
        b, t, h, d = map(int, shape.split("x"))
        return 4 * b * h * t * d * 2
