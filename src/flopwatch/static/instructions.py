"""What the instructions of a kernel show: that it lost its tensor cores, its pipelining, its wide accesses.

Nothing here was timed. The rules name what is slower in all likelihood, and leave out what another tile, another number
of warps or stages brings about by itself.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.static.matching import differing_settings
from flopwatch.static.sass import ALL
from flopwatch.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flopwatch.model import KernelFacts

#: What a finding is called where it is for the worse.
WORSE = {
    "tensor cores": "lost its tensor cores",
    "tensor core format": "slower tensor cores",
    "pipelining": "lost its pipelining",
    "tma loads": "lost its TMA loads",
    "tma stores": "lost its TMA stores",
    "loads": "narrower loads",
    "stores": "narrower stores",
    "local memory": "new local memory",
    "double precision": "new double precision",
    "atomics": "new atomics",
    "loop": "longer loops",
    "code size": "larger code",
}

#: Of instructions in loops, for the same work. 64-bit addresses outside of a matmul's loop add 4 % to it; inside of it
#: they added 45 % on triton 3.6, and ptxas of 3.7.1 moves them out again (sm_90, 2026-11-21).
_LOOP_GROWTH = 1.2
#: Likewise where a setting differs. Steps of half the depth have 43 to 61 % more for a product, which may pay; those of
#: a quarter have 110 to 134 % (matmul in tiles from 64 x 64 to 128 x 256, triton 3.7.1, sm_90, 2026-11-21).
_OTHER_LOOP_GROWTH = 1.75
#: Fewer instructions than this are not told of, whatever their share.
_LEAST_LOOP_GROWTH = 16
_CODE_GROWTH = 2.0
#: Smaller code is not told of: it fits into the first instruction cache, of 128 instructions.
_SMALL_CODE_BYTES = 2048
#: Of the mean width of accesses.
_NARROWER = 0.5

_NONE = "none"
_WARP_GROUP = re.compile(r"[A-Z]GMMA\b")
_BLACKWELL = "UTC"
_OPERAND_BITS = {"B": 1, "O": 4, "I": 8, "Q": 8, "H": 16, "D": 64}
_TMA_COPIES = frozenset({"UTMALDG", "UBLKCP"})
#: Of warp-group instructions the shape is written in numbers with an "x", of a warp's in digits.
#: AMD's is behind an underscore, and its operands' type behind that.
_SHAPE = re.compile(r"[._](\d{1,4})x(\d{1,4})x(\d{1,4})(?!\d)|\.(16|8)(8)(256|128|64|32|16|8|4)\b")
_AMD_OPERAND = re.compile(r"v_\w+x\d+_?x?b?[fi]p?(\d{1,2})")
_TENSOR = re.compile(r"[A-Z]+MMA\b|v_s?mfmac?_")
_GLOBAL_LOADS = ("LDG", "LDGSTS", *(f"{kind}_load{lds}" for kind in ("global", "buffer") for lds in ("", "_lds")))
_GLOBAL_STORES = ("STG", "global_store", "buffer_store")
_COPIES = ("LDGSTS", "global_load_lds", "buffer_load_lds")
_DOUBLE = ("DADD", "DFMA", "DMUL", *(f"v_{name}_f64" for name in ("add", "fma", "fmac", "mul")))
_ATOMICS = ("ATOM", "ATOMG", "RED", "REDG", "global_atomic", "buffer_atomic", "flat_atomic")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What differs in the instructions of two sides: its name, what it is on both, and whether it is for the worse."""

    name: str
    base: str
    head: str
    worse: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mix:
    """Counts of instructions, gathered by what they mean; those of accesses by their bits, the widest first."""

    total: int
    tensor: dict[str, int]
    copies: dict[str, int]
    bulk_stores: dict[str, int]
    local: dict[str, int]
    double: dict[str, int]
    atomics: dict[str, int]
    loads: dict[int, int]
    stores: dict[int, int]
    by_name: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sides:
    """The instructions of base and head: all of them, and those in loops."""

    old: _Mix
    new: _Mix
    old_loop: _Mix
    new_loop: _Mix


def instruction_findings(base: KernelFacts, head: KernelFacts) -> Iterator[Finding]:
    """Yield what the instructions show, the most telling first; nothing where those of a side were not counted.

    The length of loops is compared where no more than one setting differs, that of the code where none does: another
    tile needs other code.
    """
    if not base.instructions or not head.instructions:
        return
    sides = _Sides(
        old=_mix(tuple(base.instructions.items())),
        new=_mix(tuple(head.instructions.items())),
        old_loop=_mix(tuple(base.loop_instructions.items())),
        new_loop=_mix(tuple(head.loop_instructions.items())),
    )
    yield from _tensor_cores(sides)
    yield from _copies(sides)
    yield from _narrower("loads", sides.old.loads, sides.new.loads, sides.old_loop.loads, sides.new_loop.loads)
    yield from _narrower("stores", sides.old.stores, sides.new.stores, sides.old_loop.stores, sides.new_loop.stores)
    yield from _local_memory(sides, spills=bool(head.spill_bytes))
    if sides.new.double and not sides.old.double:
        yield Finding(name="double precision", base=_NONE, head=_named(sides.new.double))
    if sides.new.atomics and not sides.old.atomics:
        yield Finding(name="atomics", base=_NONE, head=_named(sides.new.atomics))
    differing = differing_settings(base.config, head.config)
    if not differing:
        yield from _loops(sides, growth=_LOOP_GROWTH)
        yield from _code_size(base.code_bytes or 0, head.code_bytes or 0)
    elif differing == 1:
        yield from _loops(sides, growth=_OTHER_LOOP_GROWTH)


def _tensor_cores(sides: _Sides) -> Iterator[Finding]:
    """Yield a fallback to an older kind of instructions or to none, or to elements of more bits."""
    old, new = sides.old.tensor, sides.new.tensor
    if not old and not new:
        return
    if not old or not new:
        fma = sides.new.by_name.get("FFMA", 0)
        instead = f", {fma} FFMA" if not new and fma > sides.old.by_name.get("FFMA", 0) else ""
        yield Finding(name="tensor cores", base=_named(old), head=_named(new) + instead, worse=not new)
        return
    before, after = (max(map(_generation, names)) for names in (old, new))
    if before != after:
        yield Finding(name="tensor core format", base=_named(old), head=_named(new), worse=after < before)
        return
    before, after = (max(map(_operand_bits, names)) for names in (old, new))
    if before != after:
        yield Finding(name="tensor core format", base=_listed(old), head=_listed(new), worse=after > before)


def _generation(name: str) -> int:
    """Tell which threads give an instruction: those of a warp, of four (wgmma), or a single one (tcgen05).

    >>> [_generation(name) for name in ("HMMA.16816.F32", "HGMMA.64x128x16.F32", "UTCHMMA")]
    [1, 2, 3]
    """
    if name.startswith(_BLACKWELL):
        return 3
    return 2 if _WARP_GROUP.match(name) else 1


def _operand_bits(name: str) -> int:
    """Return the bits of an operand's element, as far as the name tells.

    >>> [_operand_bits(name) for name in ("HGMMA.64x128x16.F32", "HMMA.1688.F32.TF32", "UTCQMMA", "DMMA.8x8x4")]
    [16, 32, 8, 64]
    >>> [_operand_bits(f"v_mfma_{name}") for name in ("f32_32x32x8_bf16_1k", "f32_16x16x32_fp8_bf8", "f32_32x32x2_f32")]
    [16, 8, 32]
    """
    if found := _AMD_OPERAND.match(name):
        return int(found[1])
    return 32 if "TF32" in name else _OPERAND_BITS.get(name.removeprefix(_BLACKWELL)[0], 16)


def _copies(sides: _Sides) -> Iterator[Finding]:
    """Yield lost copies to shared memory that run beside the arithmetic, or that these no longer run ahead of it.

    Triton pipelines loads by LDGSTS and by TMA. It uses TMA without pipelining too, and never LDGSTS.
    """
    old, new = sides.old.copies, sides.new.copies
    before, after = (max((1 + (name in _TMA_COPIES) for name in names), default=0) for names in (old, new))
    if before != after:
        name = "pipelining" if max(before, after) == 1 else "tma loads"
        yield Finding(name=name, base=_named(old), head=_named(new), worse=after < before)
    else:
        inside = [sum(mix.copies.values()) for mix in (sides.old_loop, sides.new_loop)]
        ahead = [sum(names.values()) - part for names, part in zip((old, new), inside, strict=True)]
        if all(inside) and ahead[0] > 0 and ahead[1] == 0:
            yield Finding(name="pipelining", base=f"{ahead[0]} copies ahead of the loop", head=_NONE)
    if sides.old.bulk_stores and not sides.new.bulk_stores:
        yield Finding(name="tma stores", base=_named(sides.old.bulk_stores), head=_NONE)


def _narrower(
    name: str, old: dict[int, int], new: dict[int, int], old_loop: dict[int, int], new_loop: dict[int, int]
) -> Iterator[Finding]:
    """Yield narrower accesses to global memory: fewer of the widest, more of others, and half as wide on the whole.

    A kernel that reads some scalars besides has as many of the widest as before. Where both sides have accesses in
    loops, those count.
    """
    if old_loop and new_loop:
        old, new = old_loop, new_loop
    if not old or not new:
        return
    widest = max(old)
    others = [sum(count for bits, count in widths.items() if bits < widest) for widths in (old, new)]
    if new.get(widest, 0) < old[widest] and others[1] > others[0] and _mean(new) < _NARROWER * _mean(old):
        yield Finding(name=name, base=_width_text(old), head=_width_text(new))


def _mean(widths: Mapping[int, int]) -> float:
    return sum(bits * count for bits, count in widths.items()) / sum(widths.values())


def _width_text(widths: Mapping[int, int]) -> str:
    return ", ".join(f"{count} of {bits} bits" for bits, count in widths.items())


def _local_memory(sides: _Sides, *, spills: bool) -> Iterator[Finding]:
    """Yield local memory that is new in loops, or anywhere where ptxas does not call it spills."""
    if sides.new_loop.local and not sides.old_loop.local:
        yield Finding(name="local memory", base=_NONE, head=f"{_named(sides.new_loop.local)} in loops")
    elif sides.new.local and not sides.old.local and not spills:
        yield Finding(name="local memory", base=_NONE, head=_named(sides.new.local))


def _loops(sides: _Sides, *, growth: float) -> Iterator[Finding]:
    """Yield longer loops for what they get done, which is more where they are unrolled.

    That is what their tensor cores multiply, of loops without any what they read. Where it is not known, and where the
    tensor cores of a side are of another kind, only the instructions of the same configuration say anything.
    """
    old, new = sides.old_loop, sides.new_loop
    if not old.total or not new.total or bool(old.tensor) != bool(new.tensor):
        return
    before, after = _done(old), _done(new)
    share = after / before if before and after else 1.0
    if new.total <= growth * old.total * share or new.total - old.total * share < _LEAST_LOOP_GROWTH * share:
        return
    if share == 1.0:
        grown = {name: count - old.by_name.get(name, 0) for name, count in new.by_name.items()}
        most = max(grown, key=grown.__getitem__, default="")
        told = f", {grown[most]} more {most}" if grown.get(most, 0) > 0 else ""
        yield Finding(name="loop", base=f"{old.total} instructions", head=f"{new.total}{told}")
    else:
        yield Finding(name="loop", base=f"{old.total} instructions", head=f"{new.total / share:.0f} for the same work")


def _done(loop: _Mix) -> float:
    """Return what a loop multiplies, or reads where it multiplies nothing; 0 where that is not known."""
    if not loop.tensor:
        return sum(bits * count for bits, count in loop.loads.items())
    sizes = [_multiplications(name) * count for name, count in loop.tensor.items()]
    return sum(sizes) if all(sizes) else 0


def _multiplications(name: str) -> int:
    """Return how many multiplications an instruction of the tensor cores makes; 0 where its name does not tell.

    >>> [_multiplications(name) for name in ("HGMMA.64x128x16.F32", "HMMA.16816.F32", "HMMA.1688.F32", "UTCHMMA")]
    [131072, 2048, 1024, 0]
    >>> _multiplications("v_mfma_f32_32x32x8_f16")
    8192
    """
    found = _SHAPE.search(name)
    return math.prod(int(size) for size in found.groups() if size) if found else 0


def _code_size(old: int, new: int) -> Iterator[Finding]:
    if old and new >= _CODE_GROWTH * old and new > _SMALL_CODE_BYTES:
        yield Finding(name="code size", base=format_bytes(old), head=format_bytes(new))


@functools.lru_cache(maxsize=4096)
def _mix(counts: tuple[tuple[str, int], ...]) -> _Mix:
    """Gather counts; those of a result that anybody wrote may have any name. Each is asked for with many others."""
    named = {name: count for name, count in counts if count > 0}
    by_name = Counter[str]()
    for name, count in named.items():
        if name != ALL:
            by_name[name.partition(".")[0]] += count
    return _Mix(
        total=named.get(ALL, 0),
        tensor={name: count for name, count in named.items() if _TENSOR.match(name)},
        copies=_those(by_name, *_COPIES, *sorted(_TMA_COPIES)),
        bulk_stores=_those(by_name, "UTMASTG", "UTMAREDG"),
        local=_those(by_name, "LDL", "STL", "scratch_load", "scratch_store"),
        double=_those(by_name, *_DOUBLE),
        atomics=_those(by_name, *_ATOMICS),
        loads=_widths(named, *_GLOBAL_LOADS),
        stores=_widths(named, *_GLOBAL_STORES),
        by_name=dict(by_name),
    )


def _those(counts: Mapping[str, int], *names: str) -> dict[str, int]:
    return {name: counts[name] for name in names if name in counts}


def _widths(counts: Mapping[str, int], *names: str) -> dict[int, int]:
    widths = Counter[int]()
    for key, count in counts.items():
        name, _, bits = key.partition(".")
        if name in names and bits.isdecimal() and int(bits):
            widths[int(bits)] += count
    return dict(sorted(widths.items(), reverse=True))


def _named(counts: Mapping[str, int]) -> str:
    """Write instructions and their number, without modifiers.

    >>> _named({"HMMA.16816.F32": 2, "HMMA.16816.F32.BF16": 1}), _named({})
    ('3 HMMA', 'none')
    """
    names = Counter[str]()
    for name, count in counts.items():
        names[name.partition(".")[0]] += count
    return _listed(names)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or _NONE
