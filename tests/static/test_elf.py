from __future__ import annotations

import struct

import pytest

from flopwatch.static.elf import code_fingerprint


def elf(*sections: tuple[str, int, bytes]) -> bytes:
    """Build a 64-bit ELF file of these sections (name, type, content)."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in (*sections, (".shstrtab", 3, b"")))
    body, headers = b"", []
    for name, kind, content in (*sections, (".shstrtab", 3, names)):
        start = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQIIQQ", start, kind, 0, 0, 64 + len(body), len(content), 0, 0, 1, 0))
        body += content
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(headers), len(headers) - 1
    )
    return header + body + b"".join(headers)


CODE = (".text.kernel", 1, b"\x01\x02\x03\x04")


#: Of AMD's: code, and the kernel's descriptor, which asks for registers.
AMD = ((".text", 1, b"\x01\x02"), (".rodata", 1, b"\x03"))


@pytest.mark.parametrize("changed", [((".text", 1, b"\x01\x04"), AMD[1]), (AMD[0], (".rodata", 1, b"\x04"))])
def test_the_code_and_the_descriptor_of_amds_count(changed: tuple[tuple[str, int, bytes], ...]) -> None:
    assert code_fingerprint(elf(*AMD)) != code_fingerprint(elf(*changed))


def test_the_notes_and_names_of_amds_do_not_count() -> None:
    notes = (".note", 7, b"kernel at /home/me"), (".dynstr", 3, b"kernel")
    assert code_fingerprint(elf(*AMD)) == code_fingerprint(elf(notes[0], *AMD, notes[1]))


def test_debug_sections_do_not_count() -> None:
    assert code_fingerprint(elf(CODE)) == code_fingerprint(elf((".debug_line", 1, b"/home/me/kernel.py"), CODE))


def test_the_order_of_sections_does_not_count() -> None:
    constant = (".nv.constant0.kernel", 1, b"\x05")
    assert code_fingerprint(elf(CODE, constant)) == code_fingerprint(elf(constant, CODE))


@pytest.mark.parametrize(
    "changed",
    [
        [(".text.kernel", 1, b"\x01\x02\x03\x05")],
        [(".text.other", 1, b"\x01\x02\x03\x04")],
        [CODE, (".nv.constant0.kernel", 1, b"\x05")],
        [(".text.kernel", 1, b"\x01\x02\x03\x04\x00")],
    ],
)
def test_one_changed_byte_of_the_device_counts(changed: list[tuple[str, int, bytes]]) -> None:
    assert code_fingerprint(elf(CODE)) != code_fingerprint(elf(*changed))


@pytest.mark.parametrize("junk", [b"", b"MZ", b"\x7fELF\x01" + b"\0" * 60])
def test_what_is_no_elf_file_is_refused(junk: bytes) -> None:
    with pytest.raises(ValueError, match="not a 64-bit ELF file"):
        code_fingerprint(junk)
