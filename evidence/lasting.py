"""How much of a pair's error lasts from place to place of its results: ``python -m evidence.lasting [RECORDING ...]``.

Of the places of a pair, every other one and the rest err apart but for what lasts, so that the mean product of their
mean log ratios is its variance. Times the length of a sample that is a time, which the table shows by that length.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evidence.samples import Samples, means, recordings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

#: Lengths of samples, in microseconds, at which rows of the table end; 8192 cubed alone takes longer.
LENGTHS_US = (330.0, 400.0, 600.0, 1500.0)


def lasting(samples: Samples) -> NDArray[np.float64]:
    """Return estimates of the variance of what lasts, of log(slot 1 / slot 0), (cases, pairs); NaN of a single place.

    An estimate may be negative; their mean is right.
    """
    cycles = means(np.log(samples.seconds.astype(np.float64)), -1)
    places = means(cycles[:, :, 1] - cycles[:, :, 0], -1)
    return (means(places[..., ::2], -1) * means(places[..., 1::2], -1)).T


def table(found: Iterable[Samples]) -> list[str]:
    """Return a line for each length of samples, all recordings together."""
    rows: dict[float, list[tuple[float, float]]] = {most: [] for most in LENGTHS_US}
    for samples in found:
        lengths_us = samples.time_us() * samples.calls
        for length_us, variance in zip(lengths_us.tolist(), means(lasting(samples), 1).tolist(), strict=True):
            most = next((most for most in LENGTHS_US if length_us <= most), None)
            if most is not None and math.isfinite(variance):
                rows[most].append((length_us, variance))
    lines = ["samples up to | cases | lasting error a sample | of it"]
    for most, entries in rows.items():
        if entries:
            time_us, part = (
                math.sqrt(max(0.0, sum(variance * length**power for length, variance in entries) / len(entries)))
                for power in (2, 0)
            )
            lines.append(f"{most:.0f} us | {len(entries)} | {time_us:.2f} us | {100 * part:.3f} %")
    return lines


if __name__ == "__main__":
    paths = [Path(name) for name in sys.argv[1:]] or recordings()
    sys.stdout.write("\n".join(table(map(Samples.load, paths))) + "\n")
