"""What of a binary reaches the device: of a cubin of NVIDIA's, or an hsaco of AMD's."""

from __future__ import annotations

import hashlib
import struct

# Code with its operands and immediates, constant banks and initial memory. Debug sections name files and lines, and
# .nv.info names nothing that the code does not show. AMD's read-only data has the kernel's descriptor, which asks for
# registers and scratch memory; .note and the symbols have names.
_DEVICE_SECTIONS = (".text", ".nv.constant", ".nv.shared", ".nv.local", ".nv.global", ".rodata", ".data", ".bss")
_NO_BITS = 8
_HEADER = struct.Struct("<IIQQQQIIQQ")


def code_fingerprint(binary: bytes) -> str:
    """Hash the sections of an ELF binary that reach the device, names and sizes included.

    A hash of opcodes alone would call two kernels the same that differ in an immediate.

    Raises:
        ValueError: this is no 64-bit ELF file.
    """
    if binary[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [_HEADER.unpack_from(binary, table + index * size) for index in range(count)]
    names_offset = headers[names_index][4]
    digest = hashlib.sha256()
    for name, header in sorted((_name(binary, names_offset + header[0]), header) for header in headers):
        if not name.startswith(_DEVICE_SECTIONS):
            continue
        kind, offset, length = header[1], header[4], header[5]
        digest.update(name.encode() + struct.pack("<Q", length))
        if kind != _NO_BITS:
            digest.update(binary[offset : offset + length])
    return digest.hexdigest()[:16]


def _name(binary: bytes, offset: int) -> str:
    return binary[offset : binary.index(b"\0", offset)].decode()
