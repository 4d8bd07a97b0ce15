"""The softmax of one block of scores, in the registers of a warpgroup: part of `hopper_attention_kernel`."""

# Triton types what it compiles, and ships no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0917 - Triton passes a function's arguments by place

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _exp2_on_sfu(x):
    """Compute 2**x on the special function unit, as exactly as PTX's ``ex2.approx`` does; what would be subnormal is 0.

    ``gl.exp2`` becomes the same instruction by way of a function of libdevice, which LLVM links and inlines wherever it
    is called: 0.1 to 0.2 s of a compilation (docs/decisions/0015-first-calls.md).
    """
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def _exp2_on_fma(x):
    """Compute 2**x for x up to 0 without the special function unit, to a relative error of 7.5e-5.

    x is rounded to an integer by adding 1.5 * 2**23, which leaves it in the low bits of the mantissa, and 2**f for the
    rest, in [-0.5, 0.5], is the minimax polynomial of degree 3. float16 rounds the weights by 4.9e-4 anyway. Of -inf it
    is 2**-126, which bfloat16 can hold, and not 0: masked blocks cannot have it.
    """
    x = gl.maximum(x, -126.0)
    shifted = x + 12582912.0
    f = x - (shifted - 12582912.0)
    p = 0.05517166681 * f + 0.2426111351
    p = p * f + 0.693260987
    p = p * f + 0.9999280728
    return (p.to(gl.int32, bitcast=True) + (shifted.to(gl.int32, bitcast=True) << 23)).to(gl.float32, bitcast=True)


@gluon.jit
def rounded(p, DTYPE: gl.constexpr):
    """Round weights to float16 or bfloat16, two columns that are neighbours by one instruction.

    As Triton 3.6 and 3.7 have it, ptxas packs each pair the wrong way around where three warpgroups share the
    registers, and then swaps it: 32 of the 445 instructions of a block of 128 keys at head_dim 64.
    """
    if DTYPE == gl.float16:  # noqa: SIM300 - DTYPE is what varies
        return gl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,r,r", [p], dtype=gl.float16, is_pure=True, pack=2
        )
    else:  # noqa: RET505 - a branch that Triton does not compile
        return gl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [p], dtype=gl.bfloat16, is_pure=True, pack=2
        )


@gluon.jit
def joined(low, high):
    """Put two halves of columns beside each other: both are in the registers of the same threads."""
    high = gl.convert_layout(high, low.type.layout, assert_trivial=True)
    ROWS: gl.constexpr = low.shape[0]
    COLUMNS: gl.constexpr = low.shape[1]
    return gl.join(low, high).permute([0, 2, 1]).reshape([ROWS, 2 * COLUMNS])


@gluon.jit
def halves(x):
    """Split columns into the first and the second half."""
    ROWS: gl.constexpr = x.shape[0]
    COLUMNS: gl.constexpr = x.shape[1]
    return x.reshape([ROWS, 2, COLUMNS // 2]).permute([0, 2, 1]).split()


@gluon.jit
def _exp2(x, POLYNOMIAL: gl.constexpr):
    """Compute 2**x; an eighth of the columns by the polynomial, if so asked."""
    if POLYNOMIAL:
        half, rest = halves(x)
        quarter, rest = halves(rest)
        eighth, rest = halves(rest)
        last = joined(_exp2_on_sfu(quarter), joined(_exp2_on_sfu(eighth), _exp2_on_fma(rest)))
        return gl.convert_layout(joined(_exp2_on_sfu(half), last), x.type.layout, assert_trivial=True)
    else:  # noqa: RET505 - as above
        return _exp2_on_sfu(x)


@gluon.jit
def masked(scores, first_key, first_row, offset, keys, CAUSAL: gl.constexpr, S_L: gl.constexpr):
    """Give keys after the query the score -inf, or those at or past the end; a query that counts sees none of these."""
    columns = gl.expand_dims(first_key + gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, S_L)), 0)
    if CAUSAL:
        rows = gl.expand_dims(first_row + gl.arange(0, scores.shape[0], layout=gl.SliceLayout(1, S_L)), 1)
        allowed = columns <= rows + offset
    else:
        allowed = columns < keys
    return gl.where(allowed, scores, float("-inf"))


@gluon.jit
def sum_in_threads(p):
    """Sum up what each thread holds of a row: 4 threads share one, and a thread has 2 columns of every 8.

    They are put together once a tile: a shuffle costs its latency twice a block, which nothing hides.
    """
    ROWS: gl.constexpr = p.shape[0]
    COLUMNS: gl.constexpr = p.shape[1]
    return gl.sum(gl.sum(p.reshape([ROWS, COLUMNS // 8, 4, 2]), axis=3), axis=1)


@gluon.constexpr_function
def lazy_growth():
    """Return by how much a maximum may be outgrown before it counts anew, in exponents of 2."""
    return 8.0


@gluon.jit
def weigh(scores, row_max, scale, MASKED: gl.constexpr, POLYNOMIAL: gl.constexpr, LAZY: gl.constexpr):
    """Return the weights of a block, the new maxima, and by what all earlier weights are to be multiplied.

    If LAZY, what counts as a row's maximum stays until a score would have a weight above 2**8, which float16 rounds as
    well as one below 1: most blocks then leave earlier weights as they are (`rescaled`).

    A row without any key so far has the maximum -inf, and -inf - -inf is NaN; it is held against 0 instead. A finite
    stand-in for -inf will not do: ``s * scale - m * scale`` is one FMA, whose product is not rounded while that of
    ``m * scale`` is, so that of s = m = -1e30 remains 4e20 and not 0, whose exp2 is infinite (head_dim 64 and 256).
    """
    gl.static_assert(not (LAZY and POLYNOMIAL))
    new_max = gl.maximum(row_max, gl.max(scores, axis=1))
    if LAZY:
        new_max = gl.where((new_max - row_max) * scale > lazy_growth(), new_max, row_max)
    held = new_max
    if MASKED:
        held = gl.where(new_max == float("-inf"), 0.0, new_max)
    p = _exp2(scores * scale - gl.expand_dims(held * scale, 1), POLYNOMIAL and not MASKED)
    return p, new_max, _exp2_on_sfu((row_max - held) * scale)


@gluon.jit
def marked(rescale, LAZY: gl.constexpr):
    """Return `rescale` of 64 rows; if LAZY, with -1 for a warp's 16 rows, two a thread, where all 16 have 1.

    It is not pure: all threads of a warp have to vote together, so that it stays where it is.
    """
    if LAZY:
        return gl.inline_asm_elementwise(
            """{
            .reg .pred other;
            setp.neu.f32 other, $2, 0f3F800000;
            @!other setp.neu.f32 other, $3, 0f3F800000;
            vote.sync.any.pred other, other, 0xFFFFFFFF;
            selp.f32 $0, $2, 0fBF800000, other;
            selp.f32 $1, $3, 0fBF800000, other;
            }""",
            "=&f,=f,f,f",
            [rescale],
            dtype=gl.float32,
            is_pure=False,
            pack=2,
        )
    else:  # noqa: RET505 - as above
        return rescale


@gluon.constexpr_function
def _multiplication(elements):
    """Return PTX that multiplies elements of a thread by their factors, unless the first factor is negative."""
    products = "".join(f"mul.f32 ${i}, ${i}, ${2 * elements + i};\n" for i in range(elements))
    return (
        "{\n.reg .pred skipped;\n"
        f"setp.lt.f32 skipped, ${2 * elements}, 0f00000000;\n@skipped bra.uni done;\n{products}done:\n}}"
    )


@gluon.constexpr_function
def _operands(elements):
    """Return the operands of `_multiplication`: what is written, the same as it was, and the factors."""
    return ",".join(["=&f"] * elements + [str(i) for i in range(elements)] + ["f"] * elements)


@gluon.jit
def rescaled(accumulator, factors, LAZY: gl.constexpr):
    """Multiply rows of the output by their factors; if LAZY, a warp skips that where `marked` says so."""
    L: gl.constexpr = accumulator.type.layout
    factors = gl.expand_dims(gl.convert_layout(factors, gl.SliceLayout(1, L), assert_trivial=True), 1)
    if LAZY:
        THREADS: gl.constexpr = 128
        ELEMENTS: gl.constexpr = accumulator.shape[0] * accumulator.shape[1] // THREADS
        return gl.inline_asm_elementwise(
            _multiplication(ELEMENTS),
            _operands(ELEMENTS),
            [accumulator, factors],
            dtype=gl.float32,
            is_pure=True,
            pack=ELEMENTS,
        )
    else:  # noqa: RET505 - as above
        return accumulator * factors
