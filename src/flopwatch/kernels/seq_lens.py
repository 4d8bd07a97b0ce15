"""How long each sequence of a batch is: what attention asks of lengths that a caller gives."""

from __future__ import annotations

import weakref

import torch

from flopwatch.kernels import launch
from flopwatch.kernels.operands import check_on_one_gpu

#: Tensors whose values were read, by their ids: with torch's count of writes to them before, the longest of them, and
#: where they lie. A `WeakTensorKeyDictionary` of torch's takes 1.1 us for what takes 0.2 here (2026-11-25, torch 2.13).
_checked: dict[int, tuple[weakref.ref[torch.Tensor], int, int, int]] = {}


def were_read(seq_lens: torch.Tensor, positions: int) -> bool:
    """Tell whether `check_seq_lens` has read these very lengths, and torch has counted no write since.

    What is assigned to the `.data` of a tensor torch does not count: that it lies elsewhere is seen, and more of them
    that begin where they did are not, which the kernel clamps. Dtype, shape and device are the caller's to check.

    Args:
        seq_lens: a tensor.
        positions: of the queries.
    """
    known = _checked.get(id(seq_lens))
    if known is None:
        return False
    tensor, writes, longest, address = known
    return (
        tensor() is seq_lens
        and writes == seq_lens._version  # noqa: SLF001 - has no public name
        and address == seq_lens.data_ptr()
        and longest <= positions
    )


def _remember(seq_lens: torch.Tensor, writes: int, longest: int) -> None:
    place = id(seq_lens)
    tensor = weakref.ref(seq_lens, lambda _: _checked.pop(place, None))
    _checked[place] = (tensor, writes, longest, seq_lens.data_ptr())


def check_seq_lens(seq_lens: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> None:
    """Check the lengths; their values only where they can be read without waiting in a capture, and were not before.

    Args:
        seq_lens: (B,), int32.
        q: (B, H, S, D), or (B*H, S, D), of which each entry then counts as one of a batch.
        k: as many positions.

    Raises:
        ValueError: their number, their device or one of them does not fit `q`, or `k` has other positions.
        TypeError: they are no tensor of int32.
    """
    batch, S = q.shape[0], q.shape[-2]
    if not isinstance(seq_lens, torch.Tensor):
        raise TypeError(
            f"seq_lens must be a tensor, got {seq_lens!r}\n"
            "  why: the kernel reads lengths in the GPU's memory\n"
            f'  do:  pass torch.tensor({seq_lens!r}, dtype=torch.int32, device="cuda")'
        )
    if seq_lens.dtype != torch.int32:
        raise TypeError(
            f"seq_lens must be int32, got {seq_lens.dtype}\n"
            "  why: the kernel reads lengths of 32 bits\n"
            "  do:  convert it: seq_lens.to(torch.int32)"
        )
    if seq_lens.shape != (batch,):
        raise ValueError(
            f"seq_lens must have length {batch} (shape ({batch},)), got {tuple(seq_lens.shape)}\n"
            f"  why: each of the {batch} entries of the first dimension of q has one length\n"
            "  do:  pass one length an entry; with (batch*heads, seq_len, head_dim) repeat it for every head"
        )
    check_on_one_gpu(q=q, seq_lens=seq_lens)
    if k.shape[-2] != S:
        raise ValueError(
            f"seq_lens cannot go with {S} queries and {k.shape[-2]} keys\n"
            "  why: a length is that of a batch entry's queries and of its keys\n"
            "  do:  pad them to the same length, or call once for each entry, without seq_lens"
        )
    if not were_read(seq_lens, S) and _has_readable_values(seq_lens):
        counts = not seq_lens.is_inference()  # else torch counts no writes
        writes = seq_lens._version if counts else 0  # noqa: SLF001 - as above; before values that another thread may write
        values = seq_lens.tolist()
        wrong = [length for length in values if not 0 <= length <= S]
        if wrong:
            raise ValueError(
                f"seq_lens must be between 0 and {S}, got {', '.join(map(str, wrong))}\n"
                "  why: a length counts valid positions of the sequence\n"
                f"  do:  clamp it: seq_lens.clamp(0, {S})"
            )
        if counts and type(seq_lens) in launch.PLAIN_TENSORS:
            _remember(seq_lens, writes, max(values, default=0))


def _has_readable_values(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().device.type != "meta" and not _is_capturing()


def _is_capturing() -> bool:
    try:
        return torch.cuda.is_current_stream_capturing()
    except RuntimeError:  # a GPU is pretended where there is no CUDA to ask
        return False
