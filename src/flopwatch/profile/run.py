"""The steps of a profile: the process that records, what it wrote, and the counters."""

from __future__ import annotations

import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.checkout import checkout
from flopwatch.config import load_config
from flopwatch.errors import MachineError, UndecidedError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.nvml import require_gpu
from flopwatch.measure.protocol import Mode
from flopwatch.model import from_json, to_json
from flopwatch.profile.counters import (
    DRAM_BYTES,
    KERNEL_TIME,
    L2_SECTORS,
    ask_profiler,
    count,
    find_profiler,
    known_counters,
)
from flopwatch.profile.hatchet import Frame, read_hatchet
from flopwatch.profile.request import TIMELINE, TREE, Answer, Ask
from flopwatch.profile.result import Counted, Profile
from flopwatch.profile.timeline import read_events, timeline
from flopwatch.static.devices import find_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.process import Code
    from flopwatch.profile.result import ProfiledCase

#: Of the process that records. 66 cases take 3 s each where each is tuned, most of it compiling.
LONGEST_SECONDS = 1800.0
#: What Nsight Compute reads of each launch, besides the operations of the tensor cores.
COUNTERS = (
    KERNEL_TIME,
    *DRAM_BYTES,
    *L2_SECTORS,
    "lts__t_sector_hit_rate.pct",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)
_TAIL = 4000


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
        checkout(None, config, root=root) as tree,
        Sides(config, device=find_device(config.device).key, base_tree=tree, head_tree=tree) as sides,
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
        answer = _record(ask, code)
        root_frame = read_hatchet(out / f"{TREE}.hatchet")
        cases = tuple(timed(case, root_frame) for case in answer.cases)
        notes = [*answer.notes]
        if profiler:
            observer.step("reading counters")
            cases = _counted(cases, profiler, ask, code, notes)
    files = {
        "tree": out / f"{TREE}.hatchet",
        **_timeline(out, notes),
        **{f"memory of {path.stem.removeprefix('memory-')}": path for path in map(Path, answer.snapshots)},
    }
    return Profile(
        gpu=answer.gpu,
        versions=answer.versions or {},
        cases=cases,
        tree=root_frame,
        files={name: str(options.out / path.name) for name, path in files.items()},
        seconds=time.monotonic() - start,
        notes=tuple(notes),
    )


def timed(case: ProfiledCase, root: Frame) -> ProfiledCase:
    """Return the case with the time of its kernels, which its scope in Proton's tree has.

    One that failed has none: of how many of its calls the tree is, nobody knows.
    """
    scope = next((frame for frame in root.children if frame.name == case.case.id), None)
    if scope is None or case.failure is not None or not case.calls or not scope.seconds:
        return case
    return replace(case, kernel_seconds=scope.seconds / case.calls)


def _no_gpu(why: str) -> MachineError:
    return MachineError(
        "flopwatch profile needs a GPU",
        why=f"{why}: Proton records what kernels take, and none runs",
        todo="flopwatch static and flopwatch explain tell what the compiler makes of them, flopwatch profile --roofline"
        " FILE.svg what they could reach; --show FILE.hatchet draws a tree that another machine recorded",
    )


def _record(ask: Ask, code: Code) -> Answer:
    """Let a fresh process profile.

    Raises:
        MachineError: there is no GPU for torch, or no Proton.
        UndecidedError: no case matches, or the process died.
    """
    with tempfile.TemporaryDirectory() as folder:
        program, answered = _program(ask, code, Path(folder))
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter and module
                program,
                env=code.environment(Mode.GPU),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=LONGEST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise UndecidedError(
                f"the profile took more than {LONGEST_SECONDS:.0f} s", todo="select fewer cases"
            ) from None
        if not answered.exists():
            raise UndecidedError(
                "the process that profiles died",
                why=(done.stdout + done.stderr)[-_TAIL:].strip() or f"it ended with {done.returncode}",
            )
        answer = from_json(answered.read_bytes(), Answer)
    if answer.refusal:
        kind = MachineError if answer.unfit else UndecidedError
        raise kind(answer.refusal, why=answer.why, todo=answer.todo)
    return answer


def _program(ask: Ask, code: Code, folder: Path) -> tuple[list[str], Path]:
    """Return the command line of the process that profiles, and the file of its answer."""
    asked, answered = folder / "ask.json", folder / "answer.json"
    asked.write_bytes(to_json(ask))
    return [code.interpreter, "-P", "-m", "flopwatch.profile.recorder", str(asked), str(answered)], answered


def _counted(
    cases: tuple[ProfiledCase, ...], profiler: str, ask: Ask, code: Code, notes: list[str]
) -> tuple[ProfiledCase, ...]:
    """Return the cases with their counters; note what could not be read."""
    try:
        counters, missing = known_counters(ask_profiler(profiler, "--query-metrics"), COUNTERS)
    except subprocess.TimeoutExpired as error:
        notes.append(f"no counters: {error}")
        return cases
    if missing:
        notes.append(f"this GPU has no {', '.join(missing)}")
    counted = []
    for case in cases:
        try:
            counted.append(case if case.failure else _count(case, profiler, counters, ask, code))
        except (MachineError, subprocess.TimeoutExpired) as error:
            counted.append(case)
            notes.append(f"no counters of {case.case.id}: {error}")
    return tuple(counted)


def _count(case: ProfiledCase, profiler: str, counters: Sequence[str], ask: Ask, code: Code) -> ProfiledCase:
    with tempfile.TemporaryDirectory() as folder:
        program, _ = _program(replace(ask, once=case.case, pins=case.choices), code, Path(folder))
        launches = count(
            profiler, counters, program, options=("--profile-from-start", "off"), environment=code.environment(Mode.GPU)
        )
    return replace(case, counters=tuple(Counted(kernel=one.kernel, counters=one.values) for one in launches))


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
