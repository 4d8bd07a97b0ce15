"""What ptxas says of a kernel when it is verbose."""

from __future__ import annotations

import re

from flopwatch.errors import UnsupportedTritonError

#: Where the facts lie in a compiled kernel's metadata.
METADATA_KEY = "flopwatch_ptxas"

_REGISTERS = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def ptxas_facts(log: str) -> dict[str, int]:
    """Return registers, stack and spill bytes, all per thread, of a verbose log.

    Functions that were not inlined have a line each: registers and stack are the largest of any, spills are summed.

    Raises:
        UnsupportedTritonError: the log does not say them.

    >>> ptxas_facts('''ptxas info    : Function properties for kernel
    ...     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
    ... ptxas info    : Used 64 registers, used 1 barriers''')
    {'registers': 64, 'stack_bytes': 8, 'spill_store_bytes': 4, 'spill_load_bytes': 12}
    """
    registers = [int(number) for number in _REGISTERS.findall(log)]
    frames = [tuple(map(int, numbers)) for numbers in _FRAME.findall(log)]
    if not registers or not frames:
        raise UnsupportedTritonError(
            "ptxas does not tell registers and spills",
            why=f"its log reads {log[:500]!r}",
            todo="install a Triton of the supported range, with its own ptxas",
        )
    return {
        "registers": max(registers),
        "stack_bytes": max(frame[0] for frame in frames),
        "spill_store_bytes": sum(frame[1] for frame in frames),
        "spill_load_bytes": sum(frame[2] for frame in frames),
    }
