"""Launch configurations as data: what each kernel is compiled with on each architecture.

Origin of the numbers. Hopper: matmul blocks that won on one H200 on 2026-11-20 (torch 2.11.0, triton 3.6.0, float16,
candidates timed in turn with a flushed L2 cache): 128x256x64 for square products of 2048 and more, 128x128x64 where
larger tiles leave a ragged last wave (3072 cubed, 8192x8192x1024). The other blocks, and those of attention, are what
tuners time on a GPU beside these; warps and stages are such that nothing spills on sm_90 (triton 3.6.0, 3.7.1 and
3.9.0). Run the Matmul and Attention suites with ``TRITON_PRINT_AUTOTUNING=1 FLOPWATCH_AUTOTUNE=all`` to
derive them again. All other architectures are untuned: the Triton tutorials' defaults, cut to what fits their shared
memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.utils.gpu import GPUArch

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Of each block's shared memory the compiler needs a little for itself (barriers, the epilogue's conversions).
_SHARED_RESERVE_BYTES = 2048

#: Untuned: what the Triton tutorial's list for matmul goes up to for tiles of this size.
_MAX_STAGES = 4

#: Up to this many elements an accumulator tile stays within 128 registers a thread of four warps.
_FOUR_WARP_TILE = 128 * 128


@dataclass(frozen=True, kw_only=True, slots=True)
class MatmulConfig:
    """How the matmul kernel is compiled.

    Attributes:
        block_m: rows of C per program.
        block_n: columns of C per program.
        block_k: step along K.
        group_m: rows of tiles that are numbered together, to share panels in L2.
        num_warps: warps per program.
        num_stages: steps of loads in flight.
        use_tma: whether the operands are loaded by the tensor memory accelerator.
        use_fp8: whether the product is computed in float8.
    """

    block_m: int
    block_n: int
    block_k: int
    group_m: int = 8
    num_warps: int
    num_stages: int
    use_tma: bool = False
    use_fp8: bool = False

    def constants(self) -> dict[str, int]:
        """Return the kernel's compile-time constants."""
        return {
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "BLOCK_K": self.block_k,
            "GROUP_M": self.group_m,
        }

    def as_dict(self) -> dict[str, int | bool]:
        """Return the configuration under the names that kernels and launches use.

        >>> MatmulConfig(block_m=128, block_n=64, block_k=32, num_warps=4, num_stages=3).as_dict()["BLOCK_K"]
        32
        """
        return {
            **self.constants(),
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "use_tma": self.use_tma,
            "use_fp8": self.use_fp8,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionConfig:
    """How the attention kernel is compiled for one head dimension.

    Attributes:
        head_dim: the head dimension: the depth of the product of queries and keys.
        block_m: queries per program.
        block_n: keys per step.
        num_warps: warps per program.
        num_stages: steps of loads in flight.
        use_tma: whether the operands are loaded by the tensor memory accelerator.
        use_fp8: whether the products are computed in float8.
    """

    head_dim: int
    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    use_tma: bool = False
    use_fp8: bool = False

    def constants(self) -> dict[str, int]:
        """Return the kernel's compile-time constants that are chosen, not given by the inputs."""
        return {"BLOCK_M": self.block_m, "BLOCK_N": self.block_n}

    def as_dict(self) -> dict[str, int | bool]:
        """Return the configuration under the names that all kernels share.

        BLOCK_K is the head dimension, which is never split; GROUP_M is 1, since programs of one head follow one
        another anyway.

        >>> AttentionConfig(head_dim=64, block_m=128, block_n=64, num_warps=4, num_stages=3).as_dict()["BLOCK_K"]
        64
        """
        return {
            **self.constants(),
            "BLOCK_K": self.head_dim,
            "GROUP_M": 1,
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "use_tma": self.use_tma,
            "use_fp8": self.use_fp8,
        }


def _matmul(block_m: int, block_n: int, block_k: int, num_warps: int, num_stages: int) -> MatmulConfig:
    return MatmulConfig(block_m=block_m, block_n=block_n, block_k=block_k, num_warps=num_warps, num_stages=num_stages)


def _attention(head_dim: int, block_m: int, block_n: int, num_warps: int, num_stages: int) -> AttentionConfig:
    return AttentionConfig(
        head_dim=head_dim, block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages
    )


#: What `triton_matmul` chooses from, the best for large products on Hopper first; every architecture from Ampere on
#: fits some of them (the last four need at most 96 KiB of shared memory).
MATMUL_AUTOTUNE = (
    _matmul(128, 256, 64, 8, 3),
    _matmul(128, 128, 64, 4, 4),
    _matmul(128, 128, 64, 8, 3),
    _matmul(64, 128, 64, 4, 4),
    _matmul(64, 64, 64, 4, 4),
    _matmul(16, 64, 128, 4, 4),
)

#: What `flash_attention` chooses from for each head dimension, the best for long sequences on Hopper first; the last
#: one fits 64 KiB of shared memory. 96, 192 and 256 are computed in two parts. 96 in tiles of 128x64 then takes 128
#: registers and 96 KiB, and 24 wgmma of 64 columns for both loops' steps, where padded to 128 it would be 184, 128 KiB
#: and 32; 192, padded to 256, would spill. 256 whole takes 252 registers in tiles of 128x32, and spills 30912 bytes on
#: sm_80; in two parts 232, and 212 bytes. Of these head dimensions none spills on sm_90, and the last one neither on
#: sm_80, sm_100, sm_120 and gfx942 (triton 3.7.1, ``python -m flopwatch static -k WideAttention``, 2026-11-22).
ATTENTION_AUTOTUNE: Mapping[int, tuple[AttentionConfig, ...]] = {
    16: (_attention(16, 128, 128, 8, 3), _attention(16, 64, 64, 4, 3)),
    32: (
        _attention(32, 128, 128, 8, 3),
        _attention(32, 128, 64, 4, 3),
        _attention(32, 64, 64, 4, 3),
    ),
    64: (
        _attention(64, 128, 128, 8, 3),
        _attention(64, 128, 64, 4, 3),
        _attention(64, 64, 128, 4, 3),
        _attention(64, 64, 64, 4, 2),
    ),
    96: (
        _attention(96, 128, 64, 8, 3),
        _attention(96, 64, 64, 4, 2),
    ),
    128: (
        _attention(128, 128, 64, 8, 3),
        _attention(128, 64, 64, 4, 3),
        _attention(128, 64, 32, 4, 2),
    ),
    192: (
        _attention(192, 128, 64, 8, 2),
        _attention(192, 128, 32, 8, 2),
        _attention(192, 32, 32, 4, 2),
    ),
    256: (
        _attention(256, 128, 32, 8, 2),
        _attention(256, 128, 16, 8, 2),
        _attention(256, 32, 32, 4, 2),
    ),
}

#: The head dimensions that the attention kernel is configured for.
HEAD_DIMS = tuple(ATTENTION_AUTOTUNE)

_UNTUNED_MATMUL = _matmul(128, 128, 32, 4, 4)
_MATMUL_BY_ARCH: Mapping[GPUArch, MatmulConfig] = {
    GPUArch.VOLTA: _matmul(64, 64, 32, 4, 2),
    GPUArch.TURING: _matmul(64, 64, 32, 4, 2),
    GPUArch.AMPERE: _UNTUNED_MATMUL,
    GPUArch.ADA: _UNTUNED_MATMUL,
    GPUArch.HOPPER: MATMUL_AUTOTUNE[0],
    GPUArch.BLACKWELL: _UNTUNED_MATMUL,
    GPUArch.UNKNOWN: _UNTUNED_MATMUL,
}


def matmul_config_for(arch: GPUArch) -> MatmulConfig:
    """Return the matmul configuration of an architecture.

    `GPUArch.UNKNOWN`, which stands for "no GPU" too, gets the untuned configuration that fits any GPU from Ampere on.

    >>> matmul_config_for(GPUArch.HOPPER).block_n
    256
    """
    return _MATMUL_BY_ARCH[arch]


def attention_config_for(arch: GPUArch, head_dim: int = 64) -> AttentionConfig:
    """Return the attention configuration of an architecture for a head dimension.

    Hopper gets the first of the list that is autotuned; every other architecture, and `GPUArch.UNKNOWN`, the last,
    which fits all of them.

    Raises:
        ValueError: the kernel is not configured for that head dimension.

    >>> attention_config_for(GPUArch.HOPPER, 64).block_m
    128
    """
    if head_dim not in ATTENTION_AUTOTUNE:
        raise ValueError(
            f"no attention configuration for head_dim={head_dim}\n"
            f"  why: the kernel is configured for {', '.join(map(str, HEAD_DIMS))}\n"
            "  do:  pass one of these"
        )
    configs = ATTENTION_AUTOTUNE[head_dim]
    return configs[0] if arch is GPUArch.HOPPER else configs[-1]


def fitting_matmul_config(
    config: MatmulConfig, blocks: Mapping[str, int], *, shared_bytes: int, element_bytes: int
) -> MatmulConfig:
    """Return `config` with some block sizes replaced, its warps and stages adapted to them.

    Args:
        config: where the block sizes that `blocks` does not name come from.
        blocks: field name to block size.
        shared_bytes: shared memory of one multiprocessor.
        element_bytes: of the operands.

    >>> tall = fitting_matmul_config(
    ...     matmul_config_for(GPUArch.HOPPER), {"block_m": 256}, shared_bytes=233472, element_bytes=2
    ... )
    >>> tall.block_m, tall.block_n, tall.num_warps, tall.num_stages
    (256, 256, 8, 3)
    """
    config = replace(config, **blocks)  # type: ignore[arg-type] # the names are those of the block fields
    stage_bytes = (config.block_m + config.block_n) * config.block_k * element_bytes
    stages = (shared_bytes - _SHARED_RESERVE_BYTES) // stage_bytes
    return replace(
        config,
        num_warps=8 if config.block_m * config.block_n > _FOUR_WARP_TILE else 4,
        num_stages=max(1, min(_MAX_STAGES, stages)),
    )
