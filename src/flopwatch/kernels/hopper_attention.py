"""FlashAttention forward for sm_90, warp-specialised in the manner of FlashAttention-3 (Shah et al., 2024).

`flopwatch.kernels.flash_attention` takes these kernels where they were measured to be faster than the plain one
(`flopwatch.kernels.routes`). docs/decisions/0005-hopper-attention.md says what they are worth, and what an earlier form
lost and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flopwatch.kernels.hopper_attention_kernel import hopper_attention_kernel
from flopwatch.kernels.hopper_attention_tiles import choose_group
from flopwatch.kernels.hopper_attention_workspace import arrange, pointers_of
from flopwatch.kernels.prepared import Prepared
from flopwatch.kernels.seq_lens import check_seq_lens

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Of a warpgroup: the M of one wgmma.
ROWS = 64
#: Keys and values of as many heads as fit about two fifths of an H200's L2 cache of 60 MiB are walked together.
_L2_BYTES = 24_000_000
#: Programs that read the same keys and values at about the same time, so that they come from memory once.
_SHARING = 4
#: Registers of a thread of the consumers, by warpgroups of a program and programs of a multiprocessor: what 65536 leave
#: beside those of the producer, in steps of 8.
_REGISTERS = MappingProxyType({(2, 1): 240, (3, 1): 160, (2, 2): 104})
#: Of a thread of the producer without lengths, and with them: 65536 leave the consumers as many in either case.
_PRODUCER_REGISTERS = (24, 32)
#: Of a thread at launch, so that two programs of 384 threads fit; None leaves it to Triton.
_LAUNCH_REGISTERS = MappingProxyType({1: None, 2: 80})
#: Warpgroups whose registers are all taken.
_FULL_GROUPS = 3
_DTYPES = MappingProxyType({torch.float16: gl.float16, torch.bfloat16: gl.bfloat16})
_ALIGNMENT_BYTES = 16
_LEAST_SCALE = 2.0**-100


@dataclass(frozen=True, kw_only=True, slots=True)
class HopperAttentionConfig:
    """How the kernel is compiled and launched.

    Attributes:
        block_n: keys of a block.
        stages: blocks of K, and of V, that are in shared memory.
        groups: consumer warpgroups, 2 or 3, of 64 rows each.
        ping_pong: they take turns at issuing products, so that one's softmax meets the other's products.
        polynomial: an eighth of the exponentials are computed by FMA.
        q_stages: tiles whose Q is in shared memory: 2 have room for that of the next tile, and need `own_out`.
        q_held: columns of Q, a power of two from 16 to head_dim, that stay in registers, so that products with a block
            of keys read fewer bytes of shared memory; 0 for none. Calls that need a second loop of masked blocks hold
            none: 64 with three warpgroups would spill, and 128 computes exponentials too late (triton 3.6.0).
        own_out: the output has shared memory of its own, so that the next Q lands while it is written.
        out_parts: 1, or 2 where the output's own memory has room for half of its columns, which leave it one half after
            the other; 2 needs `own_out`.
        persistent: a program computes several tiles; else one, in the order of the hardware.
        resident: programs of a multiprocessor, 1 or, with 2 groups, 2.
    """

    block_n: int
    stages: int
    groups: int
    ping_pong: bool = False
    polynomial: bool = False
    q_stages: int = 1
    q_held: int = 0
    own_out: bool = True
    out_parts: int = 1
    persistent: bool = True
    resident: int = 1

    @property
    def name(self) -> str:
        """What it is called in tables.

        >>> HopperAttentionConfig(block_n=128, stages=2, groups=2, ping_pong=True).name
        '128x128 s2 pp'
        """
        words = [f"{ROWS * self.groups}x{self.block_n}", f"s{self.stages}"]
        words += [f"q{self.q_stages}"] if self.q_stages > 1 else []
        words += [f"h{self.q_held}"] if self.q_held else []
        words += [f"o{self.out_parts}"] if self.out_parts > 1 else []
        words += ["pp"] if self.ping_pong else []
        words += ["poly"] if self.polynomial else []
        words += [] if self.persistent else ["plain"]
        words += [f"r{self.resident}"] if self.resident > 1 else []
        return " ".join(words)


_Config = HopperAttentionConfig
#: What is worth measuring, by head_dim: what compiles for sm_90 without spills, of whole blocks (triton 3.6.0 to 3.9.0,
#: 2026-11-25; 128 with all of Q held and a mask spills 4 bytes with 3.9.0).
HOPPER_ATTENTION: Mapping[int, tuple[HopperAttentionConfig, ...]] = MappingProxyType(
    {
        16: (
            _Config(block_n=128, stages=3, groups=3),
            _Config(block_n=128, stages=3, groups=2, ping_pong=True),
        ),
        32: (
            _Config(block_n=128, stages=3, groups=3),
            _Config(block_n=128, stages=3, groups=3, polynomial=True),
            _Config(block_n=128, stages=3, groups=2, ping_pong=True),
            _Config(block_n=128, stages=3, groups=3, persistent=False),
            _Config(block_n=64, stages=4, groups=3),
            _Config(block_n=64, stages=4, groups=2, resident=2),
            _Config(block_n=128, stages=3, groups=3, q_stages=2),
            _Config(block_n=128, stages=3, groups=3, q_stages=2, polynomial=True),
            _Config(block_n=128, stages=3, groups=3, q_stages=2, q_held=32),
        ),
        64: (
            _Config(block_n=128, stages=2, groups=3),
            _Config(block_n=128, stages=2, groups=3, ping_pong=True),
            _Config(block_n=128, stages=2, groups=3, polynomial=True),
            _Config(block_n=128, stages=2, groups=2, ping_pong=True),
            _Config(block_n=128, stages=3, groups=2, ping_pong=True),
            _Config(block_n=128, stages=2, groups=3, persistent=False),
            _Config(block_n=64, stages=4, groups=3),
            _Config(block_n=128, stages=2, groups=3, q_stages=2),
            _Config(block_n=128, stages=2, groups=3, q_stages=2, ping_pong=True),
            _Config(block_n=128, stages=2, groups=2, q_stages=2, ping_pong=True),
            _Config(block_n=128, stages=3, groups=2, q_stages=2, ping_pong=True),
            _Config(block_n=128, stages=2, groups=3, q_held=16),
            _Config(block_n=128, stages=2, groups=3, q_stages=2, q_held=16),
            _Config(block_n=128, stages=3, groups=2, q_stages=2, q_held=64, ping_pong=True),
        ),
        128: (
            _Config(block_n=128, stages=2, groups=2, ping_pong=True),
            _Config(block_n=128, stages=2, groups=2),
            _Config(block_n=128, stages=2, groups=2, ping_pong=True, persistent=False),
            _Config(block_n=64, stages=4, groups=2, ping_pong=True),
            _Config(block_n=64, stages=3, groups=3),
            _Config(block_n=128, stages=2, groups=2, q_stages=2, ping_pong=True),
            _Config(block_n=128, stages=2, groups=2, q_stages=2),
            _Config(block_n=128, stages=2, groups=2, q_stages=2, q_held=128, ping_pong=True),
        ),
        256: (
            _Config(block_n=64, stages=2, groups=2, ping_pong=True, own_out=False),
            _Config(block_n=64, stages=2, groups=2, own_out=False),
            _Config(block_n=64, stages=2, groups=2, ping_pong=True, own_out=False, persistent=False),
            _Config(block_n=32, stages=4, groups=2, ping_pong=True, own_out=False),
            _Config(block_n=64, stages=2, groups=2, ping_pong=True, out_parts=2),
            _Config(block_n=64, stages=2, groups=2, out_parts=2),
        ),
    }
)


def hopper_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    config: HopperAttentionConfig,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    seq_lens: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute ``softmax(sm_scale * Q K^T + mask) V`` of each head on sm_90; no gradient.

    Args:
        q: (B, H, Sq, D), float16 or bfloat16; D is 16, 32, 64, 128 or 256. The last stride is 1, the others are
            multiples of 8 elements.
        k: (B, H / n, Sk, D) for any n that divides H, likewise; n heads of `q` share one of these.
        v: as `k`.
        config: one of `HOPPER_ATTENTION` [D].
        causal: whether query i sees only the keys up to i + Sk - Sq; a query that sees none gives 0.
        sm_scale: factor of the scores, ``1 / sqrt(D)`` by default; not negative.
        seq_lens: (B,), int32, on the same GPU: how many positions of each batch entry count, as those of
            `flopwatch.kernels.flash_attention`; Sk is Sq then, and the configuration what `with_lengths` makes of it.
        out: where the result goes, as `q`; a new tensor by default.

    Raises:
        ValueError: an input is not as above.
        TypeError: `seq_lens` is no tensor of int32.
    """
    if out is None:
        out = torch.empty_like(q)
    if seq_lens is not None:
        check_seq_lens(seq_lens, q, k)
        seq_lens = seq_lens.contiguous()
    prepare(q, k, v, out, config, causal=causal, sm_scale=sm_scale, seq_lens=seq_lens).launch()
    return out


def prepare(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    config: HopperAttentionConfig,
    *,
    causal: bool,
    sm_scale: float | None = None,
    seq_lens: torch.Tensor | None = None,
) -> Prepared:
    """Prepare the launch of `hopper_attention` that writes `out`; lengths are contiguous, and were checked.

    Raises:
        ValueError: an input is not as `hopper_attention` wants it.
    """
    _check(q, k, v, out, sm_scale)
    if seq_lens is not None:
        config = with_lengths(config)
    batch, heads, queries, head_dim = q.shape
    keys = k.shape[2]
    row_tiles = triton.cdiv(queries, ROWS * config.groups)
    tiles = row_tiles * batch * heads
    programs = torch.cuda.get_device_properties(q.device).multi_processor_count * config.resident
    scale = 1 / math.sqrt(head_dim) if sm_scale is None else max(float(sm_scale), _LEAST_SCALE)
    heads_per_key = heads // k.shape[1]
    group = heads_together(batch * heads, heads_per_key, 2 * keys * head_dim * q.element_size(), programs)
    aligned = is_aligned(queries, keys, config.block_n)
    if causal and config.persistent and seq_lens is None:
        group = choose_group(row_tiles, batch * heads, programs, group, ROWS * config.groups, config.block_n)
    return Prepared(
        kernel=hopper_attention_kernel,
        grid=(min(programs, tiles) if config.persistent else tiles,),
        arguments=(
            _descriptor(q, ROWS, head_dim),
            _descriptor(k, config.block_n, head_dim),
            _descriptor(v, config.block_n, head_dim),
            _descriptor(out, ROWS, head_dim // config.out_parts),
            *pointers_of(seq_lens, programs),
            queries,
            keys,
            heads,
            heads_per_key,
            row_tiles,
            batch * heads,
            group,
            scale * math.log2(math.e),
        ),
        constants={
            "STAGES": config.stages,
            "GROUPS": config.groups,
            "CAUSAL": causal,
            "WHOLE": seq_lens is None and keys % config.block_n == 0,
            "ALIGNED": aligned,
            "HALVED": causal and is_halved(queries, keys, ROWS * config.groups, config.block_n),
            "PING_PONG": config.ping_pong,
            "POLYNOMIAL": config.polynomial,
            "OWN_OUT": config.own_out,
            "Q_STAGES": config.q_stages,
            "Q_HELD": 0 if causal and not aligned else config.q_held,
            "REGISTERS": _REGISTERS[config.groups, config.resident],
            "PRODUCER_REGISTERS": _PRODUCER_REGISTERS[seq_lens is not None],
            "num_warps": 4,
            "maxnreg": _LAUNCH_REGISTERS[config.resident],
        },
        arrange=None if seq_lens is None else arrange(programs, q.device),
    )


def with_lengths(config: HopperAttentionConfig) -> HopperAttentionConfig:
    """Return what a configuration comes to where there are lengths.

    Tiles are taken by a counter, zeros are written while the next Q may land, and three warpgroups have no registers
    left for Q.

    >>> with_lengths(HOPPER_ATTENTION[256][2]).name, with_lengths(HOPPER_ATTENTION[64][11]).name
    ('128x64 s2 o2 pp', '192x128 s2')
    """
    return replace(
        config,
        persistent=True,
        own_out=True,
        out_parts=config.out_parts if config.own_out else 2,
        q_held=0 if config.groups == _FULL_GROUPS else config.q_held,
    )


def heads_together(heads: int, heads_per_key: int, bytes_per_key_head: int, programs: int) -> int:
    """Return how many heads may be taken together: the L2 cache holds their keys and values, or programs share them.

    Without either each block is read from memory for BLOCK_M rows alone, which at 128 rows and 600 TFLOP/s is all that
    an H200's memory gives, 4.7 TB/s.

    >>> heads_together(1024, 1, 2 * 512 * 64 * 2, 132), heads_together(32, 4, 2 * 16384 * 64 * 2, 132)
    (183, 32)
    """
    return min(heads, max(_L2_BYTES // bytes_per_key_head * heads_per_key, programs // _SHARING, 1))


def is_aligned(queries: int, keys: int, block_n: int) -> bool:
    """Tell whether the last block that a warpgroup's rows see is the only one that the diagonal touches.

    >>> is_aligned(1000, 1000, 128), is_aligned(1000, 1064, 128), is_aligned(1000, 1001, 128), is_aligned(64, 64, 32)
    (True, True, False, False)
    """
    return (keys - queries) % ROWS == 0 and block_n % ROWS == 0


def is_halved(queries: int, keys: int, block_m: int, block_n: int) -> bool:
    """Tell whether the diagonal crosses one block of each tile of rows, from corner to corner, in two warpgroups.

    >>> is_halved(1000, 1000, 128, 128), is_halved(1000, 1064, 128, 128), is_halved(1000, 1000, 192, 128)
    (True, False, False)
    """
    return block_m == block_n == 2 * ROWS and keys >= queries and (keys - queries) % block_n == 0


def can_attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> bool:
    """Tell whether `hopper_attention` takes these tensors, and writes that one."""
    return not _faults(q, k, v, out)


def _descriptor(tensor: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    block = [1, 1, rows, columns]
    layout = gl.NVMMASharedLayout.get_default_for(block, _DTYPES[tensor.dtype])
    return TensorDescriptor.from_tensor(tensor, block, layout)


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, sm_scale: float | None) -> None:
    found = _faults(q, k, v, out)
    if sm_scale is not None and sm_scale < 0:
        found.append(f"sm_scale={sm_scale} is negative")
    if found:
        raise ValueError(
            f"{'; '.join(found)}\n"
            "  why: blocks are loaded by TMA and multiplied by wgmma\n"
            "  do:  call flopwatch.kernels.flash_attention, which takes any strides"
        )


def _faults(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> list[str]:
    """Return why these cannot be read or written."""
    tensors = {"q": q, "k": k, "v": v, "out": out}
    found = [text for name, tensor in tensors.items() if (text := _unreadable(name, tensor, q.dtype))]
    if not found:
        batch, heads, _, head_dim = q.shape
        if head_dim not in HOPPER_ATTENTION:
            found.append(f"head_dim={head_dim} is none of {', '.join(map(str, HOPPER_ATTENTION))}")
        if out.shape != q.shape or k.shape != v.shape or (k.shape[0], k.shape[3]) != (batch, head_dim):
            found.append(
                f"the shapes {', '.join(str(tuple(tensor.shape)) for tensor in tensors.values())} do not match"
            )
        elif heads % k.shape[1]:
            found.append(f"{heads} heads cannot share {k.shape[1]} of k and v evenly")
    return found


def _unreadable(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> str:
    """Return why a tensor cannot be read by TMA as 16-bit blocks; "" if it can."""
    if tensor.ndim != 4 or not tensor.numel():  # noqa: PLR2004 - (B, H, S, D)
        return f"{name} is of shape {tuple(tensor.shape)}, not (B, H, S, D)"
    if tensor.dtype not in _DTYPES or tensor.dtype != dtype:
        return f"{name} is of {tensor.dtype}; all must be float16, or all bfloat16"
    *steps, last = tensor.stride()
    aligned = all(
        step * tensor.element_size() % _ALIGNMENT_BYTES == 0 and (step > 0 or size == 1)  # what is expanded has no map
        for step, size in zip(steps, tensor.shape, strict=False)
    )
    if last != 1 or not aligned or not (tensor.is_meta or tensor.data_ptr() % _ALIGNMENT_BYTES == 0):
        return f"{name} of strides {tensor.stride()} cannot be read by TMA"
    return ""
