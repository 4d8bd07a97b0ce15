"""What is asked of the process that profiles, and what it answers: files of JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.errors import UndecidedError
from flopwatch.model import Case, Choice
from flopwatch.profile.result import ProfiledCase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flopwatch.measure.protocol import DeclaredCase

#: Names of the files that Proton writes, without their suffixes.
TREE, TIMELINE = "profile", "timeline"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What is to be profiled.

    Attributes:
        benchmarks: the folder of the suites.
        device: the GPU to compile for where none is there.
        folder: where Proton's files go.
        select: cases whose name has this in it.
        providers: of these cases, who computes them; all where none is named.
        calls: of each case; None is as many as keep the GPU busy for a tenth of a second.
        snapshot: save what torch's allocator does in a few calls.
        pins: the configurations that autotuned kernels run in; what has none is tuned.
        once: call this case alone, a single time, for a profiler that watches; nothing else is done.
    """

    benchmarks: str
    device: str
    folder: str
    select: str = ""
    providers: tuple[str, ...] = ()
    calls: int | None = None
    snapshot: bool = False
    pins: tuple[Choice, ...] = ()
    once: Case | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What was found out, and what could not be in `notes`.

    `refusal` says why there is nothing, with `why` and `todo`, and `unfit` whose fault it is.
    """

    gpu: str = ""
    versions: dict[str, str] | None = None
    cases: tuple[ProfiledCase, ...] = ()
    snapshots: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str = ""
    why: str = ""
    todo: str = ""
    unfit: bool = False


def choose(
    declared: tuple[DeclaredCase, ...],
    select: str,
    providers: tuple[str, ...],
    import_failures: Mapping[str, str] | None = None,
) -> tuple[DeclaredCase, ...]:
    """Choose a case by its name, or several by a part of it; with providers, those of these points that they compute.

    Cases of one point stand together, as they take turns.

    Args:
        declared: by the suites that could be imported.
        select: the name, or the part.
        providers: who computes them; all where none is named.
        import_failures: why other modules of suites, by name, could not be imported: with the code of one side of a
            comparison they may be the ones that have the case.

    Raises:
        UndecidedError: there is none.
    """
    exact = [entry.case for entry in declared if entry.case.id == select]
    named = exact or [entry.case for entry in declared if select.lower() in entry.case.id.lower()]
    points = dict.fromkeys((case.suite, case.values[:-1]) for case in named)
    found = [
        entry
        for point in points
        for entry in declared
        if (entry.case.suite, entry.case.values[:-1]) == point
        and (entry.case.provider in providers if providers else entry.case in named)
    ]
    if not found:
        known = ", ".join(sorted({entry.case.provider for entry in declared})) or "none"
        raise UndecidedError(
            f"no case matches {select!r}" + (f" of {', '.join(providers)}" if named else ""),
            why="; ".join(
                [f"the suites declare {len(declared)} cases; their providers are {known}"]
                + [f"{name} cannot be imported: {error}" for name, error in (import_failures or {}).items()]
            ),
            todo="give a part of a case's name, such as Matmul or bfloat16",
        )
    return tuple(found)
