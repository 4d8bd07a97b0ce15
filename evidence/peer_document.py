"""The page of the figures against the field: its generated parts, between markers as in docs/evidence.md, and plots.

Everything is computed from what is kept: the newest measurement of each point beside peers, and, while there is none,
the newest recording of the bundled suites, which has our kernels alone.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evidence import first_calls, launch_costs, varied_lengths
from evidence.page import filled, table
from evidence.peer_goals import ATTENTION_GROUPS, FP8, PRODUCTS, Group, Point
from evidence.peer_plots import DEVICE, measured_plots, recorded_plots
from evidence.peer_recorded import Recorded, Recording, climb, recorded
from evidence.peer_records import Beside, Peers, Sitting, factor, kept, unusable, within
from evidence.peer_shapes import peers_at
from evidence.samples import FOLDER
from flopwatch.model import eps_of
from flopwatch.report.escape import markdown_code
from flopwatch.static.devices import find_device
from flopwatch.units import format_seconds, short_commit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from flopwatch.compare.result import Speed

PAGE = FOLDER.parent / "docs" / "performance.md"
OTHER_DEVICE = "h100"
MEASURE = "python -m evidence.peers measure evidence/h200/peers-DATE.json --seconds 500"
#: Of the normal distribution; of Student's with twice `MANY` degrees it is 2.18.
NORMAL_95 = 1.96
#: Points from which their mean has an error.
MANY = 6
NOT_YET = f"Not measured yet: `{MEASURE}` does so on a GPU."


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """How a group stands.

    Attributes:
        group: the points and the goal.
        held: of each point that was measured, the comparison with the group's peer, or with the fastest.
        failed: points at which our kernel fails or is wrong.
        untried: peers that were not tried at one point or more; who was tried and failed has a reason, and is no peer.
    """

    group: Group
    held: tuple[Beside, ...]
    failed: tuple[Point, ...]
    untried: tuple[str, ...]

    @property
    def mean(self) -> float | None:
        """The geometric mean of our speeds in units of the peer's."""
        logs = [_speed(each).estimate for each in self.held]
        return math.exp(statistics.fmean(logs)) if logs else None

    @property
    def error(self) -> float | None:
        """Half of the 95 % interval about its logarithm; None where a point was measured in one process alone.

        Points err independently, and their spreads together have two degrees for each of them: as good as normal.
        """
        variances = [each.variance for each in self.held]
        known = [variance for variance in variances if variance is not None]
        if len(known) < max(len(variances), MANY):
            return None
        return NORMAL_95 * math.sqrt(sum(known)) / len(known)

    @property
    def worst(self) -> Beside | None:
        """The point at which we are the slowest."""
        return min(self.held, key=lambda each: _speed(each).estimate, default=None)

    @property
    def errors(self) -> tuple[float, float] | None:
        """The largest differences from float64 in eps at these points, ours and those peers'; None where none is known.

        As of `flopwatch.model.Numbers`: of the results' dtype, in units of the reference's largest magnitude.
        """
        pairs = [(each.case.head.numbers, each.case.base.numbers) for each in self.held]
        known = [(eps_of(own), eps_of(theirs)) for own, theirs in pairs if own is not None and theirs is not None]
        return (max(own for own, _ in known), max(theirs for _, theirs in known)) if known else None

    @property
    def verdict(self) -> str:
        """Whether the goal is reached."""
        if not self.group.goal:
            return ""
        if self.failed:
            return f"**not reached**: {len(self.failed)} fail"
        if self.mean is None or self.worst is None:
            return "not measured yet"
        if self.untried or len(self.held) < len(self.group.points):
            missing = f"; not everywhere beside {', '.join(self.untried)}" if self.untried else ""
            return f"open: {len(self.held)} of {len(self.group.points)} points measured{missing}"
        floor = math.exp(_speed(self.worst).estimate)
        reached = self.mean >= (self.group.mean or 0.0) and floor >= (self.group.floor or 0.0)
        return "reached" if reached else "**not reached**"


def standing(peers: Peers, group: Group) -> Standing:
    """Find what was measured of a group."""
    by_point: dict[Point, list[Beside]] = {}
    for each in peers.beside:
        by_point.setdefault(each.point, []).append(each)
    held, failed = [], []
    untried: dict[str, None] = {}
    for point in group.points:
        found = by_point.get(point, [])
        wanted = (group.peer,) if group.peer else peers_at(*point[:2])
        untried |= dict.fromkeys(peer for peer in wanted if peer not in {each.peer for each in found})
        if any(unusable(each.case.head, each.case.ceiling_eps) for each in found):
            failed.append(point)
            continue
        timed = [each for each in found if each.case.speed is not None and group.peer in ("", each.peer)]
        if timed:
            held.append(min(timed, key=lambda each: _speed(each).estimate))
    return Standing(group=group, held=tuple(held), failed=tuple(failed), untried=tuple(untried))


def write(peers: Peers | None = None, page: Path = PAGE, *, with_page: bool = True) -> None:
    """Write the page again, and its plots beside it."""
    peers = kept(FOLDER / DEVICE) if peers is None else peers
    own, others = recorded(), kept(FOLDER / OTHER_DEVICE)
    if with_page:
        parts = {**blocks(peers, own), "other": elsewhere(others)}
        page.write_text(filled(page.read_text(encoding="utf-8"), parts), encoding="utf-8")
    images = page.parent / "images"
    images.mkdir(exist_ok=True)
    for name, text in plots(peers, own, others).items():
        (images / name).write_text(text, encoding="utf-8")


def plots(peers: Peers, own: Recorded | None, others: Peers) -> dict[str, str]:
    """Return all plots by file name."""
    alone = {} if own is None else recorded_plots(own)
    return {**measured_plots(peers), **measured_plots(others, OTHER_DEVICE), **alone}


def blocks(peers: Peers, own: Recorded | None) -> dict[str, str]:
    """Return the generated parts by name."""
    return {
        "origin": origin(peers),
        "matmul": section(peers, PRODUCTS),
        "fp8": section(peers, FP8),
        "attention": section(peers, ATTENTION_GROUPS),
        "launch": launch(peers),
        "kept": launch_costs.told(launch_costs.kept(FOLDER / device) for device in (DEVICE, OTHER_DEVICE)),
        "first": first_calls.told(first_calls.kept(FOLDER / device) for device in (DEVICE, OTHER_DEVICE)),
        "varied": varied_lengths.told(varied_lengths.kept(FOLDER / device) for device in (DEVICE, OTHER_DEVICE)),
        "climb": "" if own is None else commits(own.history),
        "lengths": "" if own is None else lengths(own),
        "recorded": "No recording of the bundled suites is kept." if own is None else alone(own),
    }


def origin(peers: Peers) -> str:
    """Say on what, when and by which commands it was measured, of runs of which something still counts."""
    told = {each.sitting for each in peers.beside}
    if not told:
        return f"Nothing has been measured beside a peer yet. On a GPU, as often as it takes:\n\n{_console([MEASURE])}"
    by_origin: dict[tuple[object, ...], list[int]] = {}
    for place in sorted(told):
        sitting = peers.sittings[place]
        by_origin.setdefault((sitting.date, *sitting.origin), []).append(place)
    return "\n\n".join(_origin(peers, places) for places in by_origin.values())


def _origin(peers: Peers, places: Sequence[int]) -> str:
    """Say it of the runs on one day, of the same kernels."""
    sittings: list[Sitting] = [peers.sittings[place] for place in places]
    machine, gpu = sittings[0].machine, sittings[0].machine.gpu
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    named = f"{gpu.name}, driver {gpu.driver}, power limit {gpu.power_limit_w:g} W" if gpu else "no GPU"
    number = sum(each.sitting in places for each in peers.beside)
    return (
        f"One {named}; {versions}; {sittings[0].date}; kernels `{sittings[0].kernels}`. {number} comparisons:\n\n"
        + _console(dict.fromkeys(each.command for each in sittings))
    )


def _console(commands: Sequence[str] | dict[str, None]) -> str:
    lines = "\n".join(f"$ {command}" for command in commands)
    return f"```console\n{lines}\n```"


def section(peers: Peers, groups: Sequence[Group], device: str = DEVICE) -> str:
    """Tell how groups stand, then every point, with its plots."""
    standings = [standing(peers, group) for group in groups]
    rows = [_row(each) for each in standings]
    heads = (
        "class",
        "points",
        "geometric mean",
        "worst point",
        "goal",
        "verdict",
        "largest error, and the peer's, eps",
    )
    parts = [table(heads, rows, left=1)]
    points = list(dict.fromkeys(point for group in groups for point in group.points))
    known = set(points)
    found = [each for each in peers.beside if each.point in known]
    if not found:
        return "\n\n".join([*parts, NOT_YET])
    of_these = Peers(sittings=peers.sittings, beside=tuple(found))
    images = measured_plots(of_these, device)
    parts += ["\n".join(f"![]({'images/' + name})" for name in images)] if images else []
    parts.append(_points(points, found))
    parts += ["\n".join(notes)] if (notes := list(_notes(found))) else []
    return "\n\n".join(parts)


def elsewhere(peers: Peers) -> str:
    """Tell what was measured on another GPU, if anything: the groups of which there is something."""
    if not peers.beside:
        return ""
    held = ([group for group in groups if standing(peers, group).held] for groups in (PRODUCTS, FP8, ATTENTION_GROUPS))
    return "\n\n".join([origin(peers), *(section(peers, groups, OTHER_DEVICE) for groups in held if groups)])


def _row(each: Standing) -> tuple[str, ...]:
    group, worst = each.group, each.worst
    return (
        group.name,
        f"{len(each.held)} of {len(group.points)}",
        "" if each.mean is None else f"**{within(math.log(each.mean), each.error)}**",
        "" if worst is None else f"{factor(worst)} at {' '.join(worst.point[1:])}",
        group.goal,
        each.verdict,
        "" if each.errors is None else "{:.2f}, {:.2f}".format(*each.errors),
    )


def _points(points: Sequence[Point], found: Sequence[Beside]) -> str:
    """Tell every point that was tried: our time, everybody's rate, and our speed in units of the fastest peer's."""
    peers = list(dict.fromkeys(each.peer for each in found))
    by_point = {point: {each.peer: each for each in found if each.point == point} for point in points}
    rows = []
    for point, beside in by_point.items():
        if not beside:
            continue
        timed = [each for each in beside.values() if each.case.speed is not None]
        best = min(timed, key=lambda each: _speed(each).estimate, default=None)
        own = best.case.head.seconds if best is not None else None
        rows.append(
            (
                " ".join(point[1:]),
                "" if own is None else format_seconds(own),
                "" if best is None else _tflops(best, best.case.head.seconds),
                *(_theirs(beside.get(peer)) for peer in peers),
                "" if best is None else best.peer,
                "" if best is None else factor(best),
            )
        )
    heads = ("point", "a call", "flopwatch, TFLOPS", *peers, "fastest peer", "flopwatch's speed in units of it")
    return table(heads, rows, left=1)


def _theirs(beside: Beside | None) -> str:
    if beside is None:
        return ""
    return "see below" if beside.case.speed is None else _tflops(beside, beside.case.base.seconds)


def _tflops(beside: Beside, seconds: float | None) -> str:
    return "" if seconds is None else f"{beside.case.flops / seconds * 1e-12:.4g}"


def _notes(found: Sequence[Beside]) -> Iterator[str]:
    """Say why something was not timed, once for each reason."""
    reasons: dict[str, list[str]] = {}
    for each in found:
        if each.case.reason:
            reasons.setdefault(each.case.reason, []).append(" ".join(each.point[1:]))
    for reason, points in reasons.items():
        yield f"- {markdown_code(reason)}: {', '.join(dict.fromkeys(points))}"
    if uncaptured := [each for each in found if each.case.speed is not None and each.case.method == "events"]:
        names = ", ".join(each.case.base.case.id for each in uncaptured)
        yield f"- not captured into a graph, so timed as the host enqueues both: {names}"


def launch(peers: Peers) -> str:
    """Tell what a call costs the host."""
    rows = []
    for suite in dict.fromkeys(each.point[0] for each in peers.beside):
        beside = [each for each in peers.beside if each.point[0] == suite]
        costs = {"flopwatch": [each.case.head.launch_seconds for each in beside]}
        for each in beside:
            costs.setdefault(each.peer, []).append(each.case.base.launch_seconds)
        known = {name: [value for value in seconds if value is not None] for name, seconds in costs.items()}
        medians = {name: statistics.median(values) for name, values in known.items() if values}
        cheapest = min((cost for name, cost in medians.items() if name != "flopwatch"), default=math.nan)
        for name, cost in medians.items():
            told = f"{cost / cheapest:.2f}" if name == "flopwatch" else ""
            rows.append((suite, name, format_seconds(cost), format_seconds(max(known[name])), told))
    if not rows:
        return NOT_YET
    heads = ("suite", "whose", "median of the points", "most", "of the cheapest peer's")
    return table(heads, rows, left=2)


def alone(own: Recorded) -> str:
    """Tell what a recording says of our kernels by themselves."""
    device = find_device(DEVICE)
    rows = [
        (
            each.name,
            format_seconds(each.seconds),
            f"{each.tflops:.4g}",
            f"{each.gbps:.0f}",
            f"{100 * device.least_seconds(each.flops, each.bytes_moved, each.values) / each.seconds:.0f} %",
        )
        for each in own.cases
    ]
    commit, machine = short_commit(own.origin.commit), own.origin.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    driver = f"driver {machine.gpu.driver}, " if machine.gpu else ""
    where = (
        f"One {own.gpu}, {own.origin.measured}, commit {commit}, {driver}{versions}:\n"
        f"medians of a process in turns with the anchor's, by `{_record(own.history, commit)}`."
    )
    images = "\n".join(f"![](images/{name})" for name in recorded_plots(own))
    heads = ("case", "a call", "TFLOPS", "GB/s", "of the roofline")
    return "\n\n".join([where, images, table(heads, rows, left=1)])


def _record(history: Sequence[Recording], commit: str) -> str:
    """Return the command that records a commit as these were."""
    return f"flopwatch record {commit} --machine {DEVICE} --anchor {short_commit(history[-1].anchor)}"


def commits(history: Sequence[Recording]) -> str:
    """Tell how fast each recorded commit is in units of the anchor."""
    means = climb(history)
    rows = [
        (f"`{short_commit(each.commit)}`", str(each.date.date()), *(f"{mean[place]:.2f}" for mean in means.values()))
        for place, each in enumerate(history)
    ]
    return f"{table(('commit', 'date', *means), rows, left=2)}\n\n{_console([_record(history, 'COMMIT')])}"


def lengths(own: Recorded) -> str:
    """Tell how the time of attention falls where sequences of a batch are shorter than the longest."""
    whole = {(each.suite, each.values[0]): each for each in own.cases if each.values[-1] == "full"}
    rows = []
    for each in sorted(own.cases, key=lambda each: each.mean_length or 0.0):
        full = whole.get((each.suite, each.values[0]))
        if each.mean_length is not None and full is not None:
            times = (format_seconds(full.seconds), format_seconds(each.seconds))
            kernels = (" and ".join(f"`{kernel}`" for kernel in one.kernels) for one in (full, each))
            part = f"{each.seconds / full.seconds:.2f}"
            rows.append((each.values[0], f"{each.mean_length:.2f}", *times, part, *kernels))
    heads = ("attention", "mean length", "all of full length", "of those lengths", "of that time", "by", "and by")
    return table(heads, rows, left=1)


def _speed(beside: Beside) -> Speed:
    speed = beside.case.speed
    assert speed is not None  # noqa: S101 - only those that were timed are asked
    return speed
