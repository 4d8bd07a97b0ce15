"""Compare a result with its float64 reference."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from flopwatch.measure.inputs import make_inputs
from flopwatch.model import Numbers
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from flopwatch.model import Case
    from flopwatch.suite import Suite


def check_numbers(suite: Suite, case: Case, seed: int, *, tune_first: bool = False) -> Numbers:
    """Run the case on fresh inputs with its output poisoned, and compare with the suite's reference.

    With `tune_first`, for a GPU, a call before compiles and tunes the kernel: poisoning slows the host, and a tuner
    that times launches on a slow host picks a tile at random.
    """
    inputs = make_inputs(suite, case, seed)
    call = suite.call(case.provider)
    if tune_first:
        call(*inputs)
    with PoisonedAllocations():
        result = call(*inputs)
    return difference(result, suite.reference(*inputs))


def difference(result: torch.Tensor, reference: torch.Tensor) -> Numbers:
    """Measure how far `result` is from `reference`.

    Args:
        result: any shape, a floating dtype.
        reference: the same shape, float64.

    Returns:
        max|result - reference|, and that in units of eps(result.dtype) * max|reference|.

    Raises:
        ValueError: the shapes differ.

    >>> difference(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5], dtype=torch.float64)).max_diff
    0.5
    """
    if result.shape != reference.shape:
        raise ValueError(f"the result has shape {tuple(result.shape)}, its reference {tuple(reference.shape)}")
    bitwise = hashlib.sha256(
        result.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
    ).hexdigest()[:16]
    dtype = str(result.dtype).removeprefix("torch.")
    if not result.numel():
        return Numbers(dtype=dtype, max_diff=0.0, max_diff_eps=0.0, finite=True, bitwise=bitwise)
    finite = bool(torch.isfinite(result).all()) or not bool(torch.isfinite(reference).all())
    max_diff = float((result.double() - reference).abs().max())
    scale = torch.finfo(result.dtype).eps * float(reference.abs().max())
    if not max_diff < float("inf"):
        return Numbers(dtype=dtype, max_diff=None, max_diff_eps=None, finite=finite, bitwise=bitwise)
    relative = max_diff / scale if scale else (0.0 if not max_diff else None)
    return Numbers(dtype=dtype, max_diff=max_diff, max_diff_eps=relative, finite=finite, bitwise=bitwise)
