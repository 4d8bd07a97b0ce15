"""The steps of a profile: the process that records, what it wrote, and the counters."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from flopwatch.checkout import checkout
from flopwatch.config import load_config
from flopwatch.errors import MachineError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.nvml import require_gpu
from flopwatch.profile.counters import find_profiler
from flopwatch.profile.process import counted, recorded
from flopwatch.profile.request import TIMELINE, TREE, Ask
from flopwatch.profile.result import Profile
from flopwatch.profile.timeline import read_events, timeline
from flopwatch.static.devices import find_device


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileOptions:
    """What the user asked for.

    Attributes:
        select: cases whose name has this in it.
        out: the folder of the files.
        providers: of these cases, who computes them; all where none is named.
        calls: of each case; None chooses by its time.
        counters: read Nsight Compute's too.
        snapshot: save what torch's allocator does.
    """

    select: str
    out: Path
    providers: tuple[str, ...] = ()
    calls: int | None = None
    counters: bool = False
    snapshot: bool = False


def run_profile(
    options: ProfileOptions, root: Path, *, benchmarks: Path | None = None, observer: Observer | None = None
) -> Profile:
    """Profile cases of the working tree.

    Args:
        options: what to profile.
        root: the repository.
        benchmarks: the folder of the suites; that of the configuration by default.
        observer: is told how far this is.

    Raises:
        FlopwatchError: nothing could be profiled.
    """
    start = time.monotonic()
    observer = observer or Observer()
    config = load_config(root)
    require_gpu(_no_gpu)
    profiler = find_profiler() if options.counters else ""  # now, not after a minute of measuring
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for stale in (out / f"{TREE}.hatchet", out / f"{TIMELINE}.chrome_trace", out / f"{TIMELINE}.json"):
        stale.unlink(missing_ok=True)
    with (
        checkout(None, config, root=root) as folder,
        Sides(config, device=find_device(config.device).key, base_tree=folder, head_tree=folder) as sides,
    ):
        code = sides.code(Arm.HEAD)
        if benchmarks is not None:
            code = replace(code, benchmarks=benchmarks.resolve())
        ask = Ask(
            benchmarks=str(code.benchmarks.resolve()),
            device=code.device,
            folder=str(out),
            select=options.select,
            providers=options.providers,
            calls=options.calls,
            snapshot=options.snapshot,
        )
        observer.step("profiling")
        answer, tree = recorded(ask, code)
        cases, notes = answer.cases, [*answer.notes]
        if profiler:
            observer.step("reading counters")
            cases = counted(cases, profiler, ask, code, notes)
    files = {
        "tree": out / f"{TREE}.hatchet",
        **_timeline(out, notes),
        **{f"memory of {path.stem.removeprefix('memory-')}": path for path in map(Path, answer.snapshots)},
    }
    return Profile(
        gpu=answer.gpu,
        versions=answer.versions or {},
        cases=cases,
        tree=tree,
        files={name: str(options.out / path.name) for name, path in files.items()},
        seconds=time.monotonic() - start,
        notes=tuple(notes),
    )


def _no_gpu(why: str) -> MachineError:
    return MachineError(
        "flopwatch profile needs a GPU",
        why=f"{why}: Proton records what kernels take, and none runs",
        todo="flopwatch static and flopwatch explain tell what the compiler makes of them, flopwatch profile --roofline"
        " FILE.svg what they could reach; --show FILE.hatchet draws a tree that another machine recorded",
    )


def _timeline(out: Path, notes: list[str]) -> dict[str, Path]:
    """Write the timeline that Chrome and Perfetto open in place of Proton's, if there is one; note why it cannot be."""
    recorded, written = out / f"{TIMELINE}.chrome_trace", out / f"{TIMELINE}.json"
    if not recorded.is_file():
        return {}
    try:
        events = read_events(recorded.read_text(encoding="utf-8"), recorded)
        written.write_text(timeline(events), encoding="utf-8")
    except (UsageError, OSError, UnicodeDecodeError) as error:  # the times are worth more than the picture of them
        notes.append(f"no timeline: {error}")
        written.unlink(missing_ok=True)
        return {}
    recorded.unlink()
    return {"timeline": written}
