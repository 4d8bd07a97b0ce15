"""The inputs of a case, and copies of them that lie in one piece of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from flopwatch.model import Case
    from flopwatch.suite import Suite

#: Where torch's allocator lets tensors begin, and large ones: at pages of CUDA's.
_ALIGNMENT = 512
_PAGE = 2 << 20


def make_inputs(suite: Suite, case: Case, seed: int) -> tuple[Any, ...]:
    """Call the suite's `inputs` with the case's parameters, the provider left out."""
    return suite.inputs(*case.values[:-1], seed=seed)


def input_bytes(inputs: tuple[Any, ...]) -> int:
    """Count the bytes of all tensors among the inputs."""
    return sum(value.numel() * value.element_size() for value in inputs if isinstance(value, torch.Tensor))


def copy_inputs(inputs: tuple[Any, ...], number: int) -> tuple[torch.Tensor, list[tuple[Any, ...]]]:
    """Copy the values to other memory, strides kept; what is no tensor is shared.

    All copies lie in one piece: it is allocated, lent and given back at once, where a case may have 48 tensors.

    Returns:
        The piece of memory, and `number` sets of inputs.
    """
    memory = torch.empty(number * _set_bytes(inputs), dtype=torch.uint8, device=_device(inputs))
    sets = lay_out(inputs, number, memory)
    for each in sets:
        for value, copy in zip(inputs, each, strict=True):
            if _has_place(value, memory.device):
                copy.copy_(value)
    return memory, sets


def placed(inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return the tensors whose copies lie in that one piece: all of the GPU's but for unusual ones."""
    device = _device(inputs)
    return [value for value in inputs if _has_place(value, device)]


def lay_out(inputs: tuple[Any, ...], number: int, memory: torch.Tensor) -> list[tuple[Any, ...]]:
    """Find the copies that `copy_inputs` has put into `memory`: views of it; what has no place there is cloned.

    Raises:
        ValueError: they do not fill it.
    """
    size = _set_bytes(inputs)
    if number * size != memory.numel():
        raise ValueError(f"{number} sets of {size} bytes do not fill {memory.numel()} bytes")
    sets = []
    for index in range(number):
        offset, copies = index * size, []
        for value in inputs:
            if _has_place(value, memory.device):
                extent = _extent(value)
                bytes_ = memory[offset : offset + extent * value.element_size()]
                copies.append(bytes_.view(value.dtype).as_strided(value.size(), value.stride()))
                offset += _room(value)
            else:
                copies.append(value.clone() if isinstance(value, torch.Tensor) else value)
        sets.append(tuple(copies))
    return sets


def _device(inputs: tuple[Any, ...]) -> torch.device:
    devices = [value.device for value in inputs if isinstance(value, torch.Tensor)]
    return max(devices, key=lambda device: device.type == "cuda", default=torch.device("cpu"))


def _set_bytes(inputs: tuple[Any, ...]) -> int:
    return sum(map(_room, placed(inputs)))


def _room(value: torch.Tensor) -> int:
    size = _extent(value) * value.element_size()
    unit = _PAGE if size >= _PAGE else _ALIGNMENT
    return -(-size // unit) * unit


def _extent(value: torch.Tensor) -> int:
    """Return the number of elements from the first one to the last, those between included."""
    if not value.numel():
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(value.shape, value.stride(), strict=True))


def _has_place(value: object, device: torch.device) -> bool:
    """Tell whether a tensor is one of plain numbers that has each element for itself, on this device."""
    if type(value) is not torch.Tensor or value.is_nested or value.layout is not torch.strided:
        return False
    if value.device != device or value.requires_grad:  # a view of other memory would have another history
        return False
    extent = 1
    for step, length in sorted(zip(value.stride(), value.shape, strict=True)):
        if length > 1 and step < extent:
            return False  # expanded, say
        extent += (length - 1) * step
    return not value.is_quantized
