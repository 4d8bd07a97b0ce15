"""The points at which the bundled kernels are measured beside their peers: 30 products, fp8 products, attention.

Each is written as a suite's parameter: `MxNxK` for a product, `BxHxSxD` for attention.
"""

from __future__ import annotations

from typing import Final

#: From one that a single wave of small tiles covers to one that takes 25 ms; 1280, 1536, 2560 and 3072 leave a wave of
#: 132 multiprocessors partly idle with the usual tiles, which is where Triton kernels lost most on 2026-11-20.
SQUARES: Final = tuple(
    f"{size}x{size}x{size}"
    for size in (256, 512, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 6144, 8192, 12288, 16384, 20480)
)
#: Decoding 1 to 64 tokens, a wide layer of few tokens, a layer's expansion, short and long inner dimensions, and many
#: tokens at once.
LANGUAGE_MODEL: Final = (
    *(f"{tokens}x4096x4096" for tokens in (1, 2, 4, 8, 16, 32, 64)),
    "128x8192x8192",
    "4096x11008x4096",
    "8192x8192x128",
    "4096x4096x16384",
    "16384x4096x4096",
)
#: Rows of 2000 bytes, which tensor descriptors take; of an odd number of elements, and of no multiple of 16 bytes,
#: which they do not.
ODD: Final = ("1000x1000x1000", "4095x4097x4099", "777x1234x5678")
#: 15 + 12 + 3 = 30 products in 16 bits.
MATMUL: Final = (*SQUARES, *LANGUAGE_MODEL, *ODD)
MATMUL_DTYPES: Final = ("float16", "bfloat16")

#: Products of float8_e4m3fn operands. torch._scaled_mm takes inner dimensions and widths that are multiples of 16 only,
#: and cuBLASLt wants B by columns.
MATMUL_FP8: Final = (
    *(f"{size}x{size}x{size}" for size in (1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384)),
    "16x4096x4096",
    "64x4096x4096",
    "128x8192x8192",
    "4096x11008x4096",
    "8192x8192x1024",
    "4096x4096x16384",
    "16384x4096x4096",
)
#: One scale an operand, or one for each row of A and each column of B.
FP8_SCALES: Final = ("tensor", "row")
#: All of K is summed by the tensor cores, which keep some 14 bits, or every few steps in float32.
FP8_SUMS: Final = ("fast", "float32")
#: Scales a row, and sums in float32, do not ask for every size again.
FP8_FEW: Final = ("2048x2048x2048", "8192x8192x8192", "16x4096x4096", "128x8192x8192", "4096x11008x4096")

#: As in the papers of FlashAttention-2 and -3: batch x positions = 16384, heads x head_dim = 2048.
ATTENTION_POSITIONS: Final = 16384
ATTENTION_WIDTH: Final = 2048
SEQUENCES: Final = (512, 1024, 2048, 4096, 8192, 16384)
HEAD_DIMS: Final = (32, 64, 128, 256)
MASKS: Final = ("full", "causal")
#: Every process compiles flex_attention anew for each shape and mask, in seconds: a short and a long sequence must do.
#: It was behind cuDNN by 15 to 34 % at head_dim 64 and 128 (4096 positions, H200, 2026-11-20).
FLEX_SEQUENCES: Final = (1024, 8192)


def sizes(shape: str) -> tuple[int, ...]:
    """Read a shape.

    >>> sizes("4096x11008x4096")
    (4096, 11008, 4096)
    """
    return tuple(map(int, shape.split("x")))


def attention_shape(sequence: int, head_dim: int) -> str:
    """Return batch x heads x positions x head_dim of a sequence length and a head_dim.

    >>> attention_shape(4096, 128)
    '4x16x4096x128'
    """
    batch, heads = ATTENTION_POSITIONS // sequence, ATTENTION_WIDTH // head_dim
    return f"{batch}x{heads}x{sequence}x{head_dim}"


#: Every shape, by head_dim and then by length; each is measured with both masks: 48 points.
ATTENTION: Final = tuple(attention_shape(sequence, head_dim) for head_dim in HEAD_DIMS for sequence in SEQUENCES)


def peers_at(suite: str, shape: str) -> tuple[str, ...]:
    """Return which peers a point is to be held against.

    >>> peers_at("PeerAttention", "2x16x8192x128")
    ('cudnn', 'flash2', 'flash4', 'flex')
    >>> peers_at("PeerAttention", "8x16x2048x128"), peers_at("PeerMatmul", "1x4096x4096")
    (('cudnn', 'flash2', 'flash4'), ('torch',))
    """
    if suite != "PeerAttention":
        return ("torch",)
    return ("cudnn", "flash2", "flash4", *(["flex"] if sizes(shape)[2] in FLEX_SEQUENCES else []))
