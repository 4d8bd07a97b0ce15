"""Each form of the kernels beside the plain ones, by itself and at a small size: what a sanitizer looks at.

A form is a configuration and how operands lie or, of attention, the mask and the sequence lengths. There is one for
all that the code of a kernel branches on together, of each configuration that a table or a rule has for such calls,
and of lengths and layouts that neither has (`tests/evidence/test_sanitized_forms.py`). Most programs compute several
tiles, and go around their rings of buffers several times.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.nn.functional import pad

from flopwatch import Suite
from flopwatch.kernels.copy_kernel import first_columns, in_scratch
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, hopper_attention
from flopwatch.kernels.hopper_copying import hopper_copying_matmul
from flopwatch.kernels.hopper_fp8 import FP8_CONFIGS, prepare_hopper_fp8
from flopwatch.kernels.hopper_matmul import CONFIGS
from flopwatch.kernels.hopper_short import SHORT
from flopwatch.kernels.reference import attention_reference, matmul_reference
from flopwatch.kernels.routes import prepared_product
from flopwatch.kernels.scratch import ALIGNMENT, DEPTH
from flopwatch.kernels.thin_fp8 import THIN_FP8, prepare_thin_fp8
from flopwatch.kernels.thin_matmul import MOST_ROWS, THIN, ThinConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.kernels.hopper_attention import HopperAttentionConfig
    from flopwatch.kernels.routes import ProductConfig

#: Of attention: B, H, H_KV, Sq and Sk. Two tiles for most programs of 132, in whole blocks; and neither whole tiles nor
#: whole blocks, fewer keys than queries, and heads that share keys.
WHOLE, ODD = (1, 24, 24, 1536, 1536), (2, 12, 3, 1100, 1000)
#: Of batch entries whose lengths differ: with tiles past the length, and blocks that it ends in.
VARIED, LENGTHS = (3, 8, 2, 1100, 1100), (1, 700, 1100)
#: Of products: M, N, K. One to two tiles of each configuration for every program of 132; of what is left over from
#: whole waves, steps enough to be shared by all of them.
SIZES = (2304, 2048, 2048)
#: Of products whose launch copies operands, by what divides their sides; of odd columns those of K are a multiple of 8.
COPYING = MappingProxyType(
    {
        "odd": (2303, 2047, 2049),
        "even": (2302, 2046, 2050),
        "fours": (2300, 2044, 2052),
        "eights": (2304, 2056, 2056),
        "odd columns": (2304, 2047, 2048),
        "short odd": (777, 1235, 1029),
        "short even": (1998, 2006, 1030),
        "short fours": (1000, 1004, 1028),
        "short odd columns": (720, 721, 1024),
    }
)
#: Of what is copied: M, N, K, no multiples of a tile's sides: by what divides them 8 elements are loaded at once, 2, 1.
COPIED = MappingProxyType({"eights": (333, 776, 1240), "even rows": (333, 778, 1234), "odd rows": (333, 777, 1235)})
#: By name, all that products of 16-bit elements may take.
PRODUCTS: MappingProxyType[str, ProductConfig] = MappingProxyType({**CONFIGS, **SHORT, **THIN})
_BYTES = 2


def attention_form(form: str) -> tuple[HopperAttentionConfig, bool, int, tuple[int, ...]]:
    """Read a form of attention: its configuration, whether it is causal, head_dim and sizes.

    >>> config, causal, head_dim, sizes = attention_form("64 causal odd: 192x128 s2 q2 pp")
    >>> config.q_stages, causal, head_dim, sizes == ODD
    (2, True, 64, True)
    """
    kind, name = form.split(": ")
    head_dim, mask, lengths = kind.split()
    (config,) = (each for each in HOPPER_ATTENTION[int(head_dim)] if each.name == name)
    return config, mask == "causal", int(head_dim), {"whole": WHOLE, "odd": ODD, "varied": VARIED}[lengths]


class AttentionForms(Suite):
    """Attention in float16; `form` is head_dim, mask and lengths, and a configuration's name."""

    params: ClassVar[Sequence[Sequence[str]]] = (
        (
            "32 causal whole: 192x128 s3 q2 h32",
            "32 causal odd: 192x128 s3 q2 h32",
            "32 causal varied: 128x64 s4 r2",
            "32 full whole: 192x128 s3 q2",
            "32 full odd: 192x128 s3 q2 h32",
            "32 full varied: 128x64 s4 r2",
            "32 full varied: 192x128 s3",
            "64 full whole: 192x128 s2 q2 h16",
            "64 full whole: 192x128 s2 h16",
            "64 full whole: 192x128 s2 pp",
            "64 full odd: 192x128 s2 q2 pp",
            "64 full whole: 128x128 s3 q2 pp",
            "64 full varied: 192x64 s4",
            "64 full varied: 192x128 s2",
            "64 full varied: 128x128 s3 q2 h64 pp",
            "64 causal whole: 192x128 s2 pp",
            "64 causal odd: 192x128 s2 q2 pp",
            "64 causal whole: 128x128 s3 q2 pp",
            "64 causal whole: 128x128 s3 q2 h64 pp",
            "64 causal varied: 192x64 s4",
            "64 causal varied: 192x128 s2 q2 pp",
            "64 causal varied: 128x128 s3 q2 h64 pp",
            "128 full odd: 128x128 s2 q2",
            "128 full whole: 128x128 s2 q2 pp",
            "128 full whole: 128x128 s2 q2 h128 pp",
            "128 full varied: 128x64 s4 pp",
            "128 full varied: 128x128 s2 q2",
            "128 full varied: 128x128 s2 q2 pp",
            "128 causal whole: 128x128 s2 q2",
            "128 causal odd: 128x128 s2 q2 pp",
            "128 causal whole: 128x128 s2 q2 h128 pp",
            "128 causal varied: 128x64 s4 pp",
            "128 causal varied: 128x128 s2 pp",
            "256 full whole: 128x64 s2",
            "256 full odd: 128x64 s2 o2",
            "256 full whole: 128x64 s2 o2 pp",
            "256 full varied: 128x64 s2 o2",
            "256 full varied: 128x64 s2 o2 pp",
            "256 causal whole: 128x64 s2",
            "256 causal odd: 128x64 s2 o2",
            "256 causal whole: 128x64 s2 o2 pp",
            "256 causal varied: 128x64 s2 o2",
            "256 causal varied: 128x64 s2 o2 pp",
        ),
    )
    param_names = ("form",)
    max_diff_eps = 2.0

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Draw Q, K and V."""
        (form,) = values
        config, causal, head_dim, (batch, heads, kv_heads, queries, keys) = attention_form(form)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        shapes = ((batch, heads, queries, head_dim), *2 * [(batch, kv_heads, keys, head_dim)])
        drawn = (torch.randn(shape, device="cuda", generator=generator).half() for shape in shapes)
        varies = (batch, heads, kv_heads, queries, keys) == VARIED
        seq_lens = torch.tensor(LENGTHS, dtype=torch.int32, device="cuda") if varies else None
        return (*drawn, config, causal, seq_lens)

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - what `inputs` makes
        """Launch it."""
        q, k, v, config, causal, seq_lens = inputs
        return hopper_attention(q, k, v, config, causal=causal, seq_lens=seq_lens)

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - what `inputs` makes
        """Compute in float64."""
        q, k, v, _config, causal, seq_lens = inputs
        return attention_reference(q, k, v, causal=causal, seq_lens=seq_lens)

    def flops(self, *values: str) -> float:
        """Count both products, with what a mask or a length leaves out."""
        _config, _causal, head_dim, (batch, heads, _kv_heads, queries, keys) = attention_form(values[0])
        return 4.0 * batch * heads * queries * keys * head_dim

    def bytes_moved(self, *values: str) -> float:
        """Count Q, K, V and O once each."""
        _config, _causal, head_dim, (batch, heads, kv_heads, queries, keys) = attention_form(values[0])
        return 2.0 * _BYTES * head_dim * batch * (heads * queries + kv_heads * keys)


class ProductForms(Suite):
    """Products of float16; `form` is a configuration's name, and whether B lies by columns."""

    params: ClassVar[Sequence[Sequence[str]]] = (
        (
            "128x256x64 s4 w2 c4/2 g8 whole",
            "128x256x64 s4 w2 c4/2 g8 whole pdl",
            "128x256x64 s4 w2 c4/2 g8 rest",
            "128x128x64 s6 w2 c2/2 g8 whole",
            "128x128x64 s6 w2 c2/2 g8 whole pdl",
            "128x128x64 s6 w2 c2/2 g8 wave",
            "128x128x64 s6 w2 c2/2 g8 wave pdl",
            "128x64x64 s8 w2 c1/1 g8 whole",
            "128x64x64 s8 w2 c1/1 g8 wave",
            "64x128x64 s8 w1 c2/2 g8 whole",
            "192x128x64 s5 w3 c2/1 g8 whole",
            "192x128x64 s5 w3 c2/1 g8 whole pdl",
            "192x128x64 s5 w3 c2/1 g8 wave",
            "256x128x64 s4 w2 c2/1 g8 whole",
            "256x128x64 s4 w2 c2/1 g8 rest",
            "128x256x64 s4 w2 c4/2 g8 whole, by columns",
            "128x256x64 s4 w2 c4/2 g8 whole pdl, by columns",
            "128x256x64 s4 w2 c4/2 g8 wave, by columns",
            "128x128x64 s6 w2 c2/2 g8 whole, by columns",
            "128x128x64 s6 w2 c2/2 g8 wave, by columns",
            "128x64x64 s8 w2 c1/1 g8 whole, by columns",
            "64x128x64 s8 w1 c2/2 g8 whole, by columns",
            "192x128x64 s5 w3 c2/1 g8 whole, by columns",
            "192x128x64 s5 w3 c2/1 g8 whole pdl, by columns",
            "192x128x64 s5 w3 c2/1 g8 wave, by columns",
            "256x128x64 s4 w2 c2/1 g8 whole, by columns",
            "256x128x64 s4 w2 c2/1 g8 wave, by columns",
            "short 128x128x64 s3 w8 x2 tma pdl",
            "short 128x64x64 s5 w4 x1 r8 tma pdl",
            "short 64x32x128 s8 w4 x1 tma pdl",
            "short 64x128x64 s8 w4 x1 tma",
            "short 64x128x128 s4 w4 x1 tma",
            "short 128x192x64 s5 w8 x1 tma",
            "short 128x192x64 s5 w8 x1 tma pdl",
            "short 128x64x64 s6 w4 x1 turned tma pdl",
            "short 144x128x64 s4 w4 x1 turned tma pdl",
            "short 96x64x64 s5 w4 x2 turned tma pdl",
            "short 128x128x64 s3 w8 x2 tma pdl, by columns",
            "short 128x64x64 s5 w4 x1 r8 tma pdl, by columns",
            "short 128x192x64 s5 w8 x1 tma, by columns",
            "short 144x128x64 s4 w4 x1 turned tma pdl, by columns",
            "short 64x32x128 s8 w4 x1 tma pdl, by columns",
            "short 64x128x64 s8 w4 x1 tma, by columns",
            "short 128x192x64 s5 w8 x1 tma pdl, by columns",
            "short 128x128x64 s5 w4 x1 turned tma pdl, by columns",
            "thin 64x128/2 w4 s5 pdl",
            "thin 64x128/2 w4 s5 pdl, by columns",
            "thin 32x128/1 w4 s9 upright pdl",
        ),
    )
    param_names = ("form",)
    max_diff_eps = 2.0
    row_bytes: ClassVar = _BYTES

    @staticmethod
    def sizes(form: str) -> tuple[int, int, int]:
        """Return M, N and K."""
        m, n, k = SIZES
        return (MOST_ROWS if form.startswith("thin") else m), n, k

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Draw A and B."""
        (form,) = values
        m, n, k = self.sizes(form)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        name, _, by_columns = form.partition(", ")
        of_b = (n, k) if by_columns else (k, n)
        a, b = (torch.randn(shape, device="cuda", generator=generator).half() for shape in ((m, k), of_b))
        return a, b.T if by_columns else b, PRODUCTS[name]

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - what `inputs` makes
        """Launch it."""
        a, b, config = inputs
        c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
        prepared_product(a, b, c, config).launch()
        return c

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - what `inputs` makes
        """Multiply in float64."""
        return matmul_reference(*inputs[:2])

    def flops(self, *values: str) -> float:
        """Count a multiplication and an addition for each of M * N * K."""
        m, n, k = self.sizes(values[0])
        return 2.0 * m * n * k

    def bytes_moved(self, *values: str) -> float:
        """Count A, B and C once each."""
        m, n, k = self.sizes(values[0])
        return float((m * k + k * n) * self.row_bytes + m * n * _BYTES)


class CopyingForms(ProductForms):
    """Products whose launch copies operands; `form` is their sizes, what lies by columns, and a configuration's name.

    Of eights B is copied though it can be read, and of odd columns nothing is: tensor maps describe all but C.
    """

    params = (
        (
            "odd: 256x128x64 s4 w2 c2/1 g8 whole",
            "odd, B by columns: 128x256x64 s4 w2 c4/2 g8 wave",
            "odd, A by columns: 128x128x64 s6 w2 c2/2 g8 wave",
            "even: 192x128x64 s5 w3 c2/1 g8 whole",
            "fours: 64x256x64 s5 w1 c4/2 g8 whole",
            "eights: 128x256x64 s4 w2 c4/2 g8 wave",
            "eights, B by columns: 128x256x64 s4 w2 c4/2 g8 whole",
            "odd columns, B by columns: 64x128x64 s4 w1 c2/1 g8 whole x2",
            "short odd: short 160x64x64 s5 w4 x1 turned tma",
            "short odd, B by columns: short 128x192x64 s5 w8 x1 tma",
            "short odd, A by columns: short 144x128x64 s4 w4 x1 turned tma",
            "short even: short 128x128x64 s3 w4 x2 tma",
            "short fours: short 64x128x128 s4 w4 x1 tma",
            "short odd columns, B by columns: short 96x64x64 s9 w4 x1 turned tma",
        ),
    )

    @staticmethod
    def sizes(form: str) -> tuple[int, int, int]:
        """Return M, N and K."""
        return COPYING[form.partition(":")[0].split(", ")[0]]

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Draw A and B."""
        (form,) = values
        kind, name = form.split(": ")
        m, n, k = self.sizes(form)
        generator = torch.Generator(device="cuda").manual_seed(seed)

        def drawn(rows: int, columns: int, *, by_columns: bool) -> torch.Tensor:
            shape = (columns, rows) if by_columns else (rows, columns)
            matrix = torch.randn(shape, device="cuda", generator=generator).half()
            return matrix.T if by_columns else matrix

        a, b = drawn(m, k, by_columns="A by columns" in kind), drawn(k, n, by_columns="B by columns" in kind)
        return a, b, PRODUCTS[name], kind.startswith("eights")

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - what `inputs` makes
        """Launch it."""
        a, b, config, copies_b = inputs
        return hopper_copying_matmul(a, b, config, copies_b=copies_b)


class Fp8Forms(ProductForms):
    """Products of float8 with scales; `form` is whose sums they are, whose scales, and a configuration's name."""

    params = (
        (
            "fast tensor: 128x128x128 s6 w2 c1/1 g8 whole",
            "fast row: 128x128x128 s6 w2 c2/2 g8 whole",
            "fast tensor: 128x128x128 s6 w2 c2/2 g8 whole pdl",
            "fast row: 128x128x128 s6 w2 c2/2 g8 wave",
            "fast row: 192x128x128 s4 w3 c2/2 g8 whole",
            "fast tensor: 192x128x128 s5 w3 c2/1 g8 whole",
            "fast tensor: 192x128x128 s5 w3 c2/1 g8 whole pdl",
            "fast row: 192x128x128 s5 w3 c2/1 g8 wave",
            "fast tensor: 256x128x128 s4 w2 c2/1 g8 whole",
            "fast row: 256x128x128 s4 w2 c2/1 g8 whole pdl",
            "fast row: 256x128x128 s4 w2 c2/1 g8 rest",
            "fast tensor: 256x128x128 s4 w2 c2/1 g8 wave",
            "fast row: 128x256x128 s4 w2 c4/2 g8 whole",
            "fast tensor: 128x256x128 s4 w2 c4/2 g8 whole pdl",
            "fast row: 128x256x128 s4 w2 c4/2 g8 wave",
            "fast tensor: 64x128x128 s8 w1 c2/2 g8 whole",
            "fast row: 64x128x128 s8 w1 c2/2 g8 whole pdl",
            "fast tensor: 64x128x128 s8 w1 c2/2 g8 wave",
            "fast tensor: 128x64x128 s8 w2 c1/1 g8 whole pdl",
            "fast row: 128x64x128 s8 w2 c1/1 g8 wave",
            "fast row: 64x64x128 s6 w1 c1/1 g8 whole x2",
            "fast tensor: 64x64x128 s6 w1 c1/1 g8 whole x2 pdl",
            "float32 tensor: 192x128x128 s5 w3 c2/1 g16 wave",
            "float32 row: 192x128x128 s5 w3 c2/1 g8 whole",
            "float32 tensor: 192x128x128 s5 w3 c2/1 g8 whole pdl",
            "float32 tensor: 192x128x128 s5 w3 c2/1 g8 rest",
            "float32 row: 128x128x128 s6 w2 c1/1 g8 whole",
            "float32 row: 128x128x128 s6 w2 c2/2 g8 whole",
            "float32 tensor: 128x128x128 s6 w2 c2/2 g8 whole pdl",
            "float32 row: 128x128x128 s6 w2 c2/2 g8 wave",
            "float32 tensor: 64x128x128 s8 w1 c2/2 g8 whole",
            "float32 row: 64x128x128 s8 w1 c2/2 g8 whole pdl",
            "float32 tensor: 64x128x128 s8 w1 c2/2 g8 wave",
            "float32 row: 128x64x128 s8 w2 c1/1 g8 whole pdl",
            "float32 tensor: 128x64x128 s8 w2 c1/1 g8 wave",
            "float32 row: 64x64x128 s6 w1 c1/1 g8 whole x2",
            "float32 tensor: 64x64x128 s6 w1 c1/1 g8 whole x2 pdl",
            "float32 tensor: 192x128x128 s4 w3 c2/2 g8 whole",
            "float32 row: 192x128x128 s4 w3 c2/2 g8 wave",
            "fast row: thin 64x256/1 w4 s7 pdl",
            "fast tensor: thin 64x128/1 w4 s6",
            "fast tensor: thin 64x256/1 w8 s4 pdl",
            "fast tensor: thin 32x256/1 w4 s9 upright pdl",
            "float32 tensor: thin 64x128/1 w4 s6 pdl",
            "float32 tensor: thin 64x128/2 w4 s12 pdl",
            "float32 tensor: thin 32x128/1 w4 s8 upright pdl",
        ),
    )
    row_bytes = 1

    @staticmethod
    def sizes(form: str) -> tuple[int, int, int]:
        """Return M, N and K."""
        return ProductForms.sizes(form.split(": ")[1])

    def inputs(self, *values: str, seed: int) -> tuple[Any, ...]:
        """Draw A, B by columns, and scales between 0.5 and 1.5."""
        (form,) = values
        kind, name = form.split(": ")
        sums, scales = kind.split()
        m, n, k = self.sizes(form)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        a, b = (torch.randn(rows, k, device="cuda", generator=generator).to(torch.float8_e4m3fn) for rows in (m, n))
        of_a, of_b = ((m, 1), (1, n)) if scales == "row" else ((), ())
        scale_a, scale_b = (0.5 + torch.rand(shape, device="cuda", generator=generator) for shape in (of_a, of_b))
        promotes = sums == "float32"
        return a, b.T, scale_a, scale_b, {**FP8_CONFIGS[promotes], **THIN_FP8[promotes]}[name], promotes

    def run(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - what `inputs` makes
        """Launch it."""
        a, b, scale_a, scale_b, config, promotes = inputs
        c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.bfloat16)
        prepare: Any = prepare_thin_fp8 if isinstance(config, ThinConfig) else prepare_hopper_fp8
        prepare(a, b, c, scale_a, scale_b, config, promotes=promotes).launch()
        return c

    def reference(self, *inputs: Any) -> torch.Tensor:  # noqa: ANN401 - what `inputs` makes
        """Multiply in float64."""
        a, b, scale_a, scale_b, *_ = inputs
        product: torch.Tensor = matmul_reference(a, b) * scale_a * scale_b
        return product


class CopyForms(Suite):
    """Copies of float16; `form` is what is copied, of what sizes, and whether B lies by columns."""

    params: ClassVar[Sequence[Sequence[str]]] = (
        (
            "both, odd rows",
            "both, even rows",
            "both, odd rows, by columns",
            "both, eights",
            "first columns, even rows",
            "first columns, odd rows",
        ),
    )
    param_names = ("form",)
    max_diff_eps = 0.0

    @staticmethod
    def sizes(form: str) -> tuple[int, int, int]:
        """Return M, N and K."""
        return COPIED[form.split(", ")[1]]

    def inputs(self, *values: str, seed: int) -> tuple[torch.Tensor, torch.Tensor, str]:
        """Draw A and B."""
        (form,) = values
        m, n, k = self.sizes(form)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        of_b = (n, k) if form.endswith("by columns") else (k, n)
        a, b = (torch.randn(shape, device="cuda", generator=generator).half() for shape in ((m, k), of_b))
        return a, b.T if form.endswith("by columns") else b, form

    def run(self, a: torch.Tensor, b: torch.Tensor, form: str) -> torch.Tensor:
        """Launch it; copies of both stand one after the other."""
        if form.startswith("first columns"):
            return first_columns(in_scratch(a, b)[0], a.shape[1])[0]
        return torch.cat([each.flatten() for each in in_scratch(a, b)])

    def reference(self, a: torch.Tensor, b: torch.Tensor, form: str) -> torch.Tensor:
        """Copy in float64."""
        if form.startswith("first columns"):
            return a.double()
        depth, width = (-size % unit for size, unit in ((a.shape[1], DEPTH), (b.shape[1], ALIGNMENT)))
        padded = pad(a.double(), (0, depth)), pad(b.double(), (0, width, 0, depth))
        return torch.cat([each.flatten() for each in padded])

    def flops(self, *values: str) -> float:
        """Count one an element of what is copied."""
        m, n, k = self.sizes(values[0])
        return float(m * k + k * n)

    def bytes_moved(self, *values: str) -> float:
        """Count each element twice: read and written."""
        return 2.0 * _BYTES * self.flops(*values)
