"""Choices that were measured before flopwatch was built: for these GPUs and arguments nothing is timed.

A table is what ``flopwatch tune --out`` writes and ``flopwatch gate --pin`` reads. A choice of it counts for the GPU of
that name and the arguments of the tuner's key; one without a key, which is for whatever a case launches, does not. It
names its configuration: one that the kernel's list no longer has is passed over, whatever else has changed since. It
counts from the Triton on that it was measured with, which may have what earlier ones have not. Of several for the same
arguments the newest such one counts.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
    """Yield each choice that counts here, after its entry, as the tables' JSON has them (`flopwatch.tune.table`).

    Those that were measured with an older Triton come first, so that the last one of the same arguments is the newest.
    """
    paths = sorted(folder.glob("*.json"))
    entries = [entry for path in paths for entry in json.loads(path.read_text(encoding="utf-8"))["entries"]]
    for entry in sorted(entries, key=_version):
        if _version(entry) <= version_of(triton.__version__):
            yield from ((entry, choice) for choice in entry["choices"] if choice.get("key"))


def _version(entry: Mapping[str, Any]) -> tuple[int, int]:
    return version_of(entry["versions"]["triton"])


@functools.cache
def version_of(text: str) -> tuple[int, int]:
    """Return a Triton's (major, minor).

    >>> version_of("3.7.1")
    (3, 7)
    """
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def key_text(key: Iterable[object]) -> str:
    """Write a tuner's key of numbers and types as tables have it.

    >>> key_text((4096, True, "torch.float16"))
    '4096, True, float16'
    """
    return ", ".join(str(part).removeprefix("torch.") for part in key)
