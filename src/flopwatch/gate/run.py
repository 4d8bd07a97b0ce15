"""The steps of a gate, in order; each is a function of what those before it found out."""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from flopwatch import git
from flopwatch.checkout import checkout
from flopwatch.config import load_config
from flopwatch.gate.kernels import case_kernels
from flopwatch.gate.numbers import check_on_gpu, check_small
from flopwatch.gate.pairs import Observer
from flopwatch.gate.result import GateResult
from flopwatch.gate.sides import Sides
from flopwatch.gate.static import StaticFindings, find_static
from flopwatch.gate.times import Times, design_for, measure_times
from flopwatch.measure import fitness
from flopwatch.measure.machine import Machine, read_machine
from flopwatch.measure.nvml import Watch
from flopwatch.model import WORKING_TREE, Choice
from flopwatch.report.wording import several
from flopwatch.static.comparison import compare_facts
from flopwatch.static.devices import find_device
from flopwatch.static.launches import compare_cases
from flopwatch.waivers import Timed, WaiverUse, apply_waivers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flopwatch.config import Config
    from flopwatch.gate.conclusions import WatchedConclusion
    from flopwatch.model import Case

#: Finds out what became of the conclusions that the repository watches, by the two sides, on a GPU.
Conclude: TypeAlias = "Callable[[Sides, str, Observer], tuple[WatchedConclusion, ...]]"


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOptions:
    """What the user asked for; None chooses.

    Attributes:
        base: commit to compare with.
        head: commit on trial.
        select: only cases whose name has this in it.
        device: the GPU to compile for.
        budget_s: seconds that the pairs of a clean run may take, on a GPU.
        pins: the configurations that autotuned kernels must run in, by the case's name, on a GPU.
        today: the day on which waivers are judged.
    """

    base: str | None = None
    head: str | None = None
    select: str = ""
    device: str | None = None
    budget_s: float | None = None
    pins: dict[str, tuple[Choice, ...]] | None = None
    today: dt.date | None = None


def run_gate(
    options: GateOptions,
    root: Path,
    *,
    observer: Observer | None = None,
    toss: Callable[[], bool] | None = None,
    conclude: Conclude | None = None,
) -> GateResult:
    """Compare head with base.

    Args:
        options: what to compare.
        root: the repository.
        observer: is told how far the run is.
        toss: a fair coin for each pair: whether head is slot 1. The operating system's by default.
        conclude: watches conclusions of studies where the repository names some and all cases are selected; None
            watches none.

    Raises:
        FlopwatchError: nothing could be compared.
    """
    start = time.monotonic()
    observer = observer or Observer()
    config = load_config(root)
    device = find_device(options.device or config.device).key
    base = git.resolve(options.base or git.default_base(config.main, options.head, cwd=root), cwd=root)
    head = git.resolve(options.head, cwd=root) if options.head else None
    with contextlib.ExitStack() as stack:
        observer.step(f"checking out {base[:8]}" + (f" and {head[:8]}" if head else ""))
        sides = stack.enter_context(
            Sides(
                config,
                device=device,
                base_tree=stack.enter_context(checkout(base, config, root=root)),
                head_tree=stack.enter_context(checkout(head, config, root=root)),
            )
        )
        observer.step(f"compiling for {device}")
        found = find_static(sides, options.select)
        known = {entry.case.id for entry in found.hello.declared}
        if unknown := [name for name in options.pins or () if name not in known]:
            sides.notes.append(f"pinned to no effect: the suites do not declare {several(unknown)}")
        if found.hello.gpu_uuid is None:
            observer.step("checking numbers through the interpreter")
            everything = len(found.identical) == len(found.declared)
            times = Times(verdicts=check_small(sides, found.declared, both=not everything))
            if options.budget_s is not None or options.pins:
                sides.notes.append("without a GPU no time is measured: a budget or pins change nothing")
            machine = None
        else:
            times, machine = _on_gpu(sides, found, options, observer, toss or (lambda: bool(secrets.randbits(1))))
        conclusions: tuple[WatchedConclusion, ...] = ()
        uuid = None if options.select or times.unfit or times.interrupted else found.hello.gpu_uuid
        if conclude is not None and config.conclusions and uuid is not None:
            conclusions = conclude(sides, uuid, observer)
    today = options.today or dt.datetime.now(tz=dt.UTC).date()
    of_facts = compare_facts(found.base.facts, found.head.facts)
    of_launches = compare_cases(found.base.launched, found.head.launched)
    places: dict[Case, tuple[int, ...]] = {}
    for place, (_, cases) in enumerate(of_launches, len(of_facts)):
        places |= {case: (*places.get(case, ()), place) for case in cases}
    return GateResult(
        base=base,
        head=head or WORKING_TREE,
        gpu=found.hello.gpu,
        device=device,
        versions=found.hello.versions,
        machine=machine,
        facts=found.head.facts,
        base_facts=found.base.facts,
        fact_changes=(*of_facts, *(change for change, _ in of_launches)),
        kernels=case_kernels([entry.case for entry in found.declared], found.base, found.head, places),
        verdicts=times.verdicts,
        same_within_percent=config.same_within_percent,
        uncovered=found.base.uncovered + found.head.uncovered,
        suite=times.suite,
        pairs=times.pairs,
        planned_pairs=times.planned_pairs,
        conclusions=conclusions,
        waivers=_waived(config, times, found, today),
        unfit=times.unfit,
        interrupted=times.interrupted,
        seconds=time.monotonic() - start,
        notes=(*found.notes, *sides.notes, *times.notes),
    )


def _on_gpu(
    sides: Sides, found: StaticFindings, options: GateOptions, observer: Observer, toss: Callable[[], bool]
) -> tuple[Times, Machine]:
    assert found.hello.gpu_uuid is not None  # noqa: S101 - asked by the caller
    given = options.pins or {}
    pins = {entry.case: given.get(entry.case.id, ()) for entry in found.declared} if given else {}
    running = [entry.case for entry in found.declared if entry.case not in found.identical]
    design, promise = design_for(sides, running, options.budget_s, identical=len(found.identical))
    with Watch(found.hello.gpu_uuid) as watch:
        machine = read_machine(watch.gpu(), found.hello.versions)
        if running:
            fitness.require(fitness.before(watch.gpu(), watch.snapshot()))
        if promise:
            observer.step(promise)
        observer.step("checking numbers on the GPU")
        verdicts = check_on_gpu(sides, found.declared, found.identical, pins, untuned=found.untuned)
        watch.snapshot()  # a GPU that was lost meanwhile answers with an error: none of these failures is head's
        return measure_times(sides, verdicts, watch=watch, observer=observer, toss=toss, design=design), machine


def _waived(config: Config, times: Times, found: StaticFindings, today: dt.date) -> tuple[WaiverUse, ...]:
    """Hold the verdicts on time against the waivers; without a GPU, or on an unfit one, there are no verdicts."""
    timed = [
        Timed(
            case_id=verdict.case.id,
            mark=result.mark,
            log_ratio=result.estimate or 0.0,
            lower=-float("inf") if result.lower is None else result.lower,
        )
        for verdict in (() if times.unfit else times.verdicts)
        for result in (verdict.time, verdict.launch)
        if result is not None
    ]
    declared = [entry.case.id for entry in found.hello.declared if entry.own]
    selected = [entry.case.id for entry in found.declared]
    return apply_waivers(config.waivers, timed, declared=declared, selected=selected, today=today)
