"""What LLVM writes of a kernel for AMD's GPUs: its registers and spills, and its instructions by class.

The text is the assembly from which the binary is made, with the kernel's metadata in YAML behind it
(https://llvm.org/docs/AMDGPUUsage.html, code object V5); no tool is needed to read it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flopwatch.errors import UnsupportedTritonError
from flopwatch.static.flow import reachable
from flopwatch.static.sass import ALL, INT64, InstructionCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_METADATA = re.compile(
    r"^\s+(?:- )?\.(agpr_count|vgpr_count|sgpr_count|private_segment_fixed_size|vgpr_spill_count):\s+(\d+)$",
    re.MULTILINE,
)
_SPILLS = re.compile(r"; (\d+)-byte Folded (Spill|Reload)$", re.MULTILINE)
_CODE_BYTES = re.compile(r"^; codeLenInByte = (\d+)$", re.MULTILINE)

_FUNCTION = re.compile(r"\s+\.type\s+(\S+),@function")
_LABEL = re.compile(r"([\w.$]+):")
_INSTRUCTION = re.compile(r"\s+([a-z]\w*)(?:\s+([^;]*))?")

_JUMP, _END, _COMPUTED_JUMP = "s_branch", "s_endpgm", "s_setpc_b64"
_CONDITIONAL_JUMP = "s_cbranch_"

_MATRIX = re.compile(r"v_s?mfmac?_")
#: Accesses that are told apart by their width: to global, any, scratch, constant and shared memory.
_ACCESS = re.compile(
    r"(?P<kind>(?:global|buffer|flat|scratch|s|s_buffer|ds)_(?:load(?:_lds)?|store|read|write))(?P<twice>2?(?:st64)?)"
    r"_(?P<width>\w+)"
)
#: Of a load that goes straight to shared memory, without registers.
_TO_SHARED = re.compile(r"\blds$")
_WIDTHS = {"dword": 32, "ubyte": 8, "sbyte": 8, "byte": 8, "ushort": 16, "sshort": 16, "short": 16}
_BITS = re.compile(r"(?:dwordx|[biu])(\d+)")
_WORD_BITS = 32
_ATOMIC = re.compile(r"(?:global|buffer|flat)_atomic_|ds_(?:add|sub|min|max|and|or|xor|cmpst|cmpstore|pk_add|wrxchg)_")
_FLOATING_POINT = re.compile(r"v_(?:pk_)?(fma|fmac|mac|mad|add|sub|mul|dot\d\w*?)_(f16|bf16|f32|f64)(?:_|$)")
_SPECIAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)(?:_iflag)?_(?:f16|f32|f64)")
_LONG = re.compile(r"[sv]_\w*(?:_[iu]64|addc|subb|mad_[iu]64)|v_(?:addc|subb)_co_")
_EXCHANGE = re.compile(r"ds_(?:bpermute|permute|swizzle)_|v_permlane|v_mov_b32_dpp$")


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdResources:
    """What a kernel takes of a compute unit.

    Attributes:
        registers: vector registers a lane, those of the accumulators included: both are of one file.
        accumulator_registers: of them, those that only matrix instructions and moves reach.
        scalar_registers: a wave.
        stack_bytes: scratch memory a lane.
        spill_store_bytes: that the compiler stores to scratch memory because registers ran out, a lane.
        spill_load_bytes: that it loads from there again.
    """

    registers: int
    accumulator_registers: int
    scalar_registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def amd_resources(text: str) -> AmdResources:
    """Read what a kernel takes from its assembly; of several functions the metadata tells the sum.

    Raises:
        UnsupportedTritonError: the text does not say it.
    """
    told = {name: int(number) for name, number in _METADATA.findall(text)}
    spilled = Counter[str]()
    for number, kind in _SPILLS.findall(text):
        spilled[kind] += int(number)
    try:
        return AmdResources(
            registers=told["vgpr_count"],
            accumulator_registers=told["agpr_count"],
            scalar_registers=told["sgpr_count"],
            stack_bytes=told["private_segment_fixed_size"],
            spill_store_bytes=spilled["Spill"],
            spill_load_bytes=spilled["Reload"],
        )
    except KeyError as error:
        raise UnsupportedTritonError(
            "LLVM does not tell a kernel's registers",
            why=f"the assembly for AMD has no .{error.args[0]}",
            todo="install a Triton of the supported range",
        ) from None


@dataclass(kw_only=True, slots=True)
class _Block:
    """Instructions that run one after the other, and where they lead to."""

    labels: list[str] = field(default_factory=list)
    opcodes: list[str] = field(default_factory=list)
    jumps: list[str] = field(default_factory=list)
    falls_through: bool = True


def count_amd_instructions(text: str) -> InstructionCounts:
    """Count the instructions of an assembly by class, in all of it and in the loops of the kernel, its first function.

    An instruction is in a loop where it can be reached from itself, by the jumps. Functions that were not inlined
    count, but not as part of a loop, since calls are to addresses in registers.
    """
    functions = _functions(text)
    every = [opcode for blocks in functions for block in blocks for opcode in block.opcodes]
    inside = [opcode for block in _loops(functions[0]) for opcode in block.opcodes] if functions else []
    return InstructionCounts(
        instructions=_by_class(every),
        loop_instructions=_by_class(inside),
        code_bytes=sum(map(int, _CODE_BYTES.findall(text))),
    )


def _functions(text: str) -> list[list[_Block]]:
    """Read the blocks of each function, in the order of the text."""
    functions: list[list[_Block]] = []
    in_code, waiting = False, False
    for line in text.splitlines():
        if _FUNCTION.match(line):
            waiting = True
        elif found := _LABEL.match(line):
            if waiting:
                functions.append([])
                waiting, in_code = False, True
            elif found[1].startswith(".Lfunc_end"):
                in_code = False
            if in_code:
                _labelled(functions[-1], found[1])
        elif in_code and (found := _INSTRUCTION.match(line)):
            _add(functions[-1], found[1], (found[2] or "").strip())
    return functions


def _labelled(blocks: list[_Block], label: str) -> None:
    if not blocks or blocks[-1].opcodes:
        blocks.append(_Block())
    blocks[-1].labels.append(label)


def _add(blocks: list[_Block], opcode: str, operands: str) -> None:
    block = blocks[-1]
    if block.jumps or not block.falls_through:
        block = _Block()
        blocks.append(block)
    block.opcodes.append(opcode.replace("_load_", "_load_lds_") if _TO_SHARED.search(operands) else opcode)
    if opcode == _JUMP or opcode.startswith(_CONDITIONAL_JUMP):
        block.jumps.append(operands)
    block.falls_through = opcode not in {_JUMP, _END, _COMPUTED_JUMP}


def _loops(blocks: Sequence[_Block]) -> list[_Block]:
    """Return the blocks that can be reached from themselves; none where a jump goes to a computed address."""
    if any(_COMPUTED_JUMP in block.opcodes for block in blocks):
        return []
    places = {label: place for place, block in enumerate(blocks) for label in block.labels}
    after: list[list[int]] = []
    before: list[list[int]] = [[] for _ in blocks]
    for place, block in enumerate(blocks):
        following = [place + 1] if block.falls_through and place + 1 < len(blocks) else []
        after.append(following + [places[label] for label in block.jumps if label in places])
        for other in after[-1]:
            before[other].append(place)
    inside: set[int] = set()
    for place, others in enumerate(after):
        for other in others:
            if other <= place:
                inside |= reachable([other], after) & reachable([place], before)
    return [blocks[place] for place in sorted(inside)]


def amd_instruction_class(opcode: str) -> str:
    """Name the class that an instruction is counted in; "" where it is none of interest.

    Matrix instructions keep their name, which has their shape and types. Accesses have their bits a lane; those of
    shared memory that read or write at two places have the bits of both.

    >>> [amd_instruction_class(opcode) for opcode in ("v_mfma_f32_32x32x8_f16", "global_load_dwordx4", "ds_read2_b64")]
    ['v_mfma_f32_32x32x8_f16', 'global_load.128', 'ds_read.128']
    >>> [amd_instruction_class(opcode) for opcode in ("buffer_load_ushort", "scratch_store_dword", "v_exp_f32_e32")]
    ['buffer_load.16', 'scratch_store.32', 'v_exp']
    >>> [amd_instruction_class(opcode) for opcode in ("v_cvt_f16_f32_e32", "v_lshl_add_u64", "s_barrier", "v_mov_b32")]
    ['v_cvt', 'INT64', 's_barrier', '']
    """
    if _MATRIX.match(opcode):
        return opcode.removesuffix("_e64")
    if found := _ACCESS.fullmatch(opcode):
        bits = _bits(found["width"]) * (2 if found["twice"].startswith("2") else 1)
        return f"{found['kind']}.{bits}" if bits else found["kind"]
    if opcode == "s_barrier":
        return opcode
    if opcode.startswith("v_accvgpr_"):
        return "v_accvgpr"
    if _ATOMIC.match(opcode):
        return f"{opcode.partition('_')[0]}_atomic"
    if opcode.startswith("v_cvt_"):
        return "v_cvt"
    if found := _SPECIAL.match(opcode):
        return f"v_{found[1]}"
    if found := _FLOATING_POINT.match(opcode):
        return f"v_{found[1]}_{found[2]}"
    if _LONG.match(opcode):
        return INT64
    return "exchange" if _EXCHANGE.match(opcode) else ""


def _bits(width: str) -> int:
    """Return the bits of an access by the end of its name; 0 where it does not tell.

    >>> [_bits(width) for width in ("dwordx4", "dword", "ushort", "short_d16_hi", "b64_tr_b16", "u8")]
    [128, 32, 16, 16, 64, 8]
    """
    found = _BITS.match(width)
    if found is None:
        return _WIDTHS.get(width.partition("_")[0], 0)
    return int(found[1]) * (_WORD_BITS if width.startswith("dwordx") else 1)


def _by_class(opcodes: Iterable[str]) -> dict[str, int]:
    counts = Counter[str]()
    for opcode in opcodes:
        counts[ALL] += 1
        if name := amd_instruction_class(opcode):
            counts[name] += 1
    return dict(sorted(counts.items()))
