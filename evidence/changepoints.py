"""Change points on labelled series: ``python -m evidence.changepoints``, into evidence/changepoints.json and the page.

Series have noise and steps whose places are known. flopwatch, asv's step detector and Apache Otava look for them, each
with its defaults. Otava pins numpy to another version than the project's and so has an interpreter of its own:

    python -m venv otava && otava/bin/pip install apache-otava==0.8.0
    python -m evidence.changepoints --otava otava/bin/python
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from asv.step_detect import detect_steps

from evidence.labelled import LONG, NORMAL, SCENARIOS, SHORT, WEATHERS, Scenario, labelled, matches, noise
from evidence.page import filled, table
from evidence.pool import processes
from evidence.proportion import percent, upper_bound
from flopwatch.model import from_json, to_json
from flopwatch.stats.changepoints import Changes, change_points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.stats.prior import FloatArray

ROOT = Path(__file__).parents[1]
FINDINGS = ROOT / "evidence" / "changepoints.json"
PAGE = ROOT / "docs" / "changepoints.md"
SEED = 20261124
#: Series of each scenario.
SERIES = 40
#: Commits after a step at which the detectors are asked whether they see it by now.
ASKED_AFTER = (1, 2, 3, 4, 6, 10, 15, 20, 30, 50)
#: Stationary series of each weather.
QUIET_SERIES = 100
QUIET_COMMITS = 1000
#: Values by which the rate of false points is known: some 60 points.
RATE_SERIES = 600
RATE_COMMITS = 10_000
#: The project's aim of size.
SIZE_SERIES = 300
SIZE_COMMITS = 10_000

FLOPWATCH, ASV, OTAVA = "flopwatch", "asv", "Otava"
#: What Otava's interpreter runs: a series a line; its points, at once or with the last value added to the others'.
_OTAVA = """
import json, sys
from otava.analysis import compute_change_points
for line in sys.stdin:
    series, weak, new = json.loads(line), None, None
    if sys.argv[1:] == ["added"]:
        (_, weak), new = compute_change_points(series[:-1]), 1
    points, _ = compute_change_points(series, new_data=new, old_weak_cp=weak)
    print(json.dumps([int(point.index) for point in points]))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """How one detector did in one scenario.

    Attributes:
        detector: its name.
        scenario: likewise.
        planted: steps.
        reported: points.
        matched: points that found a step of their own.
        delay: commits that a series' last step needs until it is found, in the middle; None if half are not within 50.
    """

    detector: str
    scenario: Scenario
    planted: int
    reported: int
    matched: int
    delay: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Quiet:
    """Points in series without a step. `changed` counts series of which Otava's incremental mode says otherwise."""

    detector: str
    weather: str
    series: int
    commits: int
    reported: int
    changed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What the project's aim of size takes of flopwatch.

    Attributes:
        series: how many.
        commits: of each.
        cores: that shared the full computation.
        full_seconds: of everything.
        update_seconds: of everything after one more commit, states read from and written to JSON, on one core.
        state_bytes: of all states.
        peak_bytes: of the process that did the update.
    """

    series: int
    commits: int
    cores: int
    full_seconds: float
    update_seconds: float
    state_bytes: int
    peak_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """All of it. `rate_points` were found in `rate_commits` values of stationary series."""

    versions: dict[str, str]
    scores: tuple[Score, ...]
    quiet: tuple[Quiet, ...]
    rate_commits: int
    rate_points: int
    cost: Cost


def main() -> None:
    """Find out, and write it down."""
    parser = argparse.ArgumentParser(prog="python -m evidence.changepoints", description=__doc__)
    parser.add_argument("--otava", type=Path, help="an interpreter with apache-otava; without it, Otava is left out")
    parser.add_argument("--docs", action="store_true", help="only write the page again")
    options = parser.parse_args()
    if not options.docs:
        FINDINGS.write_bytes(to_json(make(options.otava), indent=1) + b"\n")
    parts = blocks(from_json(FINDINGS.read_bytes(), Findings))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


def make(otava: Path | None) -> Findings:
    """Try every detector on everything."""
    detectors = (FLOPWATCH, ASV, OTAVA) if otava else (FLOPWATCH, ASV)
    versions = {"numpy": version("numpy"), "asv": version("asv")}
    if otava:
        asks = "import importlib.metadata as m; print(m.version('apache-otava'))"
        versions["apache-otava"] = subprocess.run(  # noqa: S603 - the interpreter that the caller named
            [otava, "-c", asks], check=True, capture_output=True, text=True
        ).stdout.strip()
    with processes() as pool, tempfile.TemporaryDirectory() as folder:
        scored = pool.map(
            partial(score, otava=otava), *zip(*((d, s) for s in SCENARIOS for d in detectors), strict=True)
        )
        watched = pool.map(
            partial(quiet, otava=otava), *zip(*((d, w) for w in WEATHERS for d in detectors), strict=True)
        )
        points = sum(pool.map(false_points, range(RATE_SERIES)))
        begun = time.monotonic()
        sizes = list(pool.map(partial(sized, Path(folder)), range(SIZE_SERIES), chunksize=10))
        full_seconds = time.monotonic() - begun
        return Findings(
            versions=versions,
            scores=tuple(scored),
            quiet=tuple(watched),
            rate_commits=RATE_SERIES * RATE_COMMITS,
            rate_points=points,
            cost=pool.submit(update, Path(folder), sizes, full_seconds).result(),
        )


def detect(detector: str, series: Sequence[FloatArray], otava: Path | None) -> list[list[int]]:
    """Return the points that a detector finds in each series of logarithms."""
    if detector == FLOPWATCH:
        return [[point.index for point in change_points(values).points] for values in series]
    if detector == ASV:
        return [[int(step[0]) for step in detect_steps(np.exp(values).tolist())[1:]] for values in series]
    return _ask_otava(series, otava)


def _ask_otava(series: Sequence[FloatArray], otava: Path | None, *mode: str) -> list[list[int]]:
    if otava is None:
        raise ValueError("Otava needs the interpreter in which it is installed")
    lines = "".join(f"{json.dumps(np.exp(values).tolist())}\n" for values in series)
    found = subprocess.run(  # noqa: S603 - the interpreter that the caller named
        [otava, "-c", _OTAVA, *mode], check=True, input=lines, capture_output=True, text=True
    )
    return [json.loads(line) for line in found.stdout.splitlines()]


def score(detector: str, scenario: Scenario, otava: Path | None) -> Score:
    """Try one detector in one scenario; all of them get the same series."""
    rng = np.random.default_rng([SEED, SCENARIOS.index(scenario)])
    drawn = [labelled(scenario, rng) for _ in range(SERIES)]
    asked = [values[: places[-1] + after] for after in ASKED_AFTER for values, places in drawn]
    found = detect(detector, [values for values, _ in drawn] + asked, otava)
    delays = [math.inf] * SERIES
    # The latest first, so that the earliest at which the step is seen remains.
    for round_, after in reversed(list(enumerate(ASKED_AFTER, start=1))):
        for number, (_, places) in enumerate(drawn):
            if matches(found[round_ * SERIES + number], places[-1:]):
                delays[number] = after
    del found[SERIES:]
    delay = statistics.median_low(delays)
    return Score(
        detector=detector,
        scenario=scenario,
        planted=sum(len(places) for _, places in drawn),
        reported=sum(map(len, found)),
        matched=sum(matches(points, places) for points, (_, places) in zip(found, drawn, strict=True)),
        delay=delay if math.isfinite(delay) else None,
    )


def quiet(detector: str, weather: str, otava: Path | None) -> Quiet:
    """Try one detector on series without a step."""
    rng = np.random.default_rng([SEED, len(SCENARIOS) + WEATHERS.index(weather)])
    series = [0.005 * noise(weather, rng, QUIET_COMMITS) for _ in range(QUIET_SERIES)]
    found = detect(detector, series, otava)
    added = _ask_otava(series, otava, "added") if detector == OTAVA else found
    return Quiet(
        detector=detector,
        weather=weather,
        series=QUIET_SERIES,
        commits=QUIET_SERIES * QUIET_COMMITS,
        reported=sum(map(len, found)),
        changed=sum(one != other for one, other in zip(found, added, strict=True)),
    )


def false_points(seed: int) -> int:
    """Count flopwatch's points in a long series that has none; by ranks, every noise without memory is the same."""
    values = np.random.default_rng([SEED, 1000, seed]).random(RATE_COMMITS)
    return len(change_points(values).points)


def sized(folder: Path, seed: int) -> bytes:
    """Look at a series of the project's aim of size, but for its last commit; return its state."""
    rng = np.random.default_rng([SEED, 2000, seed])
    levels = np.repeat(rng.normal(0, 0.02, size=SIZE_COMMITS // 500), 500)
    values = levels + 0.005 * rng.normal(size=SIZE_COMMITS)
    np.save(folder / f"{seed}.npy", values)
    return to_json(change_points(values[:-1]))


def update(folder: Path, states: list[bytes], full_seconds: float) -> Cost:
    """Go on with every series after its last commit."""
    begun = time.monotonic()
    written = []
    for seed, state in enumerate(states):
        values = np.load(folder / f"{seed}.npy")
        written.append(to_json(change_points(values, from_json(state, Changes))))
    return Cost(
        series=len(states),
        commits=SIZE_COMMITS,
        cores=len(os.sched_getaffinity(0)),
        full_seconds=full_seconds,
        update_seconds=time.monotonic() - begun,
        state_bytes=sum(map(len, written)),
        peak_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def blocks(findings: Findings) -> dict[str, str]:
    """Return the generated parts of the page by name."""
    steps = [each for each in SCENARIOS if (each.weather, each.layout) == (NORMAL, LONG)]
    others = [each for each in SCENARIOS if each not in steps]
    return {
        "steps": _scores(findings, steps),
        "weathers": _scores(findings, others),
        "quiet": _quiet(findings),
        "rate": _rate(findings),
        "cost": _cost(findings.cost),
    }


def _scores(findings: Findings, scenarios: Sequence[Scenario]) -> str:
    detectors = list(dict.fromkeys(each.detector for each in findings.scores))
    heads = ["noise", "step"]
    heads += [f"{what}: {detector}" for what in ("found", "right", "until found") for detector in detectors]
    rows = []
    for scenario in scenarios:
        scores = [each for each in findings.scores if each.scenario == scenario]
        weather = "" if scenario.weather == NORMAL else f" {scenario.weather}"
        rows.append(
            (
                f"{percent(scenario.noise)}{weather}",
                f"{percent(scenario.step)}{' short' if scenario.layout == SHORT else ''}",
                *(f"{100 * each.matched / each.planted:.0f} %" for each in scores),
                *(f"{100 * each.matched / each.reported:.0f} %" if each.reported else "" for each in scores),
                *(f"{each.delay:g}" if each.delay else "" for each in scores),
            )
        )
    return table(heads, rows, left=2)


def _quiet(findings: Findings) -> str:
    detectors = list(dict.fromkeys(each.detector for each in findings.quiet))
    rows = []
    for weather in WEATHERS:
        counts = [each for each in findings.quiet if each.weather == weather]
        rows.append((weather, *(f"{1e5 * each.reported / each.commits:.3g}" for each in counts)))
    text = table(["noise", *detectors], rows, left=1)
    otava = [each for each in findings.quiet if each.detector == OTAVA]
    if otava:
        text += (
            f"\n\nOtava's incremental mode, given the last of {QUIET_COMMITS} values, had other points than its full"
            f" computation in\n{sum(each.changed for each in otava)} of these"
            f" {sum(each.series for each in otava)} series."
        )
    versions = ", ".join(f"{name} {number}" for name, number in findings.versions.items())
    return f"{text}\n\nWith {versions}."


def _rate(findings: Findings) -> str:
    most = upper_bound(findings.rate_points, findings.rate_commits)
    return (
        f"In {findings.rate_commits:,} commits of stationary series flopwatch found {findings.rate_points} points:"
        f" **{1e5 * findings.rate_points / findings.rate_commits:.2g} in 100,000 commits**\n"
        f"of a series (at most {1e5 * most:.2g}, 95 %). With {SIZE_SERIES} series that is one in"
        f" {findings.rate_commits / max(findings.rate_points, 1) / SIZE_SERIES:.0f} commits."
    )


def _cost(cost: Cost) -> str:
    return (
        f"{cost.series} series of {cost.commits:,} commits, {cost.cores} cores: {cost.full_seconds:.0f} s for"
        f" everything; after one more commit {cost.update_seconds:.2f} s on one core,\nstates"
        f" ({cost.state_bytes / 1e6:.1f} MB of JSON) read and written, in {cost.peak_bytes / 2**20:.0f} MiB of memory."
    )


if __name__ == "__main__":
    main()
