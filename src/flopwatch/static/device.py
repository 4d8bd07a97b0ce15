"""A GPU as a compiler, an occupancy calculator and a roofline see it.

AMD's words for the same: a multiprocessor is a compute unit, a warp a wave, a block a work-group, shared memory LDS.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from flopwatch.static.sources import SOURCES, Source

if TYPE_CHECKING:
    from collections.abc import Iterable

_WARP_SIZE = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Peaks:
    """The most that a chip computes by the type of the operands, in 10^12 operations a second.

    An addition and a multiplication are two. Sums are of 32 bits or more, as those of `tl.dot`, which halves what a
    GeForce does in 16 and 8 bits; no operand is sparse, and matrix units count where they have the type. None is what
    the chip has no arithmetic for. All of `float8`'s formats have one rate; `tfloat32` is float32 rounded to 10 bits of
    fraction, and no type that PyTorch has.
    """

    float64: float
    float32: float
    tfloat32: float | None = None
    float16: float
    bfloat16: float
    float8: float | None = None
    int8: float

    def of(self, dtype: str = "") -> float | None:
        """Return the peak for operands of a type, under PyTorch's name; that of 16 bits where none is named.

        float32 is measured against the faster of what it is multiplied in, float8 against 16 bits where the chip has no
        arithmetic of its own for it.

        >>> from flopwatch.static.devices import DEVICES
        >>> H200 = DEVICES["h200"].peaks
        >>> H200.of("float8_e4m3fn"), H200.of("float32"), H200.of("bfloat16"), H200.of("")
        (1978.9, 494.7, 989.4, 989.4)
        >>> DEVICES["a100"].peaks.of("float8_e5m2"), DEVICES["l40s"].peaks.of("float64")
        (312.0, 1.43)
        >>> DEVICES["mi350x"].peaks.of("tfloat32") is None
        True
        """
        if not dtype:
            return self.float16
        if dtype == "float32":
            return max(self.float32, self.tfloat32 or 0.0)
        if dtype.startswith("float8"):
            return self.float8 or self.float16
        rates: dict[str, float | None] = {rate.name: getattr(self, rate.name) for rate in fields(self)}
        return rates.get(dtype)


#: PyTorch's, of which every device has a peak.
_DTYPES = frozenset(rate.name for rate in fields(Peaks)) - {"tfloat32"} | {
    f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")
}


def named_dtypes(values: Iterable[str]) -> tuple[str, ...]:
    """Return those of a case's parameters that name a type of operands.

    >>> named_dtypes(("4096x4096x4096", "float8_e4m3fn", "flopwatch"))
    ('float8_e4m3fn',)
    """
    return tuple(value for value in values if value in _DTYPES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A GPU as a compiler and an occupancy calculator see it.

    Attributes:
        name: what PyTorch and the driver call it.
        key: what a user calls it.
        backend: Triton's: "cuda" or "hip".
        arch: what Triton's targets use: 90 for sm_90, "gfx942".
        compute_capability: major and minor, as PyTorch tells them.
        sms: multiprocessors.
        max_shared_bytes_per_block: that a program can use, after opting in.
        shared_bytes_per_sm: of all blocks together.
        reserved_shared_bytes_per_block: what the driver takes on top for every block.
        registers_per_sm: of 32 bits; AMD's vector registers count once for each lane.
        max_warps_per_sm: that are resident.
        max_blocks_per_sm: likewise.
        l2_bytes: of the second-level cache, of all dies together.
        memory_bytes: of the device; what data sheets call GB are GiB, of which the driver and ECC keep a part.
        memory_gbps: of the device, at its peak.
        peaks: of arithmetic.
        warp_size: threads.
    """

    name: str
    key: str
    backend: str
    arch: int | str
    compute_capability: tuple[int, int]
    sms: int
    max_shared_bytes_per_block: int
    shared_bytes_per_sm: int
    reserved_shared_bytes_per_block: int
    registers_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    l2_bytes: int
    memory_bytes: int
    memory_gbps: float
    peaks: Peaks
    warp_size: int = _WARP_SIZE

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where the numbers are from."""
        return SOURCES[self.key]

    def source_of(self, number: str) -> Source:
        """Return where a number is from.

        Args:
            number: the name of a field of this, or of `Peaks`.

        >>> from flopwatch.static.devices import DEVICES
        >>> DEVICES["b200"].source_of("memory_bytes").title
        'Blackwell tuning guide'
        """
        return next(source for source in self.sources if number in source.numbers)

    @property
    def architecture(self) -> str:
        """What compilers call it: "sm_90", "gfx942"."""
        return str(self.arch) if self.is_amd else f"sm_{self.arch}"

    @property
    def is_amd(self) -> bool:
        """Whether Triton compiles for it through LLVM alone, without ptxas."""
        return self.backend == "hip"

    @property
    def has_tensor_memory(self) -> bool:
        """Whether its tensor cores keep sums in a memory of their own, of 512 columns a multiprocessor.

        The data center's Blackwell alone, 10.x and 11.0 (NVIDIA, "Parallel Thread Execution ISA", tcgen05).
        """
        return self.backend == "cuda" and self.compute_capability[0] in (10, 11)

    @property
    def repeats_code(self) -> bool:
        """Whether the same PTX becomes the same code each time: not for sm_100.

        Four runs of the ptxas for it on one file made two codes, of each of three kernels (triton 3.7.1, 2026-11-22);
        that of triton 3.6 did so too. What is counted in the code is the same.
        """
        return (self.backend, self.arch) != ("cuda", 100)

    def peak_tflops(self, values: Iterable[str] = ()) -> float:
        """Return the peak for a case of these parameters: of the fastest type that they name, else of 16 bits.

        >>> from flopwatch.static.devices import DEVICES
        >>> DEVICES["h200"].peak_tflops(("1024", "float8_e4m3fn")), DEVICES["h200"].peak_tflops(("1024",))
        (1978.9, 989.4)
        """
        named = [self.peaks.of(dtype) for dtype in named_dtypes(values)]
        return max((rate for rate in named if rate is not None), default=self.peaks.float16)

    def least_seconds(self, flops: float, bytes_moved: float, values: Iterable[str] = ()) -> float:
        """Return the least time that work takes: its operations and its bytes at their peaks, whichever is longer.

        Args:
            flops: floating-point operations.
            bytes_moved: bytes to and from memory.
            values: the case's parameters, which may name the type of its operands.

        >>> from flopwatch.static.devices import DEVICES
        >>> DEVICES["h200"].least_seconds(989.4e9, 4.8e6), DEVICES["h200"].least_seconds(0.0, 9.6e9)
        (0.001, 0.002)
        >>> DEVICES["h200"].least_seconds(1978.9e9, 4.8e6, ("8192", "float8_e5m2"))
        0.001
        """
        return max(flops / (self.peak_tflops(values) * 1e12), bytes_moved / (self.memory_gbps * 1e9))
