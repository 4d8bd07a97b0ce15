"""The page of the documentation that has every device, its numbers and where each is from."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from flopwatch.static.devices import DEVICES

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.static.device import Device

_HEAD = """\
# Devices

<!-- Made of src/flopwatch/static/devices.py and sources.py by `nox -s docs`. -->

The GPUs that `--device` names: what kernels are compiled for, what bounds their occupancy, and the roof that times are
held against. AMD's words for the same: a multiprocessor is a compute unit, a warp a wave, a block a work-group, shared
memory LDS.

Peaks are of dense operands, with sums of 32 bits or more, as `tl.dot` has them; an addition and a multiplication are
two operations. A case in float32 is held against the faster of FP32 and TF32, and one in FP8 on a chip without it
against 16 bits. Where documents of a vendor contradict each other, the source says so and why this number was taken.
"""
_KIB = 1024.0


def _bytes(value: float) -> str:
    """Write a size in the largest unit of which there is one at least.

    >>> _bytes(129536 << 10)
    '126.5 MiB'
    """
    unit = ""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < _KIB or unit == "GiB":
            break
        value /= _KIB
    return f"{value:g} {unit}"


def _count(value: float) -> str:
    return f"{value:g}"


def _rate(value: float) -> str:
    return f"{value:g} TFLOPS"


#: What each number is called, in the order of the page, and how it is written.
_ROWS: dict[str, tuple[str, Callable[[float], str]]] = {
    "sms": ("multiprocessors", _count),
    "warp_size": ("threads of a warp", _count),
    "max_warps_per_sm": ("warps of a multiprocessor", _count),
    "max_blocks_per_sm": ("blocks of a multiprocessor", _count),
    "registers_per_sm": ("registers of a multiprocessor", str),
    "shared_bytes_per_sm": ("shared memory of a multiprocessor", _bytes),
    "max_shared_bytes_per_block": ("shared memory of a block, at most", _bytes),
    "reserved_shared_bytes_per_block": ("reserved of it for each block", _bytes),
    "l2_bytes": ("L2 cache", _bytes),
    "memory_bytes": ("memory", _bytes),
    "memory_gbps": ("bandwidth of the memory", lambda value: f"{value:g} GB/s"),
    "float64": ("FP64", _rate),
    "float32": ("FP32", _rate),
    "tfloat32": ("TF32", _rate),
    "float16": ("FP16", _rate),
    "bfloat16": ("BF16", _rate),
    "float8": ("FP8", _rate),
    "int8": ("INT8", lambda value: f"{value:g} TOPS"),
}


def catalogue() -> str:
    """Return the page, as Markdown."""
    return "\n".join([_HEAD, *(_chapter(device) for device in DEVICES.values())])


def numbers(device: Device) -> dict[str, float]:
    """Return the numbers of a device that have a source, by name; without those that it has not.

    >>> sorted(numbers(DEVICES["h200"]).keys() - numbers(DEVICES["a100"]).keys())
    ['float8']
    """
    found = {field.name: getattr(owner, field.name) for owner in (device, device.peaks) for field in fields(owner)}
    return {name: found[name] for name in _ROWS if found[name] is not None}


def _chapter(device: Device) -> str:
    known = numbers(device)
    rows = []
    for name, (label, write) in _ROWS.items():
        value = write(known[name]) if name in known else "none"
        places = [str(place) for place, source in enumerate(device.sources, 1) if name in source.numbers]
        rows.append(f"| {label} | {value} | {', '.join(places)} |")
    lines = [
        f"## {device.key}",
        "",
        f"{device.name}, {device.architecture}.",
        "",
        "| Number | Value | Source |",
        "|:--|--:|--:|",
        *rows,
        "",
    ]
    for place, source in enumerate(device.sources, 1):
        told = f": {source.says}" if source.says else ""
        lines.append(f"{place}. [{source.title}]({source.url}){told}. *{source.check.value}.*")
    return "\n".join([*lines, ""])
