"""The traffic of all that a recorder saw; light until it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flopwatch.static.recorder import Recorder
    from flopwatch.static.traffic.result import Traffic

#: Turns of loops of all launches together, of a few ms each: 128 turns of the matmul of 8192x8192x8192 take 0.5 s of a
#: core (2026-11-22).
MOST_TURNS = 10_000


def traffic_of(recorder: Recorder, *, tuning: bool = False, most_turns: int = MOST_TURNS) -> tuple[Traffic, ...]:
    """Return the traffic of each different launch that was recorded, in order.

    Args:
        recorder: that saw the launches.
        tuning: whether the autotuner's trials count too; without it only what it chose.
        most_turns: of the loops of all of them together; what takes more is `Traffic.uncovered`.
    """
    from flopwatch.static.traffic.model import launch_traffic  # noqa: PLC0415 - likewise
    from flopwatch.static.traffic.turns import Turns  # noqa: PLC0415 - numpy

    turns = Turns(left=most_turns)
    found: dict[tuple[object, ...], Traffic] = {}
    for launch in recorder.launches:
        key = (launch.kernel, launch.grid, launch.binary_hash, launch.arguments)
        if launch.binary_hash and key not in found and (tuning or not launch.tuning):
            found[key] = launch_traffic(launch, recorder.compiled[launch.binary_hash], recorder.device, turns)
    return tuple(found.values())
