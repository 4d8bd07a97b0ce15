"""What a launch computes, moves and touches, as records; light, for reports and files."""

from __future__ import annotations

from dataclasses import dataclass, field

#: What an L2 cache and the memory behind it move at least (CUDA programming guide, device memory accesses).
SECTOR_BYTES = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfBounds:
    """Addresses outside of the memory that a launch was given.

    Attributes:
        operation: Triton's, such as "tt.load".
        where: ``file.py:line``.
        argument: the tensor whose allocation is left.
        programs: how many programs do it.
        first_program: the least number of these, along the grid's axes.
        before_bytes: how far before the allocation the first byte is; 0 if it is not.
        past_bytes: how far past its end the last byte is; 0 if it is not.
        allocation_bytes: the size of the allocation, of which the tensor may be a view.
    """

    operation: str
    where: str
    argument: str
    programs: int
    first_program: tuple[int, int, int]
    before_bytes: int
    past_bytes: int
    allocation_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Loop:
    """Turns of a loop: all of them, and the least and the most of any one time that a program came to it."""

    where: str
    entered: int
    turns: int
    least: int
    most: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """One launch by its integers. None is what they do not tell; `uncovered` and `data_dependent` say why.

    Bytes of loads, stores and atomics are those that lanes ask for; what a mask leaves out does not count, and what
    several lanes or programs ask for counts every time. Atomics count once, although they read and write.

    Attributes:
        kernel: the name of its function.
        device: the device's key.
        config: the launch's constants, warps and stages.
        variant: argument types and alignment.
        grid: programs along each axis.
        programs: all of them.
        evaluated: those that were evaluated; the others are like none of what is told, where they are fewer.
        dot_flops: of ``tl.dot``, by the type of the operands ("f16", "tf32", "e4m3").
        load_bytes: asked for by loads.
        store_bytes: by stores.
        atomic_bytes: by atomics.
        unique_load_bytes: different bytes that are read.
        unique_store_bytes: different bytes that are written.
        compulsory_bytes: of the sectors of 32 bytes read, plus those written: what an endless cache would still move.
        wave_programs: how many programs the device holds at once, at most all.
        wave_load_bytes: asked for by the loads of the first so many.
        wave_sectors: different sectors of 32 bytes that those read.
        imbalance: the most work of a program over the mean, in FLOPs of dots, or in bytes where there are none.
        loops: in the order of the text.
        out_of_bounds: likewise.
        coverage: the share of the operations that decide about these numbers and were understood; 0 if none could be.
        data_dependent: what depends on values in memory, which nobody knows here.
        uncovered: what was not understood.
    """

    kernel: str
    device: str
    config: str
    variant: str
    grid: tuple[int, ...]
    programs: int
    evaluated: int = 0
    dot_flops: dict[str, int] | None = None
    load_bytes: int | None = None
    store_bytes: int | None = None
    atomic_bytes: int | None = None
    unique_load_bytes: int | None = None
    unique_store_bytes: int | None = None
    compulsory_bytes: int | None = None
    wave_programs: int = 0
    wave_load_bytes: int | None = None
    wave_sectors: int | None = None
    imbalance: float | None = None
    loops: tuple[Loop, ...] = ()
    out_of_bounds: tuple[OutOfBounds, ...] = ()
    coverage: float = 0.0
    data_dependent: tuple[str, ...] = field(default_factory=tuple)
    uncovered: tuple[str, ...] = field(default_factory=tuple)

    @property
    def total_dot_flops(self) -> int | None:
        """FLOPs of all types."""
        return None if self.dot_flops is None else sum(self.dot_flops.values())

    @property
    def waves(self) -> float | None:
        """Its programs over those that the device holds at once; 1 where it holds all, None where that is not known."""
        return self.programs / self.wave_programs if self.wave_programs else None

    @property
    def wave_reuse(self) -> float | None:
        """How many times the first wave asks for each byte of the sectors that it reads; None if it reads nothing."""
        if self.wave_load_bytes is None or not self.wave_sectors:
            return None
        return self.wave_load_bytes / (self.wave_sectors * SECTOR_BYTES)
