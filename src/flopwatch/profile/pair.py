"""The profile of both sides of a case: each in processes of its own, which take turns."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flopwatch.errors import MachineError, UndecidedError, UsageError
from flopwatch.gate.sides import Arm
from flopwatch.measure.process import Code
from flopwatch.model import Choice, Failure
from flopwatch.profile.comparison import compare_frames
from flopwatch.profile.counters import find_profiler
from flopwatch.profile.hatchet import Frame
from flopwatch.profile.process import counted, in_a_line, recorded
from flopwatch.profile.request import Ask
from flopwatch.profile.result import ProfiledCase, ProfiledPair

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flopwatch.gate.pairs import Observer
    from flopwatch.measure.protocol import DeclaredCase
    from flopwatch.model import Case
    from flopwatch.profile.request import Answer

#: What drifts evenly, such as heat, falls on both sides alike, and two recordings of one side tell how far apart the
#: same code is.
ORDER = (Arm.BASE, Arm.HEAD, Arm.HEAD, Arm.BASE)


@dataclass(kw_only=True)
class _Side:
    """What is known of a side by now."""

    code: Code
    pins: Sequence[Choice]
    runs: list[ProfiledCase] = field(default_factory=list)
    scopes: list[Frame] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return any(run.failure for run in self.runs)

    @property
    def recordings(self) -> Sequence[Frame]:
        """The scope of its calls in each of Proton's trees; none where it failed: of how many calls, nobody knows."""
        return () if self.failed else self.scopes

    @property
    def calls(self) -> int:
        """In all of them."""
        return sum(run.calls for run in self.runs)


def profile_pair(
    declared: DeclaredCase, codes: Mapping[Arm, Code], pins: Mapping[Arm, Sequence[Choice]], *, observer: Observer
) -> ProfiledPair:
    """Profile a case on both sides.

    Args:
        declared: the case, by head's suites, which both sides run.
        codes: what each side imports.
        pins: the configurations that its autotuned kernels run in; without, its first process chooses for both.
        observer: is told how far this is.

    Raises:
        MachineError: there is no GPU for torch, or no Proton.
    """
    sides = {arm: _Side(code=codes[arm], pins=pins[arm]) for arm in Arm}
    notes: list[str] = []
    gpu = ""
    for arm in ORDER:
        if not sides[arm].failed:
            observer.step(f"profiling {arm.value}")
            gpu = _record(declared, sides[arm], notes) or gpu
    base, head = sides.values()
    if not (base.failed or head.failed):
        _count(declared, sides, notes, observer)
    return ProfiledPair(
        gpu=gpu,
        base=averaged(base.runs),
        head=averaged(head.runs),
        frames=tuple(compare_frames(base.recordings, head.recordings, calls=(base.calls, head.calls))),
        spread=spread(base.runs, head.runs),
        notes=tuple(dict.fromkeys(notes)),
    )


def _record(declared: DeclaredCase, side: _Side, notes: list[str]) -> str:
    """Profile a side in one process more; return the GPU's name, "" where nothing came of it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            answer, tree = recorded(_ask(declared, side, folder), side.code)
            run = _run_of(declared.case, answer)
        except (UndecidedError, UsageError) as error:
            failure = Failure(kind="ProfileFailed", message=in_a_line(error))
            side.runs.append(
                ProfiledCase(
                    case=declared.case, flops=declared.flops, bytes_moved=declared.bytes_moved, failure=failure
                )
            )
            return ""
    side.runs.append(run)
    side.scopes += [frame for frame in tree.children if frame.name == run.case.id]
    notes += answer.notes
    return answer.gpu


def _run_of(case: Case, answer: Answer) -> ProfiledCase:
    """Return what became of the case.

    Raises:
        UndecidedError: nothing, since head's suites do not have it with this side's code.
    """
    found = next((run for run in answer.cases if run.case == case), None)
    if found is None:
        raise UndecidedError(f"the suites do not declare {case.id} here")
    return found


def _count(declared: DeclaredCase, sides: Mapping[Arm, _Side], notes: list[str], observer: Observer) -> None:
    """Read the counters of one call of each side, where that is possible; what base is refused, head is not asked."""
    try:
        profiler = find_profiler()
    except MachineError as error:
        notes.append(f"no counters: {in_a_line(error)}")
        return
    for arm, side in sides.items():
        observer.step(f"reading counters of {arm.value}")
        (side.runs[0],) = counted((side.runs[0],), profiler, _ask(declared, side), side.code, notes)
        if not side.runs[0].counters:
            return


def _ask(declared: DeclaredCase, side: _Side, folder: str = "") -> Ask:
    """Ask for the case in the configurations that are pinned, or that the side's first process chose."""
    return Ask(
        benchmarks=str(side.code.benchmarks.resolve()),
        device=side.code.device,
        folder=folder,
        select=declared.case.id,
        pins=tuple(side.pins) or (side.runs[0].choices if side.runs else ()),
    )


def averaged(runs: Sequence[ProfiledCase]) -> ProfiledCase:
    """Return what the processes of one side found as one: all calls, and the means of times; or their failure."""
    failed = next((run for run in runs if run.failure), None)
    if failed is not None:
        return failed
    return replace(
        runs[0],
        calls=sum(run.calls for run in runs),
        kernel_seconds=_mean(run.kernel_seconds for run in runs),
        call_seconds=_mean(run.call_seconds for run in runs),
        host_seconds=_mean(run.host_seconds for run in runs),
        wall_seconds=_mean(run.wall_seconds for run in runs),
    )


def _mean(times: Iterable[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return statistics.fmean(known) if known else None


def spread(*sides: Sequence[ProfiledCase]) -> float | None:
    """Return how far apart the times of kernels are between processes of one side, as a share, where it is most."""
    times = [[run.kernel_seconds for run in runs if run.kernel_seconds] for runs in sides]
    return max((max(side) / min(side) - 1 for side in times if len(side) > 1), default=None)
