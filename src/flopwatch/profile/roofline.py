"""Gather the points of a roofline: cases as they were measured, and what those that were not could reach at best.

A measured point is the last time that was recorded of a case on the device, or what a file says. An estimated one is
the least time of the case's launches (`flopwatch.static.traffic.bound_of`), what their dots and the sectors that they
touch take at the device's peaks; or of the work that its suite declares, where that is longer, because PyTorch does a
part of it, or where a launch does not tell, as those of kernels in Gluon. It is an upper bound of speed, from which
waves that do not fit, latency and all arithmetic but dots keep a kernel.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flopwatch.checkout import checkout
from flopwatch.compare.result import Comparison
from flopwatch.config import load_config
from flopwatch.errors import UndecidedError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.result import GateResult
from flopwatch.gate.sides import Arm, Sides
from flopwatch.history import read_history
from flopwatch.measure.protocol import Mode
from flopwatch.model import SCHEMA_VERSION, Case, from_json
from flopwatch.profile.request import choose
from flopwatch.profile.result import Profile
from flopwatch.selection import is_selected
from flopwatch.static.devices import device_called, find_device
from flopwatch.static.recorder import Autotune
from flopwatch.survey.run import SurveyOptions, run_survey

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.measure.protocol import DeclaredCase
    from flopwatch.static.device import Device
    from flopwatch.survey.result import LaunchWork

#: What a file may hold, in the order in which they are tried.
_RECORDS: tuple[type[GateResult | Comparison | Profile], ...] = (GateResult, Comparison, Profile)


@dataclass(frozen=True, kw_only=True, slots=True)
class RooflineOptions:
    """What the user asked for.

    Attributes:
        select: cases whose name has this in it.
        providers: of these cases, who computes them; all where none is named.
        device: key of the GPU; None is the configuration's, or the one that the file is of.
        source: JSON of a gate, a comparison or a profile; None is asv's results, and estimates of the rest.
    """

    select: str = ""
    providers: tuple[str, ...] = ()
    device: str | None = None
    source: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A case with its work and its time, measured or estimated.

    Attributes:
        case: the case.
        flops: floating-point operations of one call, as its suite declares them.
        bytes_moved: bytes that one call must move, likewise.
        seconds: of one call.
        measured: it was; otherwise no call can take less.
    """

    case: Case
    flops: float
    bytes_moved: float
    seconds: float
    measured: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RooflinePoints:
    """The points of one device.

    Attributes:
        device: its key.
        points: by suite and case.
        source: where the measured ones are from; "" where there are none.
        left_out: cases without a point, a line each.
    """

    device: str
    points: tuple[Point, ...]
    source: str = ""
    left_out: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION


def gather(options: RooflineOptions, root: Path, *, observer: Observer | None = None) -> RooflinePoints:
    """Gather the points: from a file, or from what was recorded in the repository and estimates of the rest.

    Raises:
        FlopwatchError: there is no point.
    """
    found = (
        _of_file(options, options.source) if options.source else _of_repository(options, root, observer or Observer())
    )
    if not found.points:
        raise UndecidedError(
            f"no case of {find_device(found.device).name} has a place under its roof",
            why="; ".join(found.left_out) or "none has a time, FLOPs and bytes",
            todo="choose other cases, or another --device",
        )
    return found


def _of_file(options: RooflineOptions, path: Path) -> RooflinePoints:
    record = _read(path)
    gpu = record.gpu or ""
    device = device_called(gpu)
    if device is None:
        raise UndecidedError(
            f"the peaks of the GPU of {path} are not known",
            why=f"it was measured on {gpu!r}" if gpu else "it was made without a GPU",
            todo="without --from, points are estimated for a GPU that need not be there",
        )
    if options.device not in (None, device.key):
        raise UsageError(f"{path} was measured on {device.key}", todo=f"leave out --device {options.device}")
    if not isinstance(record, Profile) and record.unfit:
        raise UndecidedError(f"the times of {path} are worth nothing", why=record.unfit, todo="measure again")
    points = [point for point in _points(record) if _wanted(point.case, options)]
    return RooflinePoints(
        device=device.key,
        points=tuple(point for point in points if _has_place(point)),
        source=str(path),
        left_out=tuple(f"{point.case.id} has no time, FLOPs or bytes" for point in points if not _has_place(point)),
    )


def _read(path: Path) -> GateResult | Comparison | Profile:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read", why=str(error.strerror or error)) from None
    causes = []
    for kind in _RECORDS:
        try:
            return from_json(data, kind)
        except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
            causes.append(f"no {kind.__name__}: {error}")
    raise UsageError(
        f"{path} is no result that has times",
        why="; ".join(causes),
        todo="name what flopwatch gate, compare or profile wrote with --json",
    )


def _points(record: GateResult | Comparison | Profile) -> Iterator[Point]:
    match record:
        case GateResult():
            for verdict in record.verdicts:
                seconds = verdict.head.seconds or verdict.base.seconds
                yield _measured(verdict.case, verdict.flops, verdict.bytes_moved, seconds)
        case Comparison():
            for compared in record.cases:
                # Of two commits both sides are one case: head is what is there now.
                for contender in {side.case: side for side in (compared.base, compared.head)}.values():
                    yield _measured(contender.case, compared.flops, compared.bytes_moved, contender.seconds)
        case Profile():
            for profiled in record.cases:
                seconds = profiled.call_seconds or profiled.kernel_seconds
                yield _measured(profiled.case, profiled.flops, profiled.bytes_moved, seconds)


def _measured(case: Case, flops: float | None, bytes_moved: float | None, seconds: float | None) -> Point:
    return Point(case=case, flops=flops or 0.0, bytes_moved=bytes_moved or 0.0, seconds=seconds or 0.0, measured=True)


def _has_place(point: Point) -> bool:
    return point.flops >= 1 and point.bytes_moved >= 1 and point.seconds > 0


def _wanted(case: Case, options: RooflineOptions) -> bool:
    of_provider = not options.providers or case.provider in options.providers
    return is_selected(options.select, case.id) and of_provider


def _of_repository(options: RooflineOptions, root: Path, observer: Observer) -> RooflinePoints:
    config = load_config(root)
    device = find_device(options.device or config.device)
    observer.step("reading the suites")
    with (
        checkout(None, config, root=root) as tree,
        Sides(config, device=device.key, base_tree=tree, head_tree=tree) as sides,
        sides.worker(Mode.STATIC, Arm.HEAD) as worker,
    ):
        chosen = choose(worker.hello.declared, options.select, options.providers)
    recorded = recorded_seconds(root, device.name)
    points = [
        _measured(entry.case, entry.flops, entry.bytes_moved, recorded[entry.case.id])
        for entry in chosen
        if entry.case.id in recorded
    ]
    unmeasured = [entry for entry in chosen if entry.case.id not in recorded]
    estimated, left_out = _estimate(unmeasured, options, device, root, observer)
    points = [point for point in (*points, *estimated) if _has_place(point)]
    drawn = {point.case for point in points}
    left_out += [
        f"{entry.case.id} declares no FLOPs or bytes"
        for entry in chosen
        if entry.case not in drawn and (entry.flops < 1 or entry.bytes_moved < 1)
    ]
    order = {entry.case: place for place, entry in enumerate(chosen)}
    return RooflinePoints(
        device=device.key,
        points=tuple(sorted(points, key=lambda point: order[point.case])),
        source="asv's results" if any(point.measured for point in points) else "",
        left_out=tuple(left_out),
    )


def recorded_seconds(root: Path, gpu: str) -> dict[str, float]:
    """Return the last recorded time of each case on this GPU; none where asv or its results are not there.

    Args:
        root: the repository.
        gpu: what the driver calls the GPU.
    """
    newest: dict[str, tuple[str, float]] = {}
    with contextlib.suppress(UsageError, UndecidedError):
        for series in read_history(root, "").series:
            values = [(point.date, point.value) for point in series.points if point.value]
            if series.labels.get("gpu") == gpu and values:
                newest[series.case] = max(newest.get(series.case, values[-1]), values[-1], key=lambda point: point[0])
    return {case: seconds for case, (_, seconds) in newest.items()}


def _estimate(
    entries: Sequence[DeclaredCase], options: RooflineOptions, device: Device, root: Path, observer: Observer
) -> tuple[list[Point], list[str]]:
    """Estimate cases, in the first configuration of autotuned kernels that fits; return also why some have no point."""
    own = [entry for entry in entries if entry.own]
    left_out = [f"{entry.case.id} was not measured, and is no kernel of ours" for entry in entries if not entry.own]
    if not own:
        return [], left_out
    is_named = all(is_selected(options.select, entry.case.id) for entry in own)
    survey = run_survey(
        SurveyOptions(select=options.select if is_named else "", devices=(device.key,), autotune=Autotune.FIRST),
        root,
        observer=observer,
    )
    causes = {gap.case: gap.cause for gap in survey.gaps}
    points = []
    for entry in own:
        launches = [launch for launch in survey.launches if launch.case == entry.case]
        if entry.case in causes or not launches:
            cause = causes.get(entry.case, "it launches no kernel of Triton's")
            left_out.append(f"{entry.case.id} cannot be estimated: {cause}")
        else:
            declared = device.least_seconds(entry.flops, entry.bytes_moved, entry.case.values)
            points.append(
                Point(
                    case=entry.case,
                    flops=entry.flops,
                    bytes_moved=entry.bytes_moved,
                    seconds=max(least_seconds(launches) or 0.0, declared),
                    measured=False,
                )
            )
    return points, left_out


def least_seconds(launches: Sequence[LaunchWork]) -> float | None:
    """Return the least time of launches one after the other; None where one of them does not tell, or there is none."""
    known = [launch.least_seconds for launch in launches if launch.least_seconds is not None]
    return sum(known) if known and len(known) == len(launches) else None
