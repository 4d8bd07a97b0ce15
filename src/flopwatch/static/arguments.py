"""Canonical texts for the arguments of a launch: what a kernel and its launcher can see of them."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from triton.experimental.gluon.nvidia import hopper
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from flopwatch.static.recorder import UNKNOWN, DescriptorArgument, TensorArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Of Triton and of Gluon, which are not related.
DESCRIPTORS = (TensorDescriptor, hopper.TensorDescriptor)
# CUDA's allocations start at multiples of this, and pretended ones too.
_ALIGNMENT_BYTES = 512


class ArgumentTexts:
    """Write arguments down, and tell memory that is shared between them from memory that is not.

    Pretended tensors have addresses, which are never used twice, and no values. Allocations are numbered in the order
    in which they are first seen, so that a kernel that works in place differs from one that does not.
    """

    def __init__(self) -> None:
        self._allocations: dict[int, int] = {}

    def named(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        """Return ``name=value`` of each."""
        return tuple(f"{name}={self.text(value)}" for name, value in arguments.items())

    def text(self, value: Any) -> str:  # noqa: ANN401 - a kernel's argument
        """Return the text of one value; `UNKNOWN` and its type where it may have more to it than can be told."""
        match value:
            case None | bool() | int() | float() | str():
                return f"{type(value).__name__}:{value!r}"
            case torch.Tensor():
                return self._tensor(value)
            case TensorWrapper():
                return f"{value.dtype}({self.text(value.base)})"
            case TensorDescriptor() | hopper.TensorDescriptor():
                return f"descriptor({', '.join(self.named(vars(value)))})"
            case list() | tuple():
                return f"({', '.join(map(self.text, value))})"
            case torch.dtype() | torch.device():
                return str(value)
        if hasattr(value, "cache_key"):
            return f"kernel:{value.__name__}"  # a constant to the compiler, so that its code is in the binary
        if type(value).__module__.startswith("triton.language"):
            return str(value)  # a dtype or a constant, which print what they hold
        if is_dataclass(value) and type(value).__module__.startswith("triton.experimental.gluon.language"):
            return f"{type(value).__name__}({', '.join(self.named(vars(value)))})"  # a layout
        return f"{UNKNOWN}{type(value).__module__}.{type(value).__qualname__}"

    def _tensor(self, tensor: torch.Tensor) -> str:
        offset_bytes = int(tensor.storage_offset()) * tensor.element_size()
        start = tensor.data_ptr() - offset_bytes
        allocation = self._allocations.setdefault(start, len(self._allocations))
        return (
            f"{tensor.dtype}{tuple(tensor.shape)} strides {tuple(tensor.stride())} at byte {offset_bytes} of allocation"
            f" {allocation} of {tensor.untyped_storage().nbytes()} bytes, {start % _ALIGNMENT_BYTES} past alignment"
        )


def argument_values(arguments: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    """Return what a kernel computes addresses from: numbers, tensors and descriptors by name; None for all else."""
    return tuple((name, _value(value)) for name, value in arguments.items())


def _value(value: Any) -> object:  # noqa: ANN401 - a kernel's argument
    match value:
        case bool() | int() | float():
            return value
        case torch.Tensor():
            return _tensor_argument(value)
        case TensorWrapper():
            return _tensor_argument(value.base)
        case TensorDescriptor() | hopper.TensorDescriptor():
            return DescriptorArgument(
                tensor=_tensor_argument(value.base),
                shape=tuple(map(int, value.shape)),
                strides=tuple(map(int, value.strides)),
                block_shape=tuple(map(int, value.block_shape)),
            )
        case list() | tuple():
            return tuple(map(_value, value))
    return None


def _tensor_argument(tensor: torch.Tensor) -> TensorArgument:
    address = int(tensor.data_ptr())
    return TensorArgument(
        address=address,
        element_bytes=tensor.element_size(),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        allocation_address=address - int(tensor.storage_offset()) * tensor.element_size(),
        allocation_bytes=tensor.untyped_storage().nbytes(),
    )
