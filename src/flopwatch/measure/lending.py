"""Lend inputs to the other process of a pair, so that both kernels read the same physical memory.

Where inputs lie in memory makes a kernel up to 1 % faster or slower, for as long as its process lives: memory that is
given back and allocated again is mostly the same. Ten preparations in two pairs of processes erred by 0.38 % where each
slot had its own inputs and by 0.10 % where slot 1 had borrowed those of slot 0 (16x14336x4096; likewise 0.47 and 0.09 %
of a small attention, 0.33 and 0.15 % of 768x768x8192; H200, 2026-11-21).

What is lent is a CUDA IPC handle, in the form that torch.multiprocessing sends. The borrower must give the memory back
before its owner does, and must have been forked from the same interpreter.
"""

from __future__ import annotations

import base64
import contextlib
import pickle
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

from flopwatch.measure.inputs import lay_out, placed


def lend(inputs: tuple[Any, ...], memory: torch.Tensor | None = None) -> str:
    """Describe inputs to another process; "" where there is nothing that this GPU or system can share.

    Args:
        inputs: a single set of them.
        memory: what holds that one and more (`flopwatch.measure.inputs.copy_inputs`).
    """
    tensors = placed(inputs) if memory is None else [memory]
    if not tensors or not tensors[0].is_cuda:
        return ""
    try:
        return base64.b64encode(pickle.dumps([reduce_tensor(tensor) for tensor in tensors])).decode()
    except RuntimeError:
        return ""


def open_lent(lent: str) -> list[torch.Tensor] | None:
    """Open the memory that `lend` describes, in another process; None where this system does not let it.

    To be done before anything that can fail: until it was opened and dropped, its owner cannot give it back.
    """
    try:
        return [
            rebuild(*arguments)
            for rebuild, arguments in pickle.loads(base64.b64decode(lent))  # noqa: S301 - from a process like this one
        ]
    except RuntimeError:
        return None


def borrow(tensors: list[torch.Tensor], own: tuple[Any, ...], number: int) -> list[tuple[Any, ...]] | None:
    """Use another process's memory for inputs.

    Args:
        tensors: what was lent.
        own: a set of inputs of this process.
        number: of sets that are needed.

    Returns:
        The sets, with clones of `own` for what is never lent; None where the first one has not the layout and the
        values of `own`: its owner's code makes other inputs, or has written to them.
    """
    mine = placed(own)
    sets: list[tuple[Any, ...]] = []
    if number == 1 and len(tensors) == len(mine):
        sets = [_with(own, mine, tensors)]
    elif number > 1:
        with contextlib.suppress(ValueError):  # of another size
            sets = lay_out(own, number, tensors[0])
    return sets if sets and are_alike(sets[0], own) else None


def are_alike(inputs: tuple[Any, ...], own: tuple[Any, ...]) -> bool:
    """Tell whether what can be lent of two sets of inputs has the same layout and values."""
    return all(map(_is_like, placed(inputs), placed(own)))


def _with(own: tuple[Any, ...], mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> tuple[Any, ...]:
    """Put their tensors into the places of ours."""
    places = {id(tensor): other for tensor, other in zip(mine, theirs, strict=True)}
    return tuple(places.get(id(value), value) for value in own)


def _is_like(theirs: torch.Tensor, mine: torch.Tensor) -> bool:
    if (theirs.dtype, theirs.shape, theirs.stride()) != (mine.dtype, mine.shape, mine.stride()):
        return False
    try:
        return torch.equal(theirs, mine)
    except RuntimeError:  # no such comparison of this dtype
        return False
