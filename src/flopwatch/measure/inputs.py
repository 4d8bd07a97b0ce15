"""The inputs of a case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from flopwatch.model import Case
    from flopwatch.suite import Suite


def make_inputs(suite: Suite, case: Case, seed: int) -> tuple[Any, ...]:
    """Call the suite's `inputs` with the case's parameters, the provider left out."""
    return suite.inputs(*case.values[:-1], seed=seed)


def input_bytes(inputs: tuple[Any, ...]) -> int:
    """Count the bytes of all tensors among the inputs."""
    return sum(value.numel() * value.element_size() for value in inputs if isinstance(value, torch.Tensor))


def copy_inputs(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the same values in other memory: tensors are copied, strides kept; anything else is shared."""
    return tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in inputs)
