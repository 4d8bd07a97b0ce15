"""The steps of a search: what is tuned, what the compiler says of it, what the GPU's time says."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import secrets
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flopwatch.checkout import checkout
from flopwatch.config import load_config
from flopwatch.errors import MachineError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm
from flopwatch.measure import fitness
from flopwatch.measure.client import Mode
from flopwatch.measure.machine import Machine, read_machine
from flopwatch.measure.nvml import Watch, present_gpus
from flopwatch.static.devices import DEVICES, device_called, find_device
from flopwatch.tune.client import TuneSides
from flopwatch.tune.elimination import Rule
from flopwatch.tune.facts import Limits, candidates_of, compile_all, prune, with_current
from flopwatch.tune.result import TunedCase, TuneResult
from flopwatch.tune.subjects import named_cases, subject_of
from flopwatch.tune.times import Rounds, ask_tuner, check_numbers, check_providers, choose, estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from flopwatch.config import Config
    from flopwatch.measure.protocol import Hello
    from flopwatch.model import Case
    from flopwatch.static.device import Device
    from flopwatch.tune.subjects import Subject
    from flopwatch.tune.times import Asked

#: Fresh processes of the second pass: with fewer there is no interval of 99 %, as for `flopwatch.compare`.
PAIRS = 8
ROUNDS = 6
RESOLUTION_PERCENT = 0.5
#: In the environment: which kernel flopwatch's own functions launch, and what of its list their tuner times.
_VARIABLES = ("FLOPWATCH_KERNELS", "FLOPWATCH_AUTOTUNE")


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """What the user asked for; None chooses.

    Attributes:
        select: only cases whose name has this in it.
        shapes: of these, in place of the suite's own.
        space: settings and values to search beside the kernel's own list.
        device: the GPU to compile for; one that is not there is not timed.
        rounds: of the first pass, at most.
        pairs: fresh processes of the second pass.
        resolution_percent: what differs by less is a tie.
        limits: what a configuration may not do.
        providers: others of the suite that the choice is held against.
    """

    select: str
    shapes: tuple[str, ...] = ()
    space: Mapping[str, tuple[str, ...]] | None = None
    device: str | None = None
    rounds: int = ROUNDS
    pairs: int = PAIRS
    resolution_percent: float = RESOLUTION_PERCENT
    limits: Limits = field(default_factory=Limits)
    providers: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        """When the first pass drops candidates, and when it ends."""
        return Rule(resolution=math.log1p(self.resolution_percent / 100), rounds=self.rounds)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Timed:
    """What the GPU said."""

    cases: tuple[TunedCase, ...]
    machine: Machine
    rounds: Rounds


def run_tune(
    options: TuneOptions,
    root: Path,
    *,
    config: Config | None = None,
    observer: Observer | None = None,
    toss: Callable[[], bool] | None = None,
) -> TuneResult:
    """Search the configurations of the selected cases.

    Args:
        options: what to search.
        root: the repository.
        config: its settings; None reads them.
        observer: is told how far this is.
        toss: a fair coin for each process: which of two is asked first. The operating system's by default.

    Raises:
        FlopwatchError: nothing could be compiled.
    """
    start = time.monotonic()
    observer = observer or Observer()
    config = config or load_config(root)
    with contextlib.ExitStack() as stack:
        tree = stack.enter_context(checkout(None, config, root=root))
        here = _gpu_here(config, tree)
        device = _device(options.device, here, config)
        sides = TuneSides(config, device=device.key, base_tree=tree, head_tree=tree)
        stack.enter_context(sides)
        worker = sides.worker(Mode.STATIC, Arm.HEAD)
        with worker:
            cases = named_cases(worker, options.select, options.shapes)
            _require_providers(options.providers, cases, worker.hello)
            subjects = tuple(subject_of(worker, case, options.space or {}) for case in cases)
            versions = worker.hello.versions
        number = sum(len(subject.configs) for subject in subjects)
        observer.step(f"compiling {number} configurations for {device.key}")
        tuned = _compiled(sides, subjects, device, options.limits, observer)
        timed = None
        notes: tuple[str, ...] = ()
        if here is not None and here.gpu_uuid is not None:
            if here.compute_capability == device.compute_capability:
                sides.start_nurseries()
                timed = _timed(sides, subjects, tuned, options, here, observer, toss)
            else:
                notes = (f"nothing was timed: the GPU here is {here.gpu}, and {device.name} was asked for",)
        else:
            notes = ("nothing was timed: there is no GPU here",)
        return TuneResult(
            device=device.key,
            gpu=here.gpu if timed and here else None,
            machine=timed.machine if timed else None,
            versions=here.versions if timed and here else versions,
            date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
            resolution=options.rule.resolution,
            cases=timed.cases if timed else tuned,
            pairs=tuple(timed.rounds.logs) if timed else (),
            command=_command(options),
            unfit=timed.rounds.unfit() if timed else "",
            interrupted=bool(timed and timed.rounds.interrupted),
            seconds=time.monotonic() - start,
            notes=(*notes, *sides.notes, *(timed.rounds.notes() if timed else ())),
        )


def _gpu_here(config: Config, tree: Path) -> Hello | None:
    """Return what a worker says that has the GPU; None where there is none."""
    try:
        present = present_gpus()
    except MachineError:
        return None
    if not present:
        return None
    sides = TuneSides(config, device=find_device(config.device).key, base_tree=tree, head_tree=tree)
    with sides.worker(Mode.GPU, Arm.HEAD) as worker:
        return worker.hello


def _device(name: str | None, here: Hello | None, config: Config) -> Device:
    """Return the device to compile for: the one that is named, or is there, or is the configuration's.

    Raises:
        UsageError: the GPU that is there is like none that is known.
    """
    if name is not None or here is None or here.gpu is None:
        return find_device(name or config.device)
    known = device_called(here.gpu)
    if known is None:
        known = next((one for one in DEVICES.values() if one.compute_capability == here.compute_capability), None)
    if known is None:
        raise UsageError(
            f"flopwatch knows no device like {here.gpu}",
            why=f"its limits are needed to prune; known are {', '.join(DEVICES)}",
            todo="name the one that is nearest to it: --device",
        )
    return known


def _require_providers(providers: Sequence[str], cases: Sequence[Case], hello: Hello) -> None:
    known = sorted({entry.case.provider for entry in hello.declared if entry.case.suite == cases[0].suite})
    wrong = [name for name in providers if name not in known or name == cases[0].provider]
    if wrong:
        raise UsageError(
            f"{cases[0].suite} has no other provider {wrong[0]!r}",
            why=f"it has {', '.join(known)}; {cases[0].provider} is what is tuned",
            todo="name another one of these",
        )


def _compiled(
    sides: TuneSides, subjects: Sequence[Subject], device: Device, limits: Limits, observer: Observer
) -> tuple[TunedCase, ...]:
    outcomes = compile_all(
        [(subject.case, subject.configs) for subject in subjects], device, sides.code(Arm.HEAD), observer.cases
    )
    return tuple(
        TunedCase(
            case=subject.case,
            flops=subject.declared.flops,
            bytes_moved=subject.declared.bytes_moved,
            kernel=subject.tunable.kernel,
            first=subject.tunable.first,
            candidates=prune(
                candidates_of(
                    subject.case, subject.configs, subject.tunable.configs, subject.tunable.kernel, outcomes, device
                ),
                device,
                limits,
            ),
        )
        for subject in subjects
    )


def _timed(  # noqa: PLR0917 - what a search needs
    sides: TuneSides,
    subjects: Sequence[Subject],
    tuned: Sequence[TunedCase],
    options: TuneOptions,
    here: Hello,
    observer: Observer,
    toss: Callable[[], bool] | None,
) -> _Timed:
    assert here.gpu_uuid is not None  # noqa: S101 - asked by the caller
    with Watch(here.gpu_uuid) as watch:
        machine = read_machine(watch.gpu(), here.versions)
        fitness.require(fitness.before(watch.gpu(), watch.snapshot()))
        rounds = Rounds(
            sides=sides,
            watch=watch,
            observer=observer,
            toss=toss or (lambda: bool(secrets.randbits(1))),
            cases={},
            stage="choose",
        )
        return _Timed(cases=search(rounds, subjects, tuned, options, sides.config), machine=machine, rounds=rounds)


def search(
    rounds: Rounds, subjects: Sequence[Subject], tuned: Sequence[TunedCase], options: TuneOptions, config: Config
) -> tuple[TunedCase, ...]:
    """Ask the tuner, check numbers, choose, and estimate afresh.

    Args:
        rounds: measures.
        subjects: what is tuned.
        tuned: what the compiler says of each, in the same order.
        options: what the user asked for.
        config: of the repository.
    """
    rounds.observer.step("asking the autotuner, and checking the numbers of what is left")
    ready = []
    wrong: dict[Case, str] = {}
    try:
        current = ask_tuner(rounds, subjects)
        for subject, case in zip(subjects, tuned, strict=True):
            ceiling = config.max_diff_eps if subject.declared.max_diff_eps is None else subject.declared.max_diff_eps
            ready.append(_ready(rounds, subject, case, current[case.case], ceiling))
            wrong |= check_providers(rounds, subject, options.providers, ceiling)
    except KeyboardInterrupt:
        rounds.interrupted = True
        return tuple(tuned)
    found = iter(choose(rounds, [case for case in ready if not case.reason], options.rule))
    chosen = tuple(case if case.reason else next(found) for case in ready)
    if rounds.stopped:
        return chosen
    return estimate(rounds, chosen, options.pairs, options.providers, wrong)


def _ready(rounds: Rounds, subject: Subject, case: TunedCase, asked: Asked, ceiling_eps: float) -> TunedCase:
    """Put the current choice among the candidates, where it is never pruned, and leave out what is wrong."""
    if asked.reason:
        return replace(case, reason=asked.reason)
    current = asked.config
    candidates = with_current(case.candidates, current)
    checked = check_numbers(rounds, subject, candidates, ceiling_eps)
    mine = next((candidate for candidate in checked if candidate.config == current), None)
    reason = ""
    if mine is None:
        reason = f"runs in {current} here, which is not in the list that the pretended GPU saw"
    elif mine.pruned:
        reason = f"{mine.pruned}, in the configuration that its tuner chooses"
    return replace(case, candidates=checked, current=current, reason=reason)


def _command(options: TuneOptions) -> str:
    parts = ["flopwatch", "tune", options.select]
    if options.shapes:
        parts += ["--shapes", ",".join(options.shapes)]
    if options.space:
        parts += ["--space", *(f"{name}={','.join(values)}" for name, values in options.space.items())]
    for name, given, usual in (
        ("--device", options.device, None),
        ("--rounds", options.rounds, ROUNDS),
        ("--pairs", options.pairs, PAIRS),
        ("--resolution", options.resolution_percent, RESOLUTION_PERCENT),
        ("--min-occupancy", options.limits.occupancy * 100, 0.0),
    ):
        if given != usual:
            parts += [name, f"{given:g}" if isinstance(given, float) else str(given)]
    for provider in options.providers:
        parts += ["--against", provider]
    settings = [f"{name}={shlex.quote(value)}" for name in _VARIABLES if (value := os.environ.get(name))]
    return " ".join([*settings, shlex.join(parts)])
