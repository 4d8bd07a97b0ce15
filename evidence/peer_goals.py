"""What the bundled kernels are to reach beside their peers on one H200, class by class."""

from __future__ import annotations

from dataclasses import dataclass

from evidence.peer_shapes import (
    ATTENTION,
    FP8_FEW,
    FP8_SCALES,
    HEAD_DIMS,
    LANGUAGE_MODEL,
    MASKS,
    MATMUL,
    MATMUL_DTYPES,
    MATMUL_FP8,
    ODD,
    SQUARES,
    sizes,
)

#: A suite and its parameters.
Point = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Points that are told together.

    Attributes:
        name: as the page calls them.
        points: all of them.
        peer: whom they are held against; "" is the fastest of all peers at each point.
        mean: what the geometric mean of the speeds, in units of the peer's, is to be at least; None asks for nothing.
        floor: what none of them may be below; likewise.
    """

    name: str
    points: tuple[Point, ...]
    peer: str = ""
    mean: float | None = None
    floor: float | None = None

    @property
    def goal(self) -> str:
        """The goal in words.

        >>> Group(name="", points=(), mean=1.05, floor=0.97).goal
        '1.05, no point below 0.97'
        """
        parts = [f"{self.mean:.2f}"] if self.mean is not None else []
        parts += [f"no point below {self.floor:.2f}"] if self.floor is not None else []
        return ", ".join(parts)


def _products(shapes: tuple[str, ...], dtype: str) -> tuple[Point, ...]:
    return tuple(("PeerMatmul", shape, dtype) for shape in shapes)


def attention_points(head_dim: int, mask: str) -> tuple[Point, ...]:
    """Return the points of one head_dim and mask, by length.

    >>> attention_points(128, "causal")[0]
    ('PeerAttention', '32x16x512x128', 'causal')
    """
    return tuple(("PeerAttention", shape, mask) for shape in ATTENTION if sizes(shape)[-1] == head_dim)


def _attention(head_dim: int) -> tuple[Point, ...]:
    return tuple(point for mask in MASKS for point in attention_points(head_dim, mask))


def _products_fp8(shapes: tuple[str, ...], scale: str, sums: str) -> tuple[Point, ...]:
    return tuple(("PeerMatmulFp8", shape, "float8_e4m3fn", scale, sums) for shape in shapes)


_FP8, _FP8_ROWS = _products_fp8(MATMUL_FP8, "tensor", "fast"), _products_fp8(FP8_FEW, "row", "fast")
_FP8_FLOAT32, _FP8_ROWS_FLOAT32 = (_products_fp8(FP8_FEW, scale, "float32") for scale in FP8_SCALES)
#: To FlashAttention-4's level at head_dim 32, which is 1.35 of cuDNN's (H200, 2026-11-20).
_ATTENTION_MEANS = {32: 1.0, 64: 1.0, 128: 1.0, 256: 0.95}

PRODUCTS = tuple(
    group
    for dtype in MATMUL_DTYPES
    for group in (
        Group(name=f"{dtype}, all {len(MATMUL)}", points=_products(MATMUL, dtype), peer="torch", mean=1.05, floor=0.97),
        Group(name=f"{dtype}, squares", points=_products(SQUARES, dtype), peer="torch"),
        Group(name=f"{dtype}, language models", points=_products(LANGUAGE_MODEL, dtype), peer="torch"),
        Group(name=f"{dtype}, odd", points=_products(ODD, dtype), peer="torch"),
    )
)
FP8 = (
    Group(name="fast sums, all", points=(*_FP8, *_FP8_ROWS), peer="torch", mean=1.0),
    Group(name="fast sums, a scale a tensor", points=_FP8, peer="torch", mean=1.0),
    Group(name="fast sums, a scale a row", points=_FP8_ROWS, peer="torch", mean=1.0),
    Group(name="sums in float32, all", points=(*_FP8_FLOAT32, *_FP8_ROWS_FLOAT32), peer="torch", mean=1.0),
    Group(name="sums in float32, a scale a tensor", points=_FP8_FLOAT32, peer="torch", mean=1.0),
    Group(name="sums in float32, a scale a row", points=_FP8_ROWS_FLOAT32, peer="torch", mean=1.0),
)
ATTENTION_GROUPS = (
    *(
        Group(name=f"head_dim {head_dim}, the best peer", points=_attention(head_dim), mean=_ATTENTION_MEANS[head_dim])
        for head_dim in HEAD_DIMS
    ),
    *(
        Group(name=f"head_dim {head_dim}, cuDNN", points=_attention(head_dim), peer="cudnn", mean=1.05, floor=0.95)
        for head_dim in (64, 128)
    ),
)
