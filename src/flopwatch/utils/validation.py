"""Is a kernel right? Compare its result with the float64 product or attention of the same inputs.

An element is right when it is what correct rounding makes of some value within ``atol + rtol * |reference|`` of the
float64 reference. The tolerance is thus for the computing alone; storing the result in its dtype is allowed on top,
exactly and no more.

The two usual ways would not do for every dtype. Of a bfloat16 product of 1024x1024x1024, summed in float32 and rounded
once, 613 244 of 1 048 576 elements are outside the default tolerance of the unrounded reference (rounding alone is up
to 2^-9 = 2.0e-3), and 54 outside that of the rounded one (a sum that ends on the other side of a rounding boundary is
a whole unit in the last place off, up to 2^-7 = 7.8e-3). This way there are none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table

from flopwatch.poison import PoisonedAllocations
from flopwatch.utils.gpu import require_cuda

if TYPE_CHECKING:
    from collections.abc import Callable

_SEED = 0

#: What a kernel may return for inputs of a dtype: that dtype, float32 (its accumulator), or float16 where the bundled
#: kernels compute in it.
_MATMUL_RESULTS = {
    torch.float16: {torch.float16, torch.float32},
    torch.bfloat16: {torch.bfloat16, torch.float32},
    torch.float32: {torch.float32, torch.float16},
}
#: Half a unit in the last place, relative, of the dtype in which a good kernel multiplies its softmax weights with V:
#: that of the inputs, and float16 where float32 is lowered.
_WEIGHT_ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-9, torch.float32: 2.0**-11}

_ATTENTION_RESULTS = {
    torch.float16: {torch.float16, torch.float32},
    torch.bfloat16: {torch.bfloat16, torch.float32, torch.float16},
    torch.float32: {torch.float32, torch.float16},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How a result compares with its reference.

    Attributes:
        problem: why the result cannot be compared at all; empty if it can.
        max_diff: the largest absolute difference from the float64 reference; infinity with a problem.
        wrong: elements outside the tolerance.
        total: all elements.
    """

    problem: str = ""
    max_diff: float = math.inf
    wrong: int = 0
    total: int = 0

    @property
    def is_valid(self) -> bool:
        """Whether the result can be compared and every element is right."""
        return not self.problem and not self.wrong


def validate_matmul(  # noqa: PLR0917 - the published signature
    triton_fn: Callable[..., torch.Tensor],
    m: int,
    n: int,
    k: int,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    dtype: torch.dtype = torch.float16,
    device: str = "cuda",
    verbose: bool = False,  # noqa: FBT001, FBT002 - the published signature
) -> tuple[bool, float]:
    """Check C = A @ B against the float64 product of the same inputs.

    The inputs are normal with mean 0 and variance 1, the same on every machine, and rounded to float16 as well as to
    `dtype`: a kernel that lowers float32 to float16, as the bundled ones do, loses nothing by that here. So C is about
    sqrt(k); float32 accumulation errs by 1e-4 at most at k = 1024 (measured), a tenth of the default `atol`, while four
    units in the last place of float16 are more than the defaults allow wherever |C| is 2 or more, two units of
    bfloat16 wherever it is 1/2 or more.

    Args:
        triton_fn: called as ``triton_fn(a, b)`` with `a` (m, k) and `b` (k, n), row-major; what it allocates with
            `torch.empty` is filled with NaN.
        m: rows of the result.
        n: columns of the result.
        k: length of the sums.
        rtol: tolerance relative to the reference, before rounding to the dtype of the result.
        atol: absolute tolerance, before rounding to the dtype of the result.
        dtype: of the inputs: float16, bfloat16 or float32.
        device: where to run it.
        verbose: print what was found.

    Returns:
        Whether every element is right (see the module), and the largest absolute difference from the float64
        reference, the rounding of the result to its dtype included. A result of another shape or dtype (float32 is
        allowed, and float16 for float32), or not finite, is ``(False, inf)``.

    Raises:
        RuntimeError: `device` is a CUDA device and CUDA is not available.
        TypeError: `dtype` is none of the three.
        Exception: whatever `triton_fn` raises.
    """
    allowed = _checked(_MATMUL_RESULTS, dtype, device)
    a, b = _normal((m, k), (k, n), dtype=dtype, device=device)
    from flopwatch.kernels.reference import matmul_reference  # noqa: PLC0415 - the kernels import flopwatch.utils

    reference = matmul_reference(a, b)
    with PoisonedAllocations():
        result = triton_fn(a, b)
    agreement = compare(result, reference, allowed, rtol=rtol, atol=atol)
    if verbose:
        _print(f"matmul {m}x{n}x{k}", dtype, agreement, f"{atol:g} + {rtol:g} * |reference|")
    return agreement.is_valid, agreement.max_diff


def validate_attention(  # noqa: PLR0917 - the published signature
    flash_fn: Callable[..., torch.Tensor],
    batch: int,
    heads: int,
    seq_len: int,
    head_dim: int,
    causal: bool = False,  # noqa: FBT001, FBT002 - the published signature
    rtol: float = 1e-3,
    atol: float = 1e-3,
    dtype: torch.dtype = torch.float16,
    device: str = "cuda",
    verbose: bool = False,  # noqa: FBT001, FBT002 - the published signature
) -> tuple[bool, float]:
    """Check softmax(Q K^T / sqrt(head_dim)) V against the same in float64.

    The inputs are normal with mean 0 and variance 1, the same on every machine, and rounded to float16 as well as to
    `dtype`: a kernel that lowers its inputs to float16, as the bundled one does, loses nothing by that here. So the
    result is about sqrt(e / seq_len), 0.07 at 512, and about 1 in the first rows of a causal one.

    Kernels for tensor cores round the softmax weights P to the dtype of V, which is no fault of theirs. It moves an
    element by at most u * (P @ |V|), where u is 2^-11 for float16 (and for float32, lowered to it) and 2^-9 for
    bfloat16; that much is allowed beyond `atol` and `rtol`, about 4e-4 and 1.6e-3 here. Leaving out one key of 512
    still shows.

    Args:
        flash_fn: called as ``flash_fn(q, k, v, causal=causal)`` with (batch, heads, seq_len, head_dim); what it
            allocates with `torch.empty` is filled with NaN.
        batch: sequences.
        heads: heads a sequence.
        seq_len: length of queries and keys.
        head_dim: width of a head.
        causal: mask the keys after each query.
        rtol: tolerance relative to the reference, before rounding to the dtype of the result.
        atol: absolute tolerance, before rounding to the dtype of the result.
        dtype: of the inputs: float16, bfloat16 or float32.
        device: where to run it.
        verbose: print what was found.

    Returns:
        Whether every element is right (see the module), and the largest absolute difference from the float64
        reference, the rounding of the result to its dtype included. A result of another shape or dtype (float32 and
        float16 are allowed), or not finite, is ``(False, inf)``.

    Raises:
        RuntimeError: `device` is a CUDA device and CUDA is not available.
        TypeError: `dtype` is none of the three.
        Exception: whatever `flash_fn` raises.
    """
    allowed = _checked(_ATTENTION_RESULTS, dtype, device)
    shape = (batch, heads, seq_len, head_dim)
    q, k, v = _normal(shape, shape, shape, dtype=dtype, device=device)
    from flopwatch.kernels.reference import attention_reference  # noqa: PLC0415 - the kernels import flopwatch.utils

    reference = attention_reference(q, k, v, causal=causal)
    allowance = _WEIGHT_ROUNDOFF[dtype] * attention_reference(q, k, v.abs(), causal=causal)
    with PoisonedAllocations():
        result = flash_fn(q, k, v, causal=causal)
    agreement = compare(result, reference, allowed, rtol=rtol, atol=atol, allowance=allowance)
    if verbose:
        name = f"attention {'x'.join(map(str, shape))}{' causal' if causal else ''}"
        tolerance = f"{atol:g} + {rtol:g} * |reference| + {_WEIGHT_ROUNDOFF[dtype]:.2g} * P @ |V|"
        _print(name, dtype, agreement, tolerance)
    return agreement.is_valid, agreement.max_diff


def compare(
    result: object,
    reference: torch.Tensor,
    dtypes: set[torch.dtype],
    *,
    rtol: float,
    atol: float,
    allowance: torch.Tensor | float = 0.0,
) -> Agreement:
    """Compare a result with its float64 reference, element by element.

    Args:
        result: what the kernel returned; should be a tensor of the reference's shape.
        reference: float64.
        dtypes: what the result may be stored in.
        rtol: tolerance relative to the reference, before rounding.
        atol: absolute tolerance, before rounding.
        allowance: what each element may be off beyond these, before rounding.

    >>> reference = torch.tensor([1.0, 300.3], dtype=torch.float64)
    >>> compare(reference.half(), reference, {torch.float16}, rtol=0, atol=0).is_valid
    True
    >>> compare(reference.half() + 1, reference, {torch.float16}, rtol=0, atol=0).wrong
    2
    """
    if not isinstance(result, torch.Tensor):
        return Agreement(problem=f"the result is a {type(result).__name__}, not a tensor")
    if result.shape != reference.shape:
        return Agreement(problem=f"the result has shape {tuple(result.shape)}, not {tuple(reference.shape)}")
    if result.dtype not in dtypes:
        wanted = " or ".join(sorted(str(dtype) for dtype in dtypes))
        return Agreement(problem=f"the result has dtype {result.dtype}, not {wanted}")
    stored = result.detach().double()
    not_finite = int((~torch.isfinite(stored)).sum())
    if not_finite:
        return Agreement(problem=f"{not_finite} of {stored.numel()} elements are not finite")
    if not stored.numel():
        return Agreement(max_diff=0.0)
    # Rounding is monotonic: a value between the two ends, once rounded, is between the two ends once rounded.
    tolerance = atol + rtol * reference.abs() + allowance
    low = (reference - tolerance).to(result.dtype).double()
    high = (reference + tolerance).to(result.dtype).double()
    return Agreement(
        max_diff=float((stored - reference).abs().max()),
        wrong=int(((stored < low) | (stored > high)).sum()),
        total=stored.numel(),
    )


def _checked(results: dict[torch.dtype, set[torch.dtype]], dtype: torch.dtype, device: str) -> set[torch.dtype]:
    if dtype not in results:
        raise TypeError(
            f"dtype {dtype} is not supported\n"
            f"  why: the tolerances are derived for {', '.join(map(str, results))}\n"
            "  do:  pass one of these"
        )
    if torch.device(device).type == "cuda":
        require_cuda()
    return results[dtype]


def _normal(*shapes: tuple[int, ...], dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(_SEED)
    return [torch.randn(shape, generator=generator).half().to(dtype).to(device) for shape in shapes]


def _print(name: str, dtype: torch.dtype, agreement: Agreement, tolerance: str) -> None:
    table = Table(title=f"{name} {str(dtype).removeprefix('torch.')}", show_header=False)
    table.add_row("verdict", "valid" if agreement.is_valid else "INVALID")
    if agreement.problem:
        table.add_row("problem", agreement.problem)
    else:
        table.add_row("largest difference", f"{agreement.max_diff:.3g}")
        table.add_row("outside the tolerance", f"{agreement.wrong} of {agreement.total} elements")
    table.add_row("tolerance, rounding apart", tolerance)
    table.add_row("reference", "float64 on the same inputs")
    Console().print(table)
