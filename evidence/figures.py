"""Findings as plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evidence.goals import CLASSES, DEVIATIONS
from evidence.ledger import BINS
from evidence.proportion import interval, percent
from evidence.svg import COLOURS, INK, Axis, Plot

if TYPE_CHECKING:
    from evidence.ledger import Ledger
    from evidence.power import Power


def plots(ledger: Ledger | None, power: Power | None) -> dict[str, str]:
    """Return the plots by file name; none of what was not found."""
    made = {}
    if ledger:
        made["evidence-noise.svg"] = _plot_noise(ledger)
        made["evidence-levels.svg"] = _plot_levels(ledger)
    if power:
        made["evidence-power.svg"] = _plot_power(power)
    return made


def _plot_noise(ledger: Ledger) -> str:
    plot = Plot(
        title="Deviation of one pair by the time of a call",
        x=_time_axis(),
        y=Axis(
            title="deviation of a pair",
            low=2e-4,
            high=2e-2,
            ticks={0.0002: "0.02 %", 0.0005: "0.05 %", 0.001: "0.1 %", 0.002: "0.2 %", 0.005: "0.5 %", 0.01: "1 %"},
            log=True,
        ),
    )
    dots = [(case.time_us, case.deviation, f"{case.case}: {percent(case.deviation)}") for case in ledger.cases]
    plot.points(dots, "a case", COLOURS[0])
    (every, start), (long, from_us) = DEVIATIONS
    plot.line(
        [(max(start, 1.0), every), (from_us, every), (from_us, long), (1e4, long)], "goal", COLOURS[1], dashed=True
    )
    return plot.render()


def _plot_levels(ledger: Ledger) -> str:
    plot = Plot(
        title="Smallest p-value of stage 1 in clean runs: cumulative share",
        x=Axis(title="smallest p-value of a run", low=0, high=1, ticks={n / 5: f"{n / 5:g}" for n in range(6)}),
        y=Axis(title="share of runs at or below", low=0, high=1, ticks={n / 5: f"{n / 5:g}" for n in range(6)}),
    )
    plot.line([(0, 0), (1, 1)], "what the test may spend", INK, dashed=True)
    for colour, first in zip(COLOURS, ledger.first, strict=False):
        total, points = 0, [(0.0, 0.0)]
        for index, count in enumerate(first.bins):
            total += count
            points.append(((index + 1) / BINS, total / first.runs))
        plot.line(points, f"pairs {first.scheme}", colour)
    return plot.render()


def _plot_power(power: Power) -> str:
    slowdowns = sorted({detection.slowdown for detection in power.detections})
    plot = Plot(
        title="Share of planted slowdowns that are found, by the time of a call",
        x=Axis(
            title="planted slowdown",
            low=slowdowns[0] * 0.8,
            high=slowdowns[-1] * 1.25,
            ticks={slowdown: percent(slowdown) for slowdown in slowdowns},
            log=True,
        ),
        y=Axis(title="found", low=0, high=1, ticks={n / 5: f"{20 * n} %" for n in range(6)}),
        legend_below=True,
    )
    for margin in sorted({detection.margin for detection in power.detections}):
        for beside, (colour, (name, (low_us, high_us))) in enumerate(zip(COLOURS, CLASSES.items(), strict=False)):
            members = [index for index, time_us in enumerate(power.time_us) if low_us <= time_us < high_us]
            if not members:
                continue
            points = []
            for detection in power.detections:
                if detection.margin == margin:
                    found, runs = [detection.found[index] for index in members], detection.runs
                    points.append((detection.slowdown, sum(found) / (len(found) * runs)))
                    low, high = interval(min(found), runs)[0], interval(max(found), runs)[1]
                    plot.bar(detection.slowdown * 1.02**beside, low, high, colour)
            label = f"{name}, margin {percent(margin)} (dashed)" if margin else f"{name}, no margin"
            plot.line(points, label, colour, dashed=margin > 0)
    return plot.render()


def _time_axis() -> Axis:
    ticks = {1.0: "1 µs", 10.0: "10 µs", 100.0: "100 µs", 1e3: "1 ms", 1e4: "10 ms"}
    return Axis(title="time of a call", low=1.0, high=1e4, ticks=ticks, log=True)
