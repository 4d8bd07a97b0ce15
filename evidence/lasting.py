"""How much of a pair's error lasts from place to place of its results: ``python -m evidence.lasting [RECORDING ...]``.

Of the places of a pair, every other one and the rest err apart but for what lasts, so that the mean product of their
mean log ratios is its variance. Times the length of a sample that is a time, which the table shows by that length.

A second table has the error of pairs by the places that they took, in units of what all pairs of the same case err by.
Pairs stop where their places agree. If that were known of three places, all rows would have about 1.
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

#: The second table is of cases from so long a call on, whose places are the same number in most pairs.
LONG_US = 100.0
#: Numbers of places at which its rows end.
PLACES = (3, 4, 6, 9, 16)
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


def by_places(found: Iterable[Samples]) -> list[str]:
    """Return a line for each number of places that pairs took, all recordings together."""
    rows: dict[int, list[float]] = {most: [] for most in PLACES}
    for samples in found:
        long = samples.time_us() >= LONG_US
        ratios = samples.log_ratios()[long]
        relative = ratios / np.sqrt(means(ratios**2, 1))[:, None]
        places = np.isfinite(samples.seconds[:, long]).any(axis=(2, 4, 5)).sum(axis=2).T
        for count, error in zip(places.flat, relative.flat, strict=True):
            most = next((most for most in PLACES if count <= most), None)
            if most is not None and count > 1 and math.isfinite(error):
                rows[most].append(float(error))
    lines = ["places up to | pairs of a case | error, of the case's"]
    lines += [
        f"{most} | {len(errors)} | {math.sqrt(sum(error**2 for error in errors) / len(errors)):.2f}"
        for most, errors in rows.items()
        if errors
    ]
    return lines


if __name__ == "__main__":
    paths = [Path(name) for name in sys.argv[1:]] or recordings()
    loaded = list(map(Samples.load, paths))
    sys.stdout.write("\n".join([*table(loaded), "", *by_places(loaded)]) + "\n")
