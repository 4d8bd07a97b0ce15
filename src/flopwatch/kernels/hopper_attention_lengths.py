"""What `hopper_attention_kernel` does where each sequence of a batch has a length of its own."""

# Triton types what it compiles, and ships no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0917 - Triton passes a function's arguments by place

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from flopwatch.kernels import tma_copies
from flopwatch.kernels.hopper_attention_block import matrix
from flopwatch.kernels.hopper_attention_tiles import count_blocks


@gluon.jit
def read_length(seq_lens, batch, positions):
    """Read how many positions of a batch entry count."""
    return min(max(gl.load(seq_lens + batch), 0), positions)


@gluon.constexpr_function
def rows_of_warps(columns):
    """Return a layout in which a warp has whole rows of 16-bit elements, or 128 bytes of them, 16 bytes a thread."""
    across = min(columns, 64) // 8
    return gl.BlockedLayout([1, 8], [32 // across, across], [4, 1], [1, 0])


@gluon.jit
def clear_values(v_buf, barriers, row, BLOCK_M: gl.constexpr, length, slot, cleared, CAUSAL: gl.constexpr):
    """Clear the values past the length in the first block of a tile that has any, and say that it is there.

    What a weight of 0 is multiplied by has to be finite, and past a length there may be anything. One warpgroup does it
    for all: the block arrives at a barrier of its own, behind those of whole blocks, and this is what the barrier of
    its slot waits for. `cleared` has a bit for each slot, the phase of that barrier.
    """
    _, _, _, _, v_full, _ = barriers
    STAGES: gl.constexpr = v_buf.shape[0]
    BLOCK_N: gl.constexpr = v_buf.shape[3]
    HEAD_DIM: gl.constexpr = v_buf.shape[4]
    PART: gl.constexpr = 32
    L: gl.constexpr = rows_of_warps(HEAD_DIM)
    blocks = count_blocks(row, row + BLOCK_M, length, length, CAUSAL, BLOCK_N)
    counted = length - (blocks - 1) * BLOCK_N
    if counted < BLOCK_N:
        mbarrier.wait(v_full.index(STAGES + slot), (cleared >> slot) & 1)
        cleared ^= 1 << slot
        for part in gl.static_range(BLOCK_N // PART):
            if counted < (part + 1) * PART:
                values = matrix(v_buf, slot).slice(part * PART, PART)
                rows = part * PART + gl.arange(0, PART, layout=gl.SliceLayout(1, L))
                kept = gl.where(gl.expand_dims(rows < counted, 1), values.load(L), 0.0)
                values.store(kept.to(v_buf.dtype))
        fence_async_shared()
        mbarrier.arrive(v_full.index(slot), count=1)
    return cleared


@gluon.jit
def write_zeros(
    descriptors, out_buf, sizes, seq_lens, BLOCK_M: gl.constexpr, GROUP: gl.constexpr, HEAD_DIM: gl.constexpr
):
    """Write this program's share of the tiles whose rows are all past their length; 64 rows of each."""
    _, _, _, out_desc = descriptors
    _, positions, heads, _, row_tiles, all_heads, _ = sizes
    ROWS: gl.constexpr = out_buf.shape[3]
    COLUMNS: gl.constexpr = out_buf.shape[4]
    matrix(out_buf, GROUP).store(gl.zeros([ROWS, COLUMNS], out_buf.dtype, rows_of_warps(COLUMNS)))
    fence_async_shared()
    for number in range(gl.program_id(0), row_tiles * all_heads, gl.num_programs(0)):
        head = number // row_tiles
        row = number % row_tiles * BLOCK_M
        batch = head // heads
        if row >= read_length(seq_lens, batch, positions):
            for part in gl.static_range(HEAD_DIM // COLUMNS):
                corner = [batch, head % heads, row + GROUP * ROWS, part * COLUMNS]
                tma_copies.store(out_desc, corner, out_buf.index(GROUP))


@gluon.jit
def find_entry(number, batch, first, seq_lens, sizes, BLOCK_M: gl.constexpr):
    """Return the batch entry that has the tile of this number, the number of its first tile, and its length.

    Tiles whose rows are all past their length have no number. An entry past the last one is returned where there is no
    such tile, with how many there are.

    Args:
        number: of a tile, not less than any that was asked for before.
        batch: what was returned before, at first 0.
        first: likewise.
        seq_lens: of all entries.
        sizes: as those of the kernel.
        BLOCK_M: rows of a tile.
    """
    _, positions, heads, _, _, all_heads, _ = sizes
    batches = all_heads // heads
    length = read_length(seq_lens, batch, positions)
    tiles = (length + BLOCK_M - 1) // BLOCK_M * heads
    while (batch < batches) & (number >= first + tiles):
        first += tiles
        batch += 1
        length = read_length(seq_lens, min(batch, batches - 1), positions)
        tiles = (length + BLOCK_M - 1) // BLOCK_M * heads
    return batch, first, length


@gluon.jit
def hand_out(telling, row, head, length, phase):
    """Tell the warpgroups of the next tile, -1 as its row of none, once all have taken the one before.

    In global memory: of what some threads write to shared memory and others read, racecheck does not follow mbarriers.
    Returned is the phase to wait for then.
    """
    told, told_full, told_empty = telling
    told += 4 * gl.program_id(0)
    mbarrier.wait(told_empty, phase)
    gl.store(told, row)
    gl.store(told + 1, head)
    gl.store(told + 2, length)
    mbarrier.arrive(told_full, count=1)
    return phase ^ 1


@gluon.jit
def take_tile(telling, phase):
    """Wait for what `hand_out` tells: the first row of a tile, its head and its length; and the next phase."""
    told, told_full, told_empty = telling
    told += 4 * gl.program_id(0)
    mbarrier.wait(told_full, phase)
    row = gl.load(told, volatile=True)
    head = gl.load(told + 1, volatile=True)
    length = gl.load(told + 2, volatile=True)
    mbarrier.arrive(told_empty, count=1)
    return row, head, length, phase ^ 1


@gluon.jit
def end_count(counter, programs):
    """Count this program as ended; the last one leaves both counters at 0 for the next launch."""
    if gl.atomic_add(counter + 1, 1, sem="acq_rel") == programs - 1:
        gl.store(counter, 0)
        gl.store(counter + 1, 0)
