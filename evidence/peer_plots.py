"""Throughput against size, with peers and the roofline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evidence.peer_goals import attention_points
from evidence.peer_shapes import HEAD_DIMS, MASKS, MATMUL_DTYPES, MATMUL_FP8, SQUARES, sizes
from evidence.svg import COLOURS, INK, Axis, Plot
from flopwatch.static.devices import find_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evidence.peer_goals import Point
    from evidence.peer_recorded import Recorded
    from evidence.peer_records import Beside, Peers
    from flopwatch.static.device import Device

#: The same for everybody in every plot.
LINES = dict(zip(("flopwatch", "torch", "cudnn", "flash2", "flash4", "flex"), COLOURS, strict=True))
NAMES = {
    "flopwatch": "flopwatch",
    "torch": "cuBLAS, by torch",
    "cudnn": "cuDNN, by torch",
    "flash2": "FlashAttention-2, by torch",
    "flash4": "FlashAttention-4, sm_90",
    "flex": "flex_attention, compiled",
}
ROOF = "roofline"
DEVICE = "h200"
#: A decade of sizes has about so many labels.
_SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
#: Between the roof and the frame.
_AIR = 1.05


def measured_plots(peers: Peers, device: str = DEVICE) -> dict[str, str]:
    """Return the plots by file name, of what was measured beside peers.

    Args:
        peers: what was measured.
        device: on which GPU, whose roof is drawn; but for the first one its key is in the names.
    """
    prefix = "performance" if device == DEVICE else f"performance-{device}"
    wanted: dict[str, tuple[str, str, dict[Point, int]]] = {}
    for dtype in MATMUL_DTYPES:
        points: dict[Point, int] = {("PeerMatmul", shape, dtype): sizes(shape)[0] for shape in SQUARES}
        wanted[f"{prefix}-matmul-{dtype}.svg"] = (f"Square products in {dtype}", "M = N = K", points)
    squares = [shape for shape in MATMUL_FP8 if len(set(sizes(shape))) == 1]
    points = {("PeerMatmulFp8", shape, "float8_e4m3fn", "tensor", "fast"): sizes(shape)[0] for shape in squares}
    wanted[f"{prefix}-matmul-float8_e4m3fn.svg"] = (
        "Square products in float8_e4m3fn, fast sums",
        "M = N = K",
        points,
    )
    for head_dim in HEAD_DIMS:
        for mask in MASKS:
            points = {point: sizes(point[1])[2] for point in attention_points(head_dim, mask)}
            title = f"Attention, head_dim {head_dim}, {mask}, float16, 16384 positions, 2048 columns"
            wanted[f"{prefix}-attention-{head_dim}-{mask}.svg"] = (title, "positions in a sequence", points)
    made = {}
    for name, (title, across, points) in wanted.items():
        found = [each for each in peers.beside if each.point in points and each.case.speed is not None]
        if found:
            made[name] = _plot(find_device(device), title, across, points, found)
    return made


def _plot(device: Device, title: str, across: str, points: Mapping[Point, int], found: Sequence[Beside]) -> str:
    lines: dict[str, dict[int, float]] = {name: {} for name in NAMES}
    roof: dict[int, float] = {}
    for each in found:
        case, at = each.case, points[each.point]
        for name, seconds in (("flopwatch", case.head.seconds), (each.peer, case.base.seconds)):
            if seconds is not None:
                lines.setdefault(name, {}).setdefault(at, case.flops / seconds * 1e-12)
        roof[at] = roof_tflops(device, case.flops, case.bytes_moved, each.point[1:])
    drawn = {name: values for name, values in lines.items() if values}
    return throughput(f"{title}, on one {device.name}: TFLOPS by size, flopwatch and its peers", across, drawn, roof)


def recorded_plots(own: Recorded) -> dict[str, str]:
    """Return the plots by file name, of what was recorded of our kernels alone."""
    device = find_device(DEVICE)
    made = {}
    squares = {each.square: each for each in own.cases if each.square is not None}
    if squares:
        roof = {size: roof_tflops(device, each.flops, each.bytes_moved, each.values) for size, each in squares.items()}
        title = f"Square products in float16 on one {own.gpu}, {own.origin.measured}: flopwatch's TFLOPS by size"
        lines = {"flopwatch": {size: each.tflops for size, each in squares.items()}}
        made["performance-recorded-matmul.svg"] = throughput(title, "M = N = K", lines, roof)
    attention = [each for each in own.cases if each.is_attention]
    if attention:
        peak = device.peak_tflops()
        work = [each.flops * 1e-9 for each in attention]
        plot = Plot(
            title=f"Attention in float16 on one {own.gpu}, {own.origin.measured}: flopwatch's TFLOPS by its work",
            x=_decades("operations of a call, 10⁹", min(work), max(work)),
            y=_rates(peak),
            legend_below=True,
        )
        for colour, mask in zip(COLOURS, ("full", "causal", "lengths"), strict=False):
            dots = [(each.flops * 1e-9, each.tflops, told(each.name, each.tflops)) for each in attention]
            dots = [dot for dot, each in zip(dots, attention, strict=True) if each.values[1] == mask]
            if dots:
                plot.points(dots, mask, colour)
        plot.line([(min(work), peak), (max(work), peak)], f"{ROOF}: {peak:g} TFLOPS", INK, dashed=True)
        made["performance-recorded-attention.svg"] = plot.render()
    return made


def roof_tflops(device: Device, flops: float, bytes_moved: float, values: Iterable[str]) -> float:
    """Return the most that a GPU can do for work of so many operations and bytes.

    >>> from flopwatch.static.devices import DEVICES
    >>> roof_tflops(DEVICES["h200"], 2e12, 1e6, ()), roof_tflops(DEVICES["h200"], 4.8e9, 4.8e9, ())
    (989.4, 4.8)
    """
    return round(flops / device.least_seconds(flops, bytes_moved, tuple(values)) * 1e-12, 6)


def throughput(title: str, across: str, lines: Mapping[str, Mapping[int, float]], roof: Mapping[int, float]) -> str:
    """Draw a line for each, over sizes, under the roof; all rates are in TFLOPS."""
    places = sorted(roof)
    # Many lines have a legend that is as high as they are: three eighths of the width are left to it.
    room = (places[-1] / places[0]) ** 0.6 if len(lines) > 2 else _AIR  # noqa: PLR2004 - cuBLAS and ours
    plot = Plot(
        title=title,
        x=Axis(
            title=across,
            low=places[0] / _AIR,
            high=places[-1] * max(room, _AIR),
            ticks={float(size): str(size) for size in _SIZES if places[0] <= size <= places[-1]},
            log=True,
        ),
        y=_rates(max(roof.values())),
        legend_below=True,
    )
    plot.line([(size, roof[size]) for size in places], ROOF, INK, dashed=True)
    for name, values in lines.items():
        ordered = sorted(values.items())
        colour, label = LINES.get(name, INK), NAMES.get(name, name)
        plot.line([(float(size), rate) for size, rate in ordered], "", colour)
        plot.points([(float(size), rate, told(f"{label} at {size}", rate)) for size, rate in ordered], label, colour)
    return plot.render()


def told(name: str, tflops: float) -> str:
    """Say what a dot is.

    >>> told("cuBLAS at 4096", 712.04)
    'cuBLAS at 4096: 712 TFLOPS'
    """
    return f"{name}: {tflops:.4g} TFLOPS"


def _rates(peak: float) -> Axis:
    step = 500 if peak > 1000 else 200  # noqa: PLR2004 - about five lines either way
    ticks = {float(rate): str(rate) for rate in range(0, int(peak * _AIR) + 1, step)}
    return Axis(title="TFLOPS", low=0.0, high=peak * _AIR, ticks=ticks)


def _decades(title: str, low: float, high: float) -> Axis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = {10.0**power: f"{10.0**power:g}" for power in range(first, last + 1)}
    return Axis(title=title, low=10.0**first, high=10.0**last, ticks=ticks, log=True)
