"""The memory of its own that a launch of `flopwatch.kernels.hopper_attention` needs where sequences have lengths.

Counters of tiles and of programs that have ended, which are 0 between launches, and four words for each program, by
which its producer tells the warpgroups the next tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flopwatch.kernels.stream_k import Schedule
from flopwatch.kernels.workspace import Workspace, workspace_for

if TYPE_CHECKING:
    from flopwatch.kernels.launch import Arrange

#: Two flags are counters, and so many words a program tell its warpgroups the next tile.
_WHOLE, _COUNTERS, _TOLD = Schedule(programs=1, shared=0), 2, 4
#: Workspaces of lengths alone, by GPU and programs, and by stream: found 0.3 us sooner than by `workspace_for`, of the
#: 12 that a call may cost (a stand-in for a GPU, 2026-11-25; no command derives that).
_kept: dict[tuple[int | None, int], dict[int, Workspace]] = {}
_MOST_STREAMS = 16


def pointers_of(seq_lens: torch.Tensor | None, programs: int) -> tuple[torch.Tensor | None, ...]:
    """Return what the kernel is given of lengths: them, the counters and where tiles are told; or None three times.

    Args:
        seq_lens: (B,), int32, contiguous; None where there are none.
        programs: that may be launched.
    """
    if seq_lens is None:
        return None, None, None
    workspace = workspace_for(_WHOLE, _TOLD * programs, _COUNTERS, device=seq_lens.device)
    return seq_lens, workspace.flags, workspace.parts.view(torch.int32)


def arrange(programs: int, device: torch.device) -> Arrange:
    """Return what puts the address of the output before that of the lengths, and a stream's workspace behind them.

    Args: as of `pointers_of`; and of the operands.
    """
    kept = _kept.setdefault((device.index, programs), {})

    def arranged(  # noqa: PLR0917 - by place
        stream: int, q: int, k: int, v: int, seq_lens: int, out: int
    ) -> tuple[tuple[int, ...], Workspace]:
        if stream and torch.cuda.is_current_stream_capturing():  # as `workspace_for`, which asks torch as well
            workspace = workspace_for(_WHOLE, _TOLD * programs, _COUNTERS, device=device, stream=stream)
        elif stream in kept:
            workspace = kept[stream]
        else:
            if len(kept) >= _MOST_STREAMS:
                kept.clear()  # the allocator hands memory on in the order of its stream
            workspace = kept[stream] = Workspace.of(_WHOLE, _TOLD * programs, _COUNTERS, device=device)
        told, counter = workspace.addresses
        return (q, k, v, out, seq_lens, counter, told), workspace

    return arranged
