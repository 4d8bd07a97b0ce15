"""Which elements of their tensors the programs of cases access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.config import load_config
from flopwatch.errors import UndecidedError, UsageError
from flopwatch.explain.opening import opened
from flopwatch.gate.sides import Arm
from flopwatch.gate.static import select_cases
from flopwatch.measure.client import CaseFailed
from flopwatch.model import Case
from flopwatch.static.devices import find_device
from flopwatch.static.traffic.footprint import Footprint

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.gate.pairs import Observer


@dataclass(frozen=True, kw_only=True, slots=True)
class FootprintOptions:
    """What the user asked for.

    Attributes:
        select: cases whose name has this in it.
        device: the GPU to compile for; None is the repository's.
        small: whether cases have their small size.
        programs: to be told apart; where there are none, the first two and the last.
    """

    select: str
    device: str | None = None
    small: bool = False
    programs: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprints:
    """All that was found.

    Attributes:
        launches: the case of each, and what it accesses.
        failures: what could not be compiled, a line each.
    """

    launches: tuple[tuple[Case, Footprint], ...]
    failures: tuple[str, ...] = ()


def run_footprints(options: FootprintOptions, root: Path, *, observer: Observer | None = None) -> Footprints:
    """Compile the selected cases of the working tree, and find out what their launches access.

    Raises:
        UsageError: the device is unknown, or no launch has one of the programs.
        UndecidedError: no case has that name, or nothing of any could be compiled.
        FlopwatchError: the working tree cannot be asked.
    """
    device = find_device(options.device or load_config(root).device)
    launches: list[tuple[Case, Footprint]] = []
    failures: list[str] = []
    with opened(root, base=None, head=None, device=device.key, observer=observer, both=False) as sides:
        worker = sides.workers[Arm.HEAD]
        chosen = (
            entry.small if options.small else entry.case
            for entry in select_cases(worker.hello, options.select)
            if entry.own
        )
        cases = list(dict.fromkeys(chosen))
        for done, case in enumerate(cases):
            if observer is not None:
                observer.cases(done, len(cases))
            try:
                launches += [(case, footprint) for footprint in worker.footprints(case, options.programs)]
            except CaseFailed as error:
                failures.append(f"{case.id}: {error}")
    if not launches:
        raise UndecidedError(
            "there is nothing to draw",
            why="; ".join(failures) or "the selected cases launch no Triton kernel",
            todo="look into the cause, or choose other cases",
        )
    most = max(footprint.programs for _, footprint in launches)
    if options.programs and max(options.programs) >= most:
        raise UsageError(
            f"there is no program {max(options.programs)}",
            why=f"the largest launch has {most:,}, which begin with 0",
            todo="name others in --program",
        )
    return Footprints(launches=tuple(launches), failures=tuple(failures))
