"""The suite of the attention kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from flopwatch import Suite
from flopwatch.kernels import flash_attention
from flopwatch.kernels.reference import attention_reference

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPES = ("4x8x1024x64", "4x8x4096x64", "4x8x2048x32")
#: Sequences of variable length; one shape of them is enough.
LENGTHS_SHAPE = "4x8x1024x64"
#: Everything is computed in float16.
BYTES_PER_ELEMENT = 2


def _sizes(shape: str) -> tuple[int, int, int, int]:
    b, h, s, d = map(int, shape.split("x"))
    return b, h, s, d


def _lengths(shape: str) -> list[int]:
    """Return evenly spread lengths, the last of them whole.

    >>> _lengths("4x8x1024x64")
    [256, 512, 768, 1024]
    """
    b, _, s, _ = _sizes(shape)
    return [s * (entry + 1) // b for entry in range(b)]


def _torch_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, _seq_lens: torch.Tensor | None
) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")


class Attention(Suite):
    """O = softmax(Q K^T / sqrt(D) + mask) V in float16; `shape` is BxHxSxD."""

    params: ClassVar[Sequence[Sequence[str]]] = (SHAPES, ("full", "causal", "lengths"))
    param_names = ("shape", "mask")
    small: ClassVar = {"shape": "1x2x40x32"}
    providers: ClassVar = {"torch": _torch_attention}
    skip_params = (
        *((shape, "lengths", "flopwatch") for shape in SHAPES if shape != LENGTHS_SHAPE),
        *((shape, "lengths", "torch") for shape in SHAPES),
    )
    #: Rounding the result costs up to half a unit, rounding the weights as much again where few keys are seen: 0.53 at
    #: most in 96 interpreted cases of up to 200 positions (triton 3.7.1, 2026-11-20). 2 leaves room for other orders
    #: of summing.
    max_diff_eps = 2.0

    def inputs(
        self, *values: str, seed: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, str, torch.Tensor | None]:
        """Draw Q, K and V from a normal distribution; the mask, and the lengths where they vary, go along."""
        shape, mask = values
        generator = torch.Generator(device="cuda").manual_seed(seed)
        q, k, v = (torch.randn(_sizes(shape), device="cuda", generator=generator).half() for _ in range(3))
        seq_lens = torch.tensor(_lengths(shape), dtype=torch.int32, device="cuda") if mask == "lengths" else None
        return q, k, v, mask, seq_lens

    def run(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, seq_lens: torch.Tensor | None
    ) -> torch.Tensor:
        """Call the bundled kernel."""
        return flash_attention(q, k, v, causal=mask == "causal", seq_lens=seq_lens)

    def reference(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, seq_lens: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute in float64."""
        return attention_reference(q, k, v, causal=mask == "causal", seq_lens=seq_lens)

    def flops(self, *values: str) -> float:
        """Count two products of depth D for each pair of a query and a key that it sees; a causal mask halves them.

        The usual count (Dao, FlashAttention-2, 2023, section 4.1): the softmax is left out, and so is what a kernel
        computes of masked blocks.
        """
        shape, mask = values
        b, h, s, d = _sizes(shape)
        pairs = sum(length**2 for length in _lengths(shape)) if mask == "lengths" else b * s**2
        return (0.5 if mask == "causal" else 1.0) * 4 * h * pairs * d

    def bytes_moved(self, *values: str) -> float:
        """Count Q, K and V once each up to their lengths, and the whole of O."""
        shape, mask = values
        b, h, s, d = _sizes(shape)
        positions = sum(_lengths(shape)) if mask == "lengths" else b * s
        return float((3 * positions + b * s) * h * d * BYTES_PER_ELEMENT)


class EncoderAttention(Attention):
    """Attention as in an encoder, over whole batches and over padded ones."""

    params = (("16x12x128x64", "16x12x512x64", "16x8x512x16"), ("full", "lengths"))
    small: ClassVar = {"shape": "3x2x40x16"}
    providers: ClassVar = {}


class ImageAttention(Attention):
    """Attention over the patches of images, whose numbers are often odd.

    Windows of 7x7 (Swin), 14x14 and 24x24 patches with a class token (ViT), and the latents of diffusion models.
    """

    params = (("256x4x49x32", "32x12x197x64", "8x12x577x64", "2x10x4096x64", "1x24x4608x128"), ("full",))
    small: ClassVar = {"shape": "2x1x49x64"}
    providers: ClassVar = {}


class DecoderAttention(Attention):
    """Attention as in a decoder, up to long sequences."""

    params = (
        ("8x12x1024x64", "1x8x8192x64", "1x8x16384x64", "1x32x512x128", "1x32x2048x128", "1x32x4096x128"),
        ("causal",),
    )
    small: ClassVar = {"shape": "1x2x70x128"}
    providers: ClassVar = {}
