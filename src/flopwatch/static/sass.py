"""Count a kernel's machine instructions by class, in all of it and inside its loops."""

from __future__ import annotations

import re
import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.errors import UnsupportedTritonError
from flopwatch.static.flow import reachable
from flopwatch.static.nvdisasm import run_nvdisasm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

#: The key of all instructions together.
ALL = "all"
#: Of an instruction, since sm_70.
INSTRUCTION_BYTES = 16
_EXECUTABLE = 4
_HEADER = struct.Struct("<IIQQQQIIQQ")
#: From here on Triton compiles for the architecture's own features: sm_90a.
_FIRST_ARCH_WITH_FEATURES = 90

_LINE = re.compile(
    r"\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+"
    r"(?:(?P<guard>@!?U?P\w+)\s+)?(?P<opcode>[A-Z]\w*(?:\.\w+)*)(?P<operands>[^;]*?)"
    # What nvdisasm of Triton 3.6 tells of sm_120's schedule: "&req={2} ?WAIT15_END_GROUP".
    r"(?:\s+[&?][^;]*)?;"
)
_ADDRESS = re.compile(r"\s*/\*[0-9a-f]{4,}\*/")
_TARGET = re.compile(r"(?:^|, )0x([0-9a-f]+)$")
_TENSOR = re.compile(r"[A-Z]+MMA(?:\.|$)")

_JUMPS = frozenset({"BRA", "JMP"})
_UNKNOWN_JUMPS = frozenset({"BRX", "BRXU", "JMX", "JMXU"})
_ENDS = frozenset({"EXIT", "RET", "KILL"}) | _UNKNOWN_JUMPS
_CALL = "CALL"

#: Accesses that are told apart by their width: to global, any, and local memory, and from global to shared memory.
_BY_WIDTH = frozenset({"LDG", "STG", "LD", "ST", "LDL", "STL", "LDGSTS"})
_WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
#: Told by their names.
_TMA = frozenset({"UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED"})
_SHARED_OR_TENSOR_MEMORY = frozenset({"LDS", "STS", "LDSM", "STSM", "LDTM", "STTM"})
_TOGETHER = frozenset({"BAR", "SYNCS", "SHFL", "ATOM", "ATOMG", "ATOMS", "RED", "REDG"})
_FLOATING_POINT = frozenset({"FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL", "DSETP", "MUFU"})
_CONVERSIONS = frozenset({"F2F", "F2FP", "F2I", "F2IP", "I2F", "I2FP", "I2I", "I2IP"})
_BY_NAME = _TMA | _SHARED_OR_TENSOR_MEMORY | _TOGETHER | _FLOATING_POINT | _CONVERSIONS
_OTHER_NAMES = {"FFMA2": "FFMA", "FFMA32I": "FFMA", "FADD2": "FADD", "FMUL2": "FMUL"}
_INTEGER = frozenset({"IADD", "IADD3", "IMAD", "ISETP", "LEA", "SHF", "VIADD"})
#: Of integer arithmetic that handles half of a 64-bit number, or a whole one.
_LONG = frozenset({"64", "EX", "S64", "U64", "WIDE", "X"})
INT64 = "INT64"


@dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """A line of a listing.

    Attributes:
        address: in the listing, in bytes.
        opcode: with its modifiers, such as "LDG.E.128".
        operands: what follows.
        guarded: it runs under a predicate.
    """

    address: int
    opcode: str
    operands: str = ""
    guarded: bool = False

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def target(self) -> int | None:
        """Where it jumps to, if that is written in it."""
        found = _TARGET.search(self.operands)
        return int(found[1], 16) if found else None


@dataclass(frozen=True, kw_only=True, slots=True)
class InstructionCounts:
    """Instructions that can be reached, by class, without padding.

    Attributes:
        instructions: by class, and of `ALL`.
        loop_instructions: those of them that are in a loop; empty where there is none, or its bounds are not known.
        code_bytes: of all of them.
    """

    instructions: dict[str, int]
    loop_instructions: dict[str, int]
    code_bytes: int


def count_instructions(binaries: Mapping[str, bytes], arch: int) -> dict[str, InstructionCounts]:
    """Count the instructions of CUDA binaries, in one run of nvdisasm for all of them.

    nvdisasm takes 0.28 s to start and 10 ms a kernel (triton 3.7.1, sm_90, 2026-11-21), so that a call a kernel would
    cost ten times as much. It is given bare code, since files of its own format cannot be more than one.

    Args:
        binaries: CUDA binaries (ELF) by any name.
        arch: what they are for: 90 for sm_90.

    Returns:
        The counts by the same names.

    Raises:
        UnsupportedTritonError: Triton has no nvdisasm, it does not know the architecture, or what it says is not
            understood.
        ValueError: one is no 64-bit ELF file.
    """
    if not binaries:
        return {}
    code = {name: _executable_sections(binary) for name, binary in binaries.items()}
    every = b"".join(part for parts in code.values() for part in parts)
    architecture = f"SM{arch}a" if arch >= _FIRST_ARCH_WITH_FEATURES else f"SM{arch}"
    listing = parse_listing(run_nvdisasm(every, "--no-dataflow", "--binary", architecture))
    counts = {}
    start = first = 0
    for name, parts in code.items():
        entries = [start + sum(map(len, parts[:index])) for index in range(len(parts))]
        start += sum(map(len, parts))
        last = first
        while last < len(listing) and listing[last].address < start:
            last += 1
        counts[name] = count_listing(listing[first:last], entries)
        first = last
    return counts


def parse_listing(text: str) -> list[Instruction]:
    """Read what nvdisasm prints of bare code.

    Raises:
        UnsupportedTritonError: a line of code is not understood.

    >>> parse_listing("        /*0030*/               @P0 BRA 0x280 ;")
    [Instruction(address=48, opcode='BRA', operands='0x280', guarded=True)]
    """
    listing = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found:
            listing.append(
                Instruction(
                    address=int(found["address"], 16),
                    opcode=found["opcode"],
                    operands=found["operands"].strip(),
                    guarded=found["guard"] is not None,
                )
            )
        elif _ADDRESS.match(line):
            raise UnsupportedTritonError(
                "a line of nvdisasm is not understood",
                why=f"it reads {line.strip()[:200]!r}",
                todo="install a Triton of the supported range, and unset TRITON_NVDISASM_PATH",
            )
    return listing


def count_listing(listing: Sequence[Instruction], entries: Sequence[int]) -> InstructionCounts:
    """Count the instructions of one kernel that can be reached from its entries, which are addresses.

    An instruction is in a loop where it can be reached from itself: by the jumps, not by the order of the code, since
    ptxas puts what is seldom run behind all else, from where it jumps back. A function that a loop calls is in it.
    """
    flow = _Flow(listing)
    reached = flow.reached(entries)
    known = len(entries) == 1 and not any(listing[index].name in _UNKNOWN_JUMPS for index in reached)
    counted = [index for index in sorted(reached) if listing[index].name != "NOP"]
    loops = flow.loops(reached) if known else frozenset()
    return InstructionCounts(
        instructions=_by_class(listing[index] for index in counted),
        loop_instructions=_by_class(listing[index] for index in counted if index in loops),
        code_bytes=INSTRUCTION_BYTES * len(counted),
    )


def instruction_class(opcode: str) -> str:
    """Name the class that an instruction is counted in; "" where it is none of interest.

    Tensor core instructions keep all of their name, which has their shape and types.

    >>> [instruction_class(opcode) for opcode in ("HGMMA.64x128x16.F32", "LDG.E.128", "LDGSTS.E.BYPASS.128", "STL")]
    ['HGMMA.64x128x16.F32', 'LDG.128', 'LDGSTS.128', 'STL.32']
    >>> [instruction_class(opcode) for opcode in ("BAR.SYNC.DEFER_BLOCKING", "IMAD.WIDE.U32", "UIADD3.X", "MOV")]
    ['BAR', 'INT64', 'INT64', '']
    """
    if _TENSOR.match(opcode):
        return opcode
    name, *modifiers = opcode.split(".")
    name = _OTHER_NAMES.get(name, name)
    if name in _BY_WIDTH:
        return f"{name}.{next((_WIDTHS[part] for part in modifiers if part in _WIDTHS), 32)}"
    if name in _BY_NAME:
        return name
    return INT64 if name.removeprefix("U") in _INTEGER and not _LONG.isdisjoint(modifiers) else ""


def _by_class(instructions: Iterable[Instruction]) -> dict[str, int]:
    counts = Counter[str]()
    for instruction in instructions:
        counts[ALL] += 1
        if name := instruction_class(instruction.opcode):
            counts[name] += 1
    return dict(sorted(counts.items()))


class _Flow:
    """Where the instructions of a kernel lead to, by their indices."""

    def __init__(self, listing: Sequence[Instruction]) -> None:
        indices = {instruction.address: index for index, instruction in enumerate(listing)}
        self._indices = indices
        self._calls: dict[int, int] = {}
        self._after: list[list[int]] = []
        self._before: list[list[int]] = [[] for _ in listing]
        for index, instruction in enumerate(listing):
            target = indices.get(-1 if instruction.target is None else instruction.target)
            if instruction.name == _CALL and target is not None:
                self._calls[index] = target
            self._after.append(list(_successors(instruction, index, target, len(listing))))
            for after in self._after[-1]:
                self._before[after].append(index)

    def reached(self, entries: Iterable[int]) -> frozenset[int]:
        """Return what can be reached from these addresses, functions that are called included."""
        found: set[int] = set()
        waiting = [self._indices[entry] for entry in entries if entry in self._indices]
        while waiting:
            found |= reachable(waiting, self._after)
            waiting = [target for call, target in self._calls.items() if call in found and target not in found]
        return frozenset(found)

    def loops(self, reached: frozenset[int]) -> frozenset[int]:
        """Return what of that can be reached from itself, and what is called from there."""
        found: set[int] = set()
        backward = [(index, after) for index in reached for after in self._after[index] if after <= index]
        together: dict[int, int] = {}
        for index, after in sorted(backward):
            if index in together and together[index] == together.get(after):
                continue  # of a loop that was found
            cycle = reachable([after], self._after) & reachable([index], self._before)
            together |= dict.fromkeys(cycle, index)
            found |= cycle
        waiting = [target for call, target in self._calls.items() if call in found]
        while waiting:
            found |= reachable(waiting, self._after)
            waiting = [target for call, target in self._calls.items() if call in found and target not in found]
        return frozenset(found & reached)


def _successors(instruction: Instruction, index: int, target: int | None, length: int) -> Iterator[int]:
    """Yield what may run next; a call goes on behind itself, once its function has returned."""
    jumps = instruction.name in _JUMPS or instruction.name == "WARPSYNC"
    if jumps and target is not None:
        yield target
    # "BRA 0x280" goes nowhere else, "BRA.U UP0, 0x280" may.
    always = instruction.name in _ENDS or (instruction.name in _JUMPS and "," not in instruction.operands)
    if index + 1 < length and (instruction.guarded or not always):
        yield index + 1


def _executable_sections(binary: bytes) -> list[bytes]:
    if binary[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    size, count = struct.unpack_from("<HH", binary, 0x3A)
    headers = [_HEADER.unpack_from(binary, table + index * size) for index in range(count)]
    return [binary[header[4] : header[4] + header[5]] for header in headers if header[2] & _EXECUTABLE]
