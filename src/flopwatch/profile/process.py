"""The process that profiles, seen from outside: its answer, what it records, and the counters of a call of its."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import FlopwatchError, MachineError, UndecidedError
from flopwatch.measure.protocol import Mode
from flopwatch.model import from_json, to_json
from flopwatch.profile.counters import DRAM_BYTES, KERNEL_TIME, L2_SECTORS, ask_profiler, count, known_counters
from flopwatch.profile.hatchet import read_hatchet
from flopwatch.profile.request import TREE, Answer, Ask
from flopwatch.profile.result import Counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.measure.process import Code
    from flopwatch.profile.hatchet import Frame
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
#: Of what a failed program said, in a line: its end has the error.
_LINE = 400


def recorded(ask: Ask, code: Code) -> tuple[Answer, Frame]:
    """Let a fresh process profile; return its answer, and Proton's tree, from which the cases have their kernels' time.

    Raises:
        MachineError: there is no GPU for torch, or no Proton.
        UndecidedError: no case matches, or the process died.
        UsageError: what Proton wrote cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        program, answered = program_of(ask, code, Path(folder))
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
    tree = read_hatchet(Path(ask.folder) / f"{TREE}.hatchet")
    return replace(answer, cases=tuple(timed(case, tree) for case in answer.cases)), tree


def timed(case: ProfiledCase, root: Frame) -> ProfiledCase:
    """Return the case with the time of its kernels, which its scope in Proton's tree has.

    One that failed has none: of how many of its calls the tree is, nobody knows.
    """
    scope = next((frame for frame in root.children if frame.name == case.case.id), None)
    if scope is None or case.failure is not None or not case.calls or not scope.seconds:
        return case
    return replace(case, kernel_seconds=scope.seconds / case.calls)


def program_of(ask: Ask, code: Code, folder: Path) -> tuple[list[str], Path]:
    """Return the command line of the process that profiles, and the file of its answer."""
    asked, answered = folder / "ask.json", folder / "answer.json"
    asked.write_bytes(to_json(ask))
    return [code.interpreter, "-P", "-m", "flopwatch.profile.recorder", str(asked), str(answered)], answered


def counted(
    cases: tuple[ProfiledCase, ...], profiler: str, ask: Ask, code: Code, notes: list[str]
) -> tuple[ProfiledCase, ...]:
    """Return the cases with their counters; note what could not be read."""
    try:
        counters, missing = known_counters(ask_profiler(profiler, "--query-metrics"), COUNTERS)
    except (OSError, subprocess.TimeoutExpired) as error:
        notes.append(f"no counters: {_why(error)}")
        return cases
    if missing:
        notes.append(f"this GPU has no {', '.join(missing)}")
    found = []
    for case in cases:
        try:
            found.append(case if case.failure else _count(case, profiler, counters, ask, code))
        except (MachineError, OSError, subprocess.TimeoutExpired) as error:
            found.append(case)
            notes.append(f"no counters of {case.case.id}: {_why(error)}")
    return tuple(found)


def _count(case: ProfiledCase, profiler: str, counters: Sequence[str], ask: Ask, code: Code) -> ProfiledCase:
    with tempfile.TemporaryDirectory() as folder:
        program, _ = program_of(replace(ask, once=case.case, pins=case.choices), code, Path(folder))
        launches = count(
            profiler, counters, program, options=("--profile-from-start", "off"), environment=code.environment(Mode.GPU)
        )
    return replace(case, counters=tuple(Counted(kernel=one.kernel, counters=one.values) for one in launches))


def in_a_line(error: FlopwatchError) -> str:
    r"""Write an error that does not cost the rest in a line: what, why and what to do.

    >>> in_a_line(MachineError("no counters", why="==ERROR==\n  no permission", todo="run as root"))
    'no counters (==ERROR== no permission); run as root'
    """
    why = " ".join(error.why.split())
    if len(why) > _LINE:
        why = f"... {why[-_LINE:]}"
    return f"{error.what}{f' ({why})' if why else ''}{f'; {error.todo}' if error.todo else ''}"


def _why(error: MachineError | OSError | subprocess.TimeoutExpired) -> str:
    match error:
        case MachineError():
            return in_a_line(error)
        case subprocess.TimeoutExpired():
            return f"Nsight Compute took more than {error.timeout:.0f} s"
    return str(error)
