from __future__ import annotations

import struct
from pathlib import Path

import pytest

from flopwatch.errors import UnsupportedTritonError
from flopwatch.static.sass import (
    ALL,
    Instruction,
    InstructionCounts,
    count_instructions,
    count_listing,
    instruction_class,
    parse_listing,
)

#: Of a matmul of 64 x 64 x 64 tiles with three stages (triton 3.7.1), all that jumps and the first few of each kind.
LISTINGS = Path(__file__).with_name("listings")
#: Instructions of sm_90.
EXIT = struct.pack("<QQ", 0x000000000000794D, 0x000FEA0003800000)
NOP = struct.pack("<QQ", 0x0000000000007918, 0x000FC00000000000)
BARRIER = struct.pack("<QQ", 0x0000000000007B1D, 0x000FEC0000010000)
EXECUTABLE = 4


def elf(*sections: tuple[int, bytes]) -> bytes:
    """Build a 64-bit ELF file of these sections (flags, content)."""
    body, headers = b"", b""
    for flags, content in sections:
        headers += struct.pack("<IIQQQQIIQQ", 0, 1, flags, 0, 64 + len(body), len(content), 0, 0, 1, 0)
        body += content
    header = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(sections), 0)
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + header + body + headers


def listing(*lines: str) -> list[Instruction]:
    """Read instructions that stand 16 bytes apart."""
    return parse_listing("\n".join(f"/*{16 * index:04x}*/ {line} ;" for index, line in enumerate(lines)))


def counted(*lines: str, entries: tuple[int, ...] = (0,)) -> InstructionCounts:
    return count_listing(listing(*lines), entries)


def golden(architecture: str) -> InstructionCounts:
    return count_listing(parse_listing((LISTINGS / f"{architecture}.sass").read_text(encoding="utf-8")), [0])


@pytest.mark.parametrize(
    ("architecture", "expected", "loops"),
    [
        (
            "sm_80",
            {"HMMA.16816.F32": 32, "LDGSTS.128": 24, "BAR": 5, "STG.128": 4, ALL: 117},
            {"HMMA.16816.F32": 32, "LDGSTS.128": 8, "BAR": 2, ALL: 49},
        ),
        (
            "sm_90",
            {"HGMMA.64x64x16.F32": 4, "LDGSTS.128": 24, "BAR": 5, "STG.128": 4, ALL: 103},
            {"HGMMA.64x64x16.F32": 4, "LDGSTS.128": 8, "BAR": 2, ALL: 21},
        ),
        (
            "sm_100",
            {"UTCHMMA": 8, "LDGSTS.128": 32, "BAR": 17, "SYNCS": 8, "STG.128": 4, ALL: 187},
            {"UTCHMMA": 4, "LDGSTS.128": 8, "BAR": 2, "SYNCS": 3, ALL: 28},
        ),
    ],
)
def test_a_matmul_is_counted(architecture: str, expected: dict[str, int], loops: dict[str, int]) -> None:
    counts = golden(architecture)
    assert {name: counts.instructions[name] for name in expected} == expected
    assert {name: counts.loop_instructions[name] for name in loops} == loops


def test_code_behind_the_kernel_that_jumps_back_makes_no_loop_of_what_is_between() -> None:
    """sm_100 waits for its tensor cores in small loops that ptxas puts behind the epilogue."""
    assert "STG.128" not in golden("sm_100").loop_instructions
    counts = counted("@P0 BRA 0x30", "FADD R0, R0, R0", "EXIT", "NANOSLEEP 0x1", "BRA 0x10")
    assert counts.loop_instructions == {}


def test_a_loop_is_what_is_reached_from_itself() -> None:
    counts = counted("MOV R0, RZ", "FFMA R1, R2, R3, R1", "@P0 BRA 0x10", "STG.E.128 [R4], R8", "EXIT")
    assert counts.instructions == {"FFMA": 1, "STG.128": 1, ALL: 5}
    assert counts.loop_instructions == {"FFMA": 1, ALL: 2}
    assert counts.code_bytes == 80


def test_a_part_of_a_loop_may_lie_behind_the_kernel() -> None:
    counts = counted("FADD R1, R1, R1", "@P1 BRA 0x40", "@P0 BRA 0x0", "EXIT", "MUFU.EX2 R1, R1", "BRA 0x20")
    assert counts.loop_instructions == {"FADD": 1, "MUFU": 1, ALL: 5}


def test_inner_and_outer_loops_count_once() -> None:
    counts = counted("FADD R1, R1, R1", "FMUL R1, R1, R1", "@P0 BRA 0x10", "@P1 BRA 0x0", "EXIT")
    assert counts.loop_instructions == {"FADD": 1, "FMUL": 1, ALL: 4}


def test_a_jump_under_a_uniform_predicate_may_go_on() -> None:
    counts = counted("BRA.U UP0, 0x20", "FADD R1, R1, R1", "EXIT")
    assert counts.instructions == {"FADD": 1, ALL: 3}


def test_padding_behind_the_end_is_not_counted() -> None:
    counts = counted("EXIT", "BRA 0x10", "NOP", "NOP")
    assert counts == InstructionCounts(instructions={ALL: 1}, loop_instructions={}, code_bytes=16)


def test_a_function_that_a_loop_calls_is_in_it() -> None:
    counts = counted("CALL.REL.NOINC 0x30", "@P0 BRA 0x0", "EXIT", "DFMA R2, R2, R2, R2", "RET.REL.NODEC R4 0x0")
    assert counts.loop_instructions == {"DFMA": 1, ALL: 4}


def test_a_function_that_is_called_before_a_loop_is_not_in_it() -> None:
    counts = counted("CALL.REL.NOINC 0x40", "FADD R1, R1, R1", "@P0 BRA 0x10", "EXIT", "DMUL R2, R2, R2", "RET.REL R4")
    assert counts.instructions["DMUL"] == 1
    assert counts.loop_instructions == {"FADD": 1, ALL: 2}


@pytest.mark.parametrize("entries", [(0,), (0, 48)])
def test_loops_are_not_known_where_jumps_or_calls_are_not(entries: tuple[int, ...]) -> None:
    ways = {
        (0,): ("FADD R1, R1, R1", "@P0 BRA 0x0", "@P1 BRX R2 -0x20", "EXIT"),
        (0, 48): ("FADD R1, R1, R1", "@P0 BRA 0x0", "EXIT", "RET.REL R4"),
    }
    counts = counted(*ways[entries], entries=entries)
    assert counts.instructions == {"FADD": 1, ALL: 4}
    assert counts.loop_instructions == {}


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("LDG.E.U16.CONSTANT", "LDG.16"),
        ("LDG.E.LTC128B.64", "LDG.64"),
        ("LDG.E", "LDG.32"),
        ("STG.E.ENL2.256", "STG.256"),
        ("LDL.LU.64", "LDL.64"),
        ("STL.128", "STL.128"),
        ("UTMALDG.2D", "UTMALDG"),
        ("UTCHMMA.2CTA", "UTCHMMA.2CTA"),
        ("QMMA.16832.F32.E4M3.E4M3", "QMMA.16832.F32.E4M3.E4M3"),
        ("IMMA.16832.S8.S8", "IMMA.16832.S8.S8"),
        ("FFMA2", "FFMA"),
        ("F2FP.BF16.F32.PACK_AB", "F2FP"),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "SYNCS"),
        ("LEA.HI.X.SX32", "INT64"),
        ("SHF.L.U64.HI", "INT64"),
        ("ISETP.GE.AND.EX", "INT64"),
        ("IADD3", ""),
        ("IMAD.MOV.U32", ""),
        ("WARPGROUP.ARRIVE", ""),
    ],
)
def test_instructions_have_classes(opcode: str, expected: str) -> None:
    assert instruction_class(opcode) == expected


def test_what_is_told_of_the_schedule_is_no_operand() -> None:
    (jump,) = parse_listing("        /*1510*/  @P0 BRA 0x13d0       &req={2}         ?WAIT15_END_GROUP;")
    assert jump == Instruction(address=0x1510, opcode="BRA", operands="0x13d0", guarded=True)
    assert jump.target == 0x13D0


def test_a_line_that_is_not_understood_is_an_error_and_not_left_out() -> None:
    with pytest.raises(UnsupportedTritonError, match="not understood"):
        parse_listing("        /*0030*/   ??? 0x280 ;")


def test_nothing_but_code_is_disassembled_and_many_kernels_at_once() -> None:
    first = elf((0, b"/home/me/kernel.py"), (EXECUTABLE, BARRIER + EXIT + NOP + NOP))
    second = elf((EXECUTABLE, BARRIER * 2 + EXIT))
    both = count_instructions({"first": first, "second": second}, 90)
    assert both["first"].instructions == {"BAR": 1, ALL: 2}
    assert both["second"].instructions == {"BAR": 2, ALL: 3}
    assert count_instructions({"second": second}, 90) == {"second": both["second"]}


def test_what_is_no_elf_file_is_refused() -> None:
    with pytest.raises(ValueError, match="not a 64-bit ELF file"):
        count_instructions({"kernel": b"junk"}, 90)


def test_without_nvdisasm_nothing_but_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_NVDISASM_PATH", "/nowhere")
    assert count_instructions({}, 90) == {}
    with pytest.raises(UnsupportedTritonError, match="has no nvdisasm"):
        count_instructions({"kernel": elf((EXECUTABLE, EXIT))}, 90)


def test_an_architecture_that_nvdisasm_does_not_know_is_an_error() -> None:
    with pytest.raises(UnsupportedTritonError, match="does not list the machine code"):
        count_instructions({"kernel": elf((EXECUTABLE, EXIT))}, 1)
