"""What trials change in the suites that they try: a kernel runs once for all formulas, and its inputs are watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import torch

    from flopwatch.suite import Suite


def rehearse(suites: Iterable[type[Suite]], outputs: Collection[int]) -> None:
    """Let suites that differ in nothing but their reference share what `run` returns.

    Dozens of formulas are held against one result. One that raises, or makes another shape, counts as far off instead:
    a worker that reports a failure collects its garbage, which takes 0.1 s (torch 2.13, 2026-11-21).

    A kernel that changes its inputs, other than the tensors at `outputs`, is refused: the reference would be computed
    from what it left, and agree with anything.
    """
    known: dict[tuple[object, ...], torch.Tensor] = {}
    for suite in suites:
        _replace(suite, known, outputs)


def _replace(suite: type[Suite], known: dict[tuple[object, ...], torch.Tensor], outputs: Collection[int]) -> None:
    run_kernel: Callable[..., Any] = suite.run
    compute: Callable[..., Any] = suite.reference

    def run(self: Suite, *arguments: Any) -> torch.Tensor:  # noqa: ANN401 - the suite's
        key = _key(arguments, outputs)
        if key not in known:
            before = [tensor.clone() for tensor in _inputs(arguments, outputs)]
            result = run_kernel(self, *arguments)
            if not all(now.equal(then) for now, then in zip(_inputs(arguments, outputs), before, strict=True)):
                raise RuntimeError("it changes its arguments")
            if not hasattr(result, "is_floating_point") or not result.is_floating_point():
                raise TypeError("it returns no tensor of floating-point numbers")
            known[key] = result
        return known[key]

    def reference(self: Suite, *arguments: Any) -> torch.Tensor:  # noqa: ANN401 - the suite's
        result = known[_key(arguments, outputs)]
        far_off = result.double() * float("nan")
        try:
            expected: torch.Tensor = compute(self, *arguments)
        except Exception:  # noqa: BLE001 - whatever a formula raises that is not for these shapes
            return far_off
        return expected if expected.shape == result.shape else far_off

    suite.run = run  # type: ignore[method-assign] # of a class that only a trial knows
    suite.reference = reference  # type: ignore[method-assign] # likewise


def _inputs(arguments: tuple[Any, ...], outputs: Collection[int]) -> list[torch.Tensor]:
    tensors = [value for value in arguments if hasattr(value, "dtype")]
    return [tensor for index, tensor in enumerate(tensors) if index not in outputs]


def _key(arguments: tuple[Any, ...], outputs: Collection[int]) -> tuple[object, ...]:
    """Tell inputs apart: those of another seed have another sum."""
    return tuple(
        (str(tensor.dtype), tuple(tensor.shape), float(tensor.double().sum())) for tensor in _inputs(arguments, outputs)
    )
