"""Products for Hopper of operands that tensor maps cannot describe, in one launch: that of `hopper_copying_kernel`.

Chosen by `triton_matmul` where operands are worth copying (`flopwatch.kernels.copies`). Products that are over in
microseconds are of `hopper_copying_short_kernel`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flopwatch.kernels.hopper_copies import COUNTERS
from flopwatch.kernels.hopper_copying_kernel import hopper_copying_kernel, hopper_copying_short_kernel
from flopwatch.kernels.hopper_matmul import HopperConfig, descriptor, has_mapped_rows, lies_by_columns
from flopwatch.kernels.hopper_rows import MOST_COLUMNS
from flopwatch.kernels.hopper_short import ShortConfig
from flopwatch.kernels.launch import empty_on_gpu
from flopwatch.kernels.prepared import Prepared
from flopwatch.kernels.scratch import FAR, LINE, WIDE, rounded, width_of
from flopwatch.kernels.stream_k import Schedule
from flopwatch.kernels.workspace import workspace_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

_FLAG_BYTES = 4


def is_too_wide(columns: int) -> bool:
    """Tell whether a new product has too many columns to be stored row by row, and no tensor map describes it.

    >>> is_too_wide(MOST_COLUMNS - 1), is_too_wide(MOST_COLUMNS + 1), is_too_wide(MOST_COLUMNS + 8)
    (False, True, False)
    """
    return columns % 8 != 0 and columns >= MOST_COLUMNS


def how_read(matrix: torch.Tensor) -> str:
    """Say how a matrix is read to be copied, as of `flopwatch.kernels.hopper_copies.copy_operands`.

    Args:
        matrix: (rows, columns), of 16-bit elements, as it lies.

    >>> half = torch.empty(64, 65).half()
    >>> how_read(half), how_read(half[:, :64].contiguous()), how_read(half.T), how_read(half[:, ::2])
    ('words', 'eights', 'down', 'elements')
    """
    row, column = matrix.stride()
    if has_mapped_rows(matrix) and matrix.shape[1] % WIDE == 0 and row < FAR:
        return "eights"
    if row == 1 and column < FAR:
        return "down"
    return "words" if column == 1 and WIDE <= matrix.shape[1] <= row < FAR else "elements"


@dataclass(frozen=True, kw_only=True, slots=True)
class Operands:
    """What a launch reads, and where copies of it are in a piece of memory, that of A at its start.

    Attributes:
        a: (M, K).
        b: (K, N), or (N, K) where it lies by columns.
        by_columns: whether B does.
        a_reads: how A is read to be copied; "" where it is not.
        b_reads: likewise.
    """

    a: torch.Tensor
    b: torch.Tensor
    by_columns: bool
    a_reads: str
    b_reads: str

    @property
    def b_begins(self) -> int:
        """Elements before the copy of B."""
        return _elements(self.a) if self.a_reads else 0

    @property
    def elements(self) -> int:
        """Of both copies."""
        return self.b_begins + (_elements(self.b) if self.b_reads else 0)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of A and of B, in elements."""
        return *self.a.stride(), *self.b.stride()

    def constants(self, c_width: int) -> dict[str, str | int]:
        """Return what a kernel is compiled for that copies these; `c_width` is how C is stored."""
        return {"A_READS": self.a_reads, "B_READS": self.b_reads, "C_WIDTH": c_width}

    def map_of_a(self, memory: torch.Tensor, rows: int, block_k: int) -> TensorDescriptor:
        """Describe what is multiplied of A, in boxes of so many rows and a step."""
        return descriptor(_in_lines(memory, self.a) if self.a_reads else self.a, rows, block_k)

    def map_of_b(self, memory: torch.Tensor, columns: int, block_k: int) -> TensorDescriptor:
        """Describe what is multiplied of B, in boxes of a step and so many columns."""
        matrix = _in_lines(memory[self.b_begins :], self.b) if self.b_reads else self.b
        return descriptor(matrix, *((columns, block_k) if self.by_columns else (block_k, columns)))

    def arranged(self) -> Callable[[int, int], tuple[int, int, int, object]]:
        """Return what a later launch makes memory for copies with.

        It is given the addresses of A and B, and returns those of what is multiplied, that of the memory, and the
        memory. No tensor of a call is kept with it.
        """
        copies_a, copies_b, elements, dtype = bool(self.a_reads), bool(self.b_reads), self.elements, self.a.dtype
        b_begins = self.b_begins * self.a.element_size()

        def arrange(a: int, b: int) -> tuple[int, int, int, object]:
            copies = empty_on_gpu((elements,), (1,), dtype)
            memory = copies.data_ptr()
            return memory if copies_a else a, memory + b_begins if copies_b else b, memory, copies

        return arrange


def _elements(matrix: torch.Tensor) -> int:
    """Return how many elements a copy has, in whole lines."""
    return matrix.shape[0] * rounded(matrix.shape[1], LINE)


def _in_lines(memory: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the copy at the start of memory, the zeros that end its rows included: so maps of it are read faster."""
    pitch = rounded(rows.shape[1], LINE)
    return memory.as_strided((rows.shape[0], pitch), (pitch, 1))


def prepare_hopper_copying(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, config: HopperConfig | ShortConfig, *, copies_b: bool = False
) -> Prepared:
    """Prepare the launch that writes ``a @ b`` to `out`, of copies of those that tensor maps do not describe.

    Args:
        a: (M, K), of 16-bit elements, any strides.
        b: (K, N), of the same dtype, any strides.
        out: (M, N), contiguous, of the same dtype.
        config: how; `dependent` counts for nothing, and rows of a tile are next to each other.
        copies_b: whether B is copied in any case, so that its rows begin with lines of memory.

    Raises:
        torch.OutOfMemoryError: there is no memory for copies.
        ValueError: C has too many columns, or rows of a tile are apart.
    """
    N = b.shape[1]
    c_width = 0 if has_mapped_rows(out) else width_of((N, 1), N)
    if c_width and N >= MOST_COLUMNS:
        raise ValueError(
            f"a product of {N} columns is too wide\n"
            f"  why: where 8 does not divide them, rows of fewer than {MOST_COLUMNS} are stored\n"
            "  do:  multiply B in parts"
        )
    by_columns = lies_by_columns(b)
    rows = b.T if by_columns else b
    operands = Operands(
        a=a,
        b=rows,
        by_columns=by_columns,
        a_reads="" if has_mapped_rows(a) else how_read(a),
        b_reads=how_read(rows) if copies_b or not has_mapped_rows(rows) else "",
    )
    if isinstance(config, ShortConfig):
        return _short(operands, out, config, c_width)
    return _persistent(operands, out, config, c_width)


def _persistent(operands: Operands, out: torch.Tensor, config: HopperConfig, c_width: int) -> Prepared:
    """Prepare `hopper_copying_kernel`."""
    a, rows = operands.a, operands.b
    (M, K), N = a.shape, out.shape[1]
    device = a.device
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    schedule = config.schedule(M, N, K, processors=processors)
    needs, first_counter = (Schedule(programs=1, shared=0), 0, COUNTERS), 0
    if schedule.shared:  # then the counters are behind the flags
        needs = (schedule, config.block_m * config.block_n, config.consumers + COUNTERS)
        first_counter = schedule.programs * config.consumers
    arranged = operands.arranged()

    def arrange(stream: int, of_a: int, of_b: int, of_c: int) -> tuple[tuple[int, ...], object]:
        held = workspace_for(*needs, device=device, stream=stream)
        parts, flags = held.addresses
        a_read, b_read, begin, copies = arranged(of_a, of_b)
        counters = flags + first_counter * _FLAG_BYTES
        return (a_read, b_read, of_c, parts, flags, of_a, of_b, begin, counters), (held, copies)

    workspace = workspace_for(*needs, device=device)
    memory = torch.empty(operands.elements, device=device, dtype=a.dtype)
    # More programs than tiles copy, too; what is shared has a share for each.
    copy_too = operands.elements > 0 and not schedule.shared
    return Prepared(
        kernel=hopper_copying_kernel,
        grid=(processors * config.per_processor if copy_too else schedule.programs,),
        arguments=(
            operands.map_of_a(memory, config.rows, config.block_k),
            operands.map_of_b(memory, config.block_n, config.block_k),
            out if c_width else descriptor(out, config.rows, config.block_n // config.slices),
            workspace.parts,
            workspace.flags,
            a,
            rows,
            memory,
            workspace.flags[first_counter:],
            M,
            N,
            K,
            schedule.shared,
            *operands.strides,
            processors * config.per_processor,
        ),
        constants={
            **config.constants(schedule, by_columns=operands.by_columns),
            **operands.constants(c_width),
        },
        arrange=arrange,
    )


def _short(operands: Operands, out: torch.Tensor, config: ShortConfig, c_width: int) -> Prepared:
    """Prepare `hopper_copying_short_kernel`."""
    if config.row_step > 1:
        raise ValueError(
            f"no operands are copied for '{config}'\n"
            "  why: rows of its tiles are apart so that they begin with lines of memory, as all rows of copies do\n"
            "  do:  choose a configuration without steps"
        )
    a, rows = operands.a, operands.b
    (M, K), N = a.shape, out.shape[1]
    device, turned = a.device, config.turned
    needs = (Schedule(programs=1, shared=0), 0, COUNTERS)
    workspace = workspace_for(*needs, device=device)
    memory = torch.empty(operands.elements, device=device, dtype=a.dtype)
    beside: list[TensorDescriptor] = []
    if config.more:
        map_of = operands.map_of_a if turned else operands.map_of_b
        beside.append(map_of(memory, config.more, config.block_k))
    if config.more and not c_width:
        more_tile = (config.more, config.block_n) if turned else (config.block_m, config.more)
        beside.append(descriptor(out, *more_tile))
    maps_beside = len(beside)
    arranged = operands.arranged()

    def arrange(stream: int, of_a: int, of_b: int, of_c: int) -> tuple[tuple[int, ...], object]:
        held = workspace_for(*needs, device=device, stream=stream)
        _parts, counters = held.addresses
        a_read, b_read, begin, copies = arranged(of_a, of_b)
        more = (a_read if turned else b_read, of_c)[:maps_beside]
        return (a_read, b_read, of_c, of_a, of_b, begin, counters, *more), (held, copies)

    tiles = config.tiles(M, N)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    # More programs than tiles copy, too; but as many on each multiprocessor as have a tile there, or two tiles come to
    # one, and none to another.
    each = min(config.per_processor, math.ceil(math.prod(tiles) / processors))
    copiers = processors * each
    return Prepared(
        kernel=hopper_copying_short_kernel,
        grid=(max(math.prod(tiles), copiers if operands.elements else 0),),
        arguments=(
            operands.map_of_a(memory, config.block_m, config.block_k),
            operands.map_of_b(memory, config.block_n, config.block_k),
            out if c_width else descriptor(out, config.block_m, config.block_n),
            a,
            rows,
            memory,
            workspace.flags,
            *(*beside, None, None)[:2],
            M,
            N,
            K,
            *tiles,
            *operands.strides,
            copiers,
        ),
        constants={
            **config.constants(by_columns=operands.by_columns),
            **operands.constants(c_width),
        },
        arrange=arrange,
    )


def hopper_copying_matmul(
    a: torch.Tensor, b: torch.Tensor, config: HopperConfig | ShortConfig, *, copies_b: bool = False
) -> torch.Tensor:
    """Multiply ``a`` (M, K) by ``b`` (K, N) on a GPU of the architecture sm_90, in one launch; no gradient.

    Args: as of `prepare_hopper_copying`.

    Returns:
        (M, N), contiguous, of the operands' dtype.

    Raises:
        torch.OutOfMemoryError: there is no memory for copies.
        ValueError: as `prepare_hopper_copying`.
    """
    out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    with torch.cuda.device(a.device):
        prepare_hopper_copying(a, b, out, config, copies_b=copies_b).launch()
    return out
