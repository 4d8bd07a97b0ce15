"""Compare a result with its float64 reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flopwatch.measure.inputs import make_inputs
from flopwatch.model import Numbers, worst_of
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.model import Case
    from flopwatch.suite import Suite

#: Of the fingerprint of a result: 2^32 over the golden ratio, odd, whose multiples are spread evenly (D. E. Knuth, "The
#: Art of Computer Programming" 3, section 6.4); and the words that are summed at once, 256 MiB of intermediate values.
_MULTIPLIER = 2654435769
_WORDS_AT_ONCE = 1 << 25


def check_numbers(suite: Suite, case: Case, seed: int, *, tuned: Callable[[], object] | None = None) -> Numbers:
    """Run the case on fresh inputs with its output poisoned, and compare with the suite's reference.

    Args:
        suite: the declaration.
        case: the point of it.
        seed: of the inputs.
        tuned: for a GPU: a call before compiles and tunes the kernel, since poisoning slows the host, and a tuner that
            times launches on a slow host picks a tile at random; then this is told so, and the case is called as its
            users call it, where it may launch what it kept of calls before.

    Returns:
        The difference of the result that is furthest from the reference.
    """
    inputs = make_inputs(suite, case, seed)
    results = _results(suite, case, inputs, tuned)
    reference = suite.reference(*inputs)
    return worst_of([difference(result, reference) for result in results])


def fingerprint_result(suite: Suite, case: Case, seed: int, *, tuned: Callable[[], object]) -> str:
    """Run the case on a GPU as `check_numbers` does; return a fingerprint of the results' bits, dtype and shape."""
    results = _results(suite, case, make_inputs(suite, case, seed), tuned)
    return "; ".join(f"{_dtype(result)} {tuple(result.shape)} {_bitwise(result)}" for result in results)


def _results(
    suite: Suite, case: Case, inputs: tuple[Any, ...], tuned: Callable[[], object] | None
) -> list[torch.Tensor]:
    call = suite.call(case.provider)
    if tuned is not None:
        call(*inputs)
    with PoisonedAllocations():
        results = [call(*inputs)]
    if tuned is not None:
        tuned()
        call(*inputs)  # what it launches may be kept
        with PoisonedAllocations():
            torch.empty_like(results[0])  # in memory that the next call is likely to be given
        results.append(call(*inputs))
    return results


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
    bitwise, dtype = _bitwise(result), _dtype(result)
    if not result.numel():
        return Numbers(dtype=dtype, max_diff=0.0, max_diff_eps=0.0, finite=True, bitwise=bitwise)
    known = torch.isfinite(reference)
    finite = bool((torch.isfinite(result) == known).all())
    if not bool(known.any()):
        return Numbers(dtype=dtype, max_diff=None, max_diff_eps=None, finite=finite, bitwise=bitwise)
    max_diff = float((result.double() - reference)[known].abs().max())
    scale = torch.finfo(result.dtype).eps * float(reference[known].abs().max())
    if not max_diff < float("inf"):
        return Numbers(dtype=dtype, max_diff=None, max_diff_eps=None, finite=finite, bitwise=bitwise)
    relative = max_diff / scale if scale else (0.0 if not max_diff else None)
    return Numbers(dtype=dtype, max_diff=max_diff, max_diff_eps=relative, finite=finite, bitwise=bitwise)


def _bitwise(result: torch.Tensor) -> str:
    """Fingerprint the bits where they lie: a weighted sum of 32-bit words, modulo 2^64.

    The weights are odd, so that a change of one word always shows; of several, it stays hidden once in about 2^32.
    """
    data = result.detach().contiguous().reshape(-1).view(torch.uint8)
    words = torch.nn.functional.pad(data, (0, -len(data) % 4)).view(torch.int32)
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    for start in range(0, len(words), _WORDS_AT_ONCE):
        part = words[start : start + _WORDS_AT_ONCE].long()
        index = torch.arange(start, start + len(part), device=data.device)
        total += (part * (index * _MULTIPLIER * 2 + 1)).sum()
    return f"{int(total) % 2**64:016x}"


def _dtype(result: torch.Tensor) -> str:
    return str(result.dtype).removeprefix("torch.")
