"""Suites of mamba. See README.md beside this file."""

# ruff: noqa: N803, N806, PLR0917 - the names, and the number, of what the project takes

import torch
from mamba_ssm.ops.triton.layernorm_gated import rmsnorm_fn
from mamba_ssm.ops.triton.selective_state_update import selective_state_update
from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

from flopwatch import Suite


def _random(generator, *shape):
    return torch.randn(shape, generator=generator, device="cuda")


class ChunkScan(Suite):
    """The forward pass of Mamba-2; `shape` is batch x length x heads x head_dim x state."""

    params = (["2x2048x16x64x128"],)
    param_names = ("shape",)
    small = {"shape": "1x70x2x16x16"}

    def inputs(self, shape, *, seed):
        b, t, h, d, n = map(int, shape.split("x"))
        g = torch.Generator(device="cuda").manual_seed(seed)
        x = _random(g, b, t, h, d).half()
        dt = torch.nn.functional.softplus(_random(g, b, t, h) - 4)
        A = -torch.exp(_random(g, h))
        return x, dt, A, _random(g, b, t, 1, n).half(), _random(g, b, t, 1, n).half()

    def run(self, x, dt, A, B, C):
        return mamba_chunk_scan_combined(x, dt, A, B, C, chunk_size=64)

    def reference(self, x, dt, A, B, C):
        x, dt, A, B, C = (v.double() for v in (x, dt, A, B, C))
        state = x.new_zeros(x.shape[0], x.shape[2], x.shape[3], B.shape[3])
        out = []
        for t in range(x.shape[1]):
            decay = torch.exp(dt[:, t] * A)
            state = state * decay[..., None, None] + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None, :]
            out.append((state * C[:, t, :, None, :]).sum(-1))
        return torch.stack(out, dim=1)

    def flops(self, shape):
        b, t, h, d, n = map(int, shape.split("x"))
        return 4 * b * t * h * d * n

    def bytes_moved(self, shape):
        b, t, h, d, n = map(int, shape.split("x"))
        return b * t * (2 * 2 * h * d + 4 * h + 4 * n)


class StateUpdate(Suite):
    """One step of decoding; `shape` is batch x heads x head_dim x state."""

    params = (["64x64x64x128"],)
    param_names = ("shape",)
    small = {"shape": "2x2x16x16"}

    def inputs(self, shape, *, seed):
        b, h, d, n = map(int, shape.split("x"))
        g = torch.Generator(device="cuda").manual_seed(seed)
        state = _random(g, b, h, d, n)
        x = _random(g, b, h, d)
        dt = _random(g, b, h, 1).expand(b, h, d)
        A = -torch.exp(_random(g, h))[:, None, None].expand(h, d, n)
        D, bias = (_random(g, h)[:, None].expand(h, d) for _ in range(2))
        return state, x, dt, A, _random(g, b, 1, n), _random(g, b, 1, n), D, bias

    def run(self, state, x, dt, A, B, C, D, bias):
        return selective_state_update(state.clone(), x, dt, A, B, C, D, dt_bias=bias, dt_softplus=True)

    def reference(self, state, x, dt, A, B, C, D, bias):
        state, x, dt, A, B, C, D, bias = (value.double() for value in (state, x, dt, A, B, C, D, bias))
        dt = torch.nn.functional.softplus(dt + bias)[..., None]
        state = state * torch.exp(dt * A) + dt * x[..., None] * B[:, :, None]
        return (state * C[:, :, None]).sum(-1) + D * x

    def flops(self, shape):
        b, h, d, n = map(int, shape.split("x"))
        return 6 * b * h * d * n

    def bytes_moved(self, shape):
        b, h, d, n = map(int, shape.split("x"))
        return 8 * b * h * d * n


class GatedNorm(Suite):
    """RMSNorm with a gate; `shape` is rows x columns."""

    params = (["4096x4096"],)
    param_names = ("shape",)
    small = {"shape": "3x70"}

    def inputs(self, shape, *, seed):
        rows, columns = map(int, shape.split("x"))
        g = torch.Generator(device="cuda").manual_seed(seed)
        return _random(g, rows, columns).half(), _random(g, columns), _random(g, rows, columns).half()

    def run(self, x, weight, z):
        return rmsnorm_fn(x, weight, None, z=z, eps=1e-5, norm_before_gate=False)

    def reference(self, x, weight, z):
        x, weight, z = x.double(), weight.double(), z.double()
        x = x * torch.nn.functional.silu(z)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight

    def flops(self, shape):
        rows, columns = map(int, shape.split("x"))
        return 9 * rows * columns

    def bytes_moved(self, shape):
        rows, columns = map(int, shape.split("x"))
        return 6 * rows * columns
