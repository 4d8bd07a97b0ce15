"""The suite of the attention kernel."""

from __future__ import annotations

from dataclasses import dataclass
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
#: Everything is computed in 16 bits.
BYTES_PER_ELEMENT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """What a shape says: batch, heads of Q and of K, positions of Q and of K, head dimension."""

    b: int
    h: int
    h_kv: int
    s: int
    s_kv: int
    d: int

    @property
    def q(self) -> tuple[int, int, int, int]:
        """The shape of Q."""
        return self.b, self.h, self.s, self.d

    @property
    def kv(self) -> tuple[int, int, int, int]:
        """The shape of K and of V."""
        return self.b, self.h_kv, self.s_kv, self.d

    def lengths(self) -> list[int]:
        """Return evenly spread lengths, the last of them whole.

        >>> Sizes(b=4, h=8, h_kv=8, s=1024, s_kv=1024, d=64).lengths()
        [256, 512, 768, 1024]
        """
        return [self.s * (entry + 1) // self.b for entry in range(self.b)]


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
    #: of summing. So it is of other lengths of keys, of shared heads and of bfloat16 that is kept, in units of its own
    #: epsilon: 0.54 at most in 220 interpreted cases (triton 3.7.1, 2026-11-22).
    max_diff_eps = 2.0

    @staticmethod
    def sizes(shape: str) -> Sizes:
        """Read a shape: heads and positions of K are those of Q."""
        b, h, s, d = map(int, shape.split("x"))
        return Sizes(b=b, h=h, h_kv=h, s=s, s_kv=s, d=d)

    def inputs(
        self, *values: str, seed: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, str, torch.Tensor | None]:
        """Draw Q, K and V from a normal distribution; the mask, and the lengths where they vary, go along."""
        shape, mask = values
        sizes = self.sizes(shape)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        q, k, v = (
            torch.randn(size, device="cuda", generator=generator).half() for size in (sizes.q, sizes.kv, sizes.kv)
        )
        seq_lens = torch.tensor(sizes.lengths(), dtype=torch.int32, device="cuda") if mask == "lengths" else None
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
        computes of masked blocks. With more keys than queries a causal mask takes away half the square of the queries.
        """
        shape, mask = values
        sizes = self.sizes(shape)
        if mask == "lengths":
            pairs = float(sum(length**2 for length in sizes.lengths()))
        else:
            pairs = sizes.b * (sizes.s * sizes.s_kv - (0.5 * sizes.s**2 if mask == "causal" else 0.0))
        return 4 * sizes.h * pairs * sizes.d

    def bytes_moved(self, *values: str) -> float:
        """Count Q, K and V once each up to their lengths, and the whole of O."""
        shape, mask = values
        sizes = self.sizes(shape)
        positions, keys = (
            sum(sizes.lengths()) if mask == "lengths" else sizes.b * whole for whole in (sizes.s, sizes.s_kv)
        )
        of_q, of_kv = (positions + sizes.b * sizes.s) * sizes.h, 2 * keys * sizes.h_kv
        return float((of_q + of_kv) * sizes.d * BYTES_PER_ELEMENT)


class EncoderAttention(Attention):
    """Attention as in an encoder, over whole batches and over padded ones."""

    params = (("16x12x128x64", "16x12x512x64", "16x8x512x16"), ("full", "lengths"))
    small: ClassVar = {"shape": "3x2x40x16"}
    providers: ClassVar = {}


class PaddedAttention(Attention):
    """Attention of long sequences whose lengths differ, and end within blocks: it has a kernel of its own on Hopper."""

    params = (("7x16x2048x64", "7x16x2048x128"), ("lengths",))
    small: ClassVar = {"shape": "3x2x40x64"}
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


class WideAttention(Attention):
    """Attention of head dimensions that are computed in two parts."""

    params = (("4x16x2048x96", "2x8x2048x192", "2x8x2048x256"), ("causal",))
    small: ClassVar = {"shape": "1x2x70x96"}
    providers: ClassVar = {}


class BFloat16Attention(Attention):
    """Attention in bfloat16, and asked to stay in it."""

    params = (("4x16x2048x128",), ("causal",))
    small: ClassVar = {"shape": "1x1x40x32"}
    providers: ClassVar = {}

    def inputs(
        self, *values: str, seed: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, str, torch.Tensor | None]:
        """Draw as the others do, and round once more."""
        q, k, v, mask, seq_lens = super().inputs(*values, seed=seed)
        return q.bfloat16(), k.bfloat16(), v.bfloat16(), mask, seq_lens

    def run(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, seq_lens: torch.Tensor | None
    ) -> torch.Tensor:
        """Call the bundled kernel."""
        return flash_attention(q, k, v, causal=mask == "causal", seq_lens=seq_lens, out_dtype=torch.bfloat16)


class GroupedAttention(Attention):
    """Attention whose heads of Q share heads of K and V, four each or all of them; `shape` is BxHxH_KVxSxD."""

    params = (("1x32x8x4096x128", "4x16x1x1024x64"), ("causal",))
    small: ClassVar = {"shape": "1x4x2x40x192"}
    providers: ClassVar = {}

    @staticmethod
    def sizes(shape: str) -> Sizes:
        """Read a shape: positions of K are those of Q."""
        b, h, h_kv, s, d = map(int, shape.split("x"))
        return Sizes(b=b, h=h, h_kv=h_kv, s=s, s_kv=s, d=d)


class CrossAttention(Attention):
    """Attention to more or fewer positions than there are queries; `shape` is BxHxSxS_KVxD.

    The second part of a long prompt, which sees the first one; and the latents of a diffusion model, which look at 77
    tokens.
    """

    params = (("1x16x1024x8192x128", "2x10x4096x77x64"), ("causal", "full"))
    small: ClassVar = {"shape": "1x1x20x50x256"}
    providers: ClassVar = {}
    skip_params = (("1x16x1024x8192x128", "full", "flopwatch"), ("2x10x4096x77x64", "causal", "flopwatch"))

    @staticmethod
    def sizes(shape: str) -> Sizes:
        """Read a shape: heads of K are those of Q."""
        b, h, s, s_kv, d = map(int, shape.split("x"))
        return Sizes(b=b, h=h, h_kv=h, s=s, s_kv=s_kv, d=d)
