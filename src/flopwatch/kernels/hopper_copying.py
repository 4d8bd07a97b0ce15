"""Products for Hopper of operands that tensor maps cannot describe, in one launch: that of `hopper_copying_kernel`.

Chosen by `triton_matmul` where operands are worth copying (`flopwatch.kernels.copies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flopwatch.kernels.hopper_copying_kernel import COUNTERS, hopper_copying_kernel
from flopwatch.kernels.hopper_matmul import descriptor, has_mapped_rows, lies_by_columns
from flopwatch.kernels.hopper_rows import MOST_COLUMNS
from flopwatch.kernels.launch import empty_on_gpu
from flopwatch.kernels.prepared import Prepared
from flopwatch.kernels.scratch import LINE, rounded, width_of
from flopwatch.kernels.stream_k import Schedule
from flopwatch.kernels.workspace import workspace_for

if TYPE_CHECKING:
    from flopwatch.kernels.hopper_matmul import HopperConfig

_FLAG_BYTES = 4


def is_too_wide(columns: int) -> bool:
    """Tell whether a new product has too many columns to be stored row by row, and no tensor map describes it.

    >>> is_too_wide(MOST_COLUMNS - 1), is_too_wide(MOST_COLUMNS + 1), is_too_wide(MOST_COLUMNS + 8)
    (False, True, False)
    """
    return columns % 8 != 0 and columns >= MOST_COLUMNS


def prepare_hopper_copying(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, config: HopperConfig, *, copies_b: bool = False
) -> Prepared:
    """Prepare the launch that writes ``a @ b`` to `out`, of copies of those that tensor maps do not describe.

    Args:
        a: (M, K), of 16-bit elements, any strides.
        b: (K, N), of the same dtype, any strides.
        out: (M, N), contiguous, of the same dtype.
        config: how; `dependent` counts for nothing.
        copies_b: whether B is copied in any case, so that its rows begin with lines of memory.

    Raises:
        torch.OutOfMemoryError: there is no memory for copies.
        ValueError: C has too many columns.
    """
    (M, K), N = a.shape, b.shape[1]
    c_width = 0 if has_mapped_rows(out) else width_of((N, 1), N)
    if c_width and N >= MOST_COLUMNS:
        raise ValueError(
            f"a product of {N} columns is too wide\n"
            f"  why: where 8 does not divide them, rows of fewer than {MOST_COLUMNS} are stored\n"
            "  do:  multiply B in parts"
        )
    by_columns = lies_by_columns(b)
    rows = b.T if by_columns else b
    copies_a, copies_b = not has_mapped_rows(a), copies_b or not has_mapped_rows(rows)
    b_begins = M * rounded(K, LINE) if copies_a else 0
    elements = b_begins + (rows.shape[0] * rounded(rows.shape[1], LINE) if copies_b else 0)
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    schedule = config.schedule(M, N, K, processors=processors)
    needs, first_counter = (Schedule(programs=1, shared=0), 0, COUNTERS), 0
    if schedule.shared:  # then the counters are behind the flags
        needs = (schedule, config.block_m * config.block_n, config.consumers + COUNTERS)
        first_counter = schedule.programs * config.consumers
    device, dtype, item = a.device, a.dtype, a.element_size()

    def arrange(stream: int, of_a: int, of_b: int, of_c: int) -> tuple[tuple[int, ...], object]:
        held = workspace_for(*needs, device=device, stream=stream)
        parts, flags = held.addresses
        copies = empty_on_gpu((elements,), (1,), dtype)
        begin = copies.data_ptr()
        a_read, b_read = begin if copies_a else of_a, begin + b_begins * item if copies_b else of_b
        counters = flags + first_counter * _FLAG_BYTES
        return (a_read, b_read, of_c, parts, flags, of_a, of_b, begin, counters), (held, copies)

    workspace = workspace_for(*needs, device=device)
    memory = torch.empty(elements, device=device, dtype=dtype)
    return Prepared(
        kernel=hopper_copying_kernel,
        # More programs than tiles copy, too; what is shared has a share for each.
        grid=(schedule.programs if schedule.shared else processors * config.per_processor,),
        arguments=(
            descriptor(_in_lines(memory, a) if copies_a else a, config.rows, config.block_k),
            descriptor(_in_lines(memory[b_begins:], rows) if copies_b else rows, *config.box(by_columns=by_columns)),
            out if c_width else descriptor(out, config.rows, config.block_n // config.slices),
            workspace.parts,
            workspace.flags,
            a,
            b,
            memory,
            workspace.flags[first_counter:],
            M,
            N,
            K,
            schedule.shared,
            *a.stride(),
            *rows.stride(),
        ),
        constants={
            **config.constants(schedule, by_columns=by_columns),
            "A_WIDTH": width_of(a.stride(), K) if copies_a else 0,
            "A_DOWN": a.stride(0) == 1 != a.stride(1),
            "B_WIDTH": width_of(rows.stride(), rows.shape[1]) if copies_b else 0,
            "C_WIDTH": c_width,
        },
        arrange=arrange,
    )


def _in_lines(memory: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the copy at the start of memory, the zeros that end its rows included: so maps of it are read faster."""
    pitch = rounded(rows.shape[1], LINE)
    return memory.as_strided((rows.shape[0], pitch), (pitch, 1))


def hopper_copying_matmul(
    a: torch.Tensor, b: torch.Tensor, config: HopperConfig, *, copies_b: bool = False
) -> torch.Tensor:
    """Multiply ``a`` (M, K) by ``b`` (K, N) on a GPU of the architecture sm_90, in one launch; no gradient.

    Args: as of `prepare_hopper_copying`.

    Returns:
        (M, N), contiguous, of the operands' dtype.

    Raises:
        torch.OutOfMemoryError: there is no memory for copies.
        ValueError: C has too many columns.
    """
    out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    with torch.cuda.device(a.device):
        prepare_hopper_copying(a, b, out, config, copies_b=copies_b).launch()
    return out
