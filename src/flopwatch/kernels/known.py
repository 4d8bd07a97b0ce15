"""Choices that were measured before flopwatch was built: for these GPUs and arguments nothing is timed.

A table is what ``flopwatch tune --out`` writes and ``flopwatch gate --pin`` reads. A choice of it counts for the GPU of
that name and the arguments of the tuner's key; one without a key, which is for whatever a case launches, does not. It
names its configuration: one that the kernel's list no longer has is passed over, whatever else has changed since.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TABLES = Path(__file__).parent / "tables"
#: Stands in tables for the plain kernel, where it won a race.
PLAIN = "plain"


def known_choices(kernel: str, folder: Path = TABLES) -> dict[tuple[str, str], str]:
    """Return the configurations of a kernel's choices, by the GPU's name and the tuner's key as `key_text` writes it.

    >>> known_choices("matmul_kernel")["NVIDIA H200", "512, 512, 512, float16, float16, float16"][:27]
    'BLOCK_M: 64, BLOCK_N: 64, B'
    """
    return {
        (entry["gpu"], choice["key"]): choice["config"]
        for entry, choice in tabled(folder)
        if choice["kernel"] == kernel
    }


def tabled(folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each choice that has a key, after its entry, as the tables' JSON has them (`flopwatch.tune.table`)."""
    for path in sorted(folder.glob("*.json")):
        for entry in json.loads(path.read_text(encoding="utf-8"))["entries"]:
            yield from ((entry, choice) for choice in entry["choices"] if choice.get("key"))


def key_text(key: Iterable[object]) -> str:
    """Write a tuner's key of numbers and types as tables have it.

    >>> key_text((4096, True, "torch.float16"))
    '4096, True, float16'
    """
    return ", ".join(str(part).removeprefix("torch.") for part in key)
