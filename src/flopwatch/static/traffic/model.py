"""The traffic of a launch: its kernel's integers, evaluated with the arguments that were recorded."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from flopwatch.static.device import Device
from flopwatch.static.facts import kernel_occupancy
from flopwatch.static.recorder import Launch
from flopwatch.static.traffic.binding import Binding
from flopwatch.static.traffic.counts import Counts
from flopwatch.static.traffic.evaluation import Evaluation, Programs
from flopwatch.static.traffic.needed import needed_values
from flopwatch.static.traffic.program import Module, Operation
from flopwatch.static.traffic.result import SECTOR_BYTES, Loop, OutOfBounds, Traffic
from flopwatch.static.traffic.tiles import Array, TooManyElementsError
from flopwatch.static.traffic.ttir import parse_ttir
from flopwatch.static.traffic.turns import TooLongError, Turns

#: Of larger grids the first wave, the last and some in between are evaluated, and nothing is summed up.
MOST_PROGRAMS = 1 << 18
_BETWEEN = 1024
#: Elements along the longest axis, of all programs that are evaluated together: 16 MiB of 64-bit integers.
_CHUNK_ELEMENTS = 1 << 21
_MOST_TOGETHER = 1 << 14
_FEWER = 8
#: A kernel is launched by several cases, and read once.
_KEPT_MODULES = 64

CountsT = TypeVar("CountsT", bound=Counts)


def launch_traffic(
    launch: Launch,
    kernel: Any,  # noqa: ANN401 - triton's
    device: Device,
    turns: Turns,
) -> Traffic:
    """Return the traffic of one launch of a compiled kernel, within so many turns, which are taken."""
    try:
        return _evaluated(_task(launch, kernel, device, Counts), turns)
    except Exception as error:  # noqa: BLE001 - the text is of any kernel and any Triton, and no case fails for it
        return _nothing(launch, device, why_not(error))


def launch_counts(
    launch: Launch,
    kernel: Any,  # noqa: ANN401 - triton's
    device: Device,
    turns: Turns,
    counts: Callable[..., CountsT],
) -> CountsT:
    """Evaluate every program of a launch, and return what other `counts` than those of its traffic came to.

    Raises:
        Exception: whatever the kernel's text is not fit for; `why_not` has words for it.
    """
    task = _task(launch, kernel, device, counts)
    return cast("CountsT", _run(task, np.arange(math.prod(task.grid)), turns).counts)


def why_not(error: Exception) -> str:
    """Say why a launch could not be evaluated."""
    match error:
        case TooLongError():
            return "its loops take too many turns"
        case TooManyElementsError():
            return "its tensors mix too many axes"
        case NoTtirError():
            return "the kernel has no TTIR, as those written in Gluon"
    return f"{type(error).__name__}: {error}"


class NoTtirError(Exception):
    """There is no TTIR to read."""


def _task(launch: Launch, kernel: Any, device: Device, counts: Callable[..., Counts]) -> _Task:  # noqa: ANN401 - triton's
    text = kernel.asm.get("ttir")
    if text is None:
        raise NoTtirError
    module, needed = _read(text)
    return _Task(
        module=module,
        needed=needed,
        binding=Binding(module, kernel.src.signature, launch),
        launch=launch,
        device=device,
        wave=min(math.prod(launch.grid), device.sms * _blocks_per_sm(kernel, device)),
        counts=counts,
    )


@functools.lru_cache(maxsize=_KEPT_MODULES)
def _read(text: str) -> tuple[Module, frozenset[int]]:
    module = parse_ttir(text)
    return module, needed_values(module)


def _blocks_per_sm(kernel: Any, device: Device) -> int:  # noqa: ANN401 - triton's
    """Return how many programs a multiprocessor holds; one where the compiler told nothing of registers."""
    resident = kernel_occupancy(kernel, device)
    return max(resident.blocks_per_sm, 1) if resident else 1


def _nothing(launch: Launch, device: Device, cause: str) -> Traffic:
    return Traffic(
        kernel=launch.kernel,
        device=device.key,
        config=launch.config or "",
        variant=launch.variant,
        grid=launch.grid,
        programs=math.prod(launch.grid),
        uncovered=(cause,),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    """A launch of a kernel that was read, on a device that holds so many of its programs at once."""

    module: Module
    needed: frozenset[int]
    binding: Binding
    launch: Launch
    device: Device
    wave: int
    counts: Callable[..., Counts]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Programs along three axes."""
        x, y, z = (*self.launch.grid, 1, 1, 1)[:3]
        return x, y, z


class _Run:
    """What the evaluations of some programs came to."""

    def __init__(self, task: _Task, every: Array) -> None:
        self.every = every
        self.counts = task.counts(len(every), wave=task.wave, allocations=task.binding.allocations)
        self.covered: set[Operation] = set()
        self.uncovered: set[Operation] = set()


def _evaluated(task: _Task, turns: Turns) -> Traffic:
    """Evaluate all programs, or some where there are too many or all take too long; both may take what is left."""
    total, left = math.prod(task.grid), turns.left
    every = np.arange(total) if total <= MOST_PROGRAMS else _some(total, task.wave)
    try:
        return _told(task, _run(task, every, turns))
    except TooLongError:
        every = _some(total, task.wave)
        if len(every) == total:
            raise
        turns.left = left
        return _told(task, _run(task, every, turns))


def _some(total: int, wave: int) -> Array:
    """Choose the first wave, the last one, and some programs at even distances between them."""
    between = np.linspace(0, total - 1, _BETWEEN).astype(np.int64)
    chosen = np.concatenate((np.arange(min(wave, total)), between, np.arange(max(total - wave, 0), total)))
    return np.unique(chosen)


def _run(task: _Task, every: Array, turns: Turns) -> _Run:
    """Evaluate programs, as many together as memory allows."""
    longest = max((size for kind in task.module.types.values() for size in kind.shape), default=1)
    together = min(max(_CHUNK_ELEMENTS // longest, 1), _MOST_TOGETHER)
    while True:
        try:
            return _run_together(task, every, together, turns)
        except TooManyElementsError:
            if together == 1:
                raise
            together = max(min(together, len(every)) // _FEWER, 1)


def _run_together(task: _Task, every: Array, together: int, turns: Turns) -> _Run:
    run = _Run(task, every)
    for first in range(0, len(every), together):
        programs = Programs(numbers=every[first : first + together], grid=task.grid, first=first)
        turns.take()
        evaluation = Evaluation(task.module, task.needed, task.binding.values, programs, run.counts, turns=turns)
        evaluation.run()
        run.covered |= evaluation.covered
        run.uncovered |= evaluation.uncovered
    return run


def _told(task: _Task, run: _Run) -> Traffic:
    """Tell what was counted, and nothing of what could not be."""
    counts, launch = run.counts, task.launch
    total = math.prod(task.grid)
    is_whole = len(run.every) == total
    bytes_known = is_whole and "bytes" not in counts.unknown
    addresses_known = "addresses" not in counts.unknown
    flops_known = is_whole and "flops" not in counts.unknown
    causes = {cause: data for reasons in counts.unknown.values() for cause, data in reasons.items()}
    uncovered = [cause for cause, data in causes.items() if not data]
    if not is_whole:
        uncovered.append(f"{len(run.every)} of {total} programs were evaluated")
    asked = run.covered | run.uncovered
    work = counts.flops if counts.flops.any() else counts.requested
    return Traffic(
        kernel=launch.kernel,
        device=task.device.key,
        config=launch.config or "",
        variant=launch.variant,
        grid=launch.grid,
        programs=total,
        evaluated=len(run.every),
        dot_flops=dict(counts.dot_flops) if flops_known else None,
        load_bytes=counts.bytes["load"] if bytes_known else None,
        store_bytes=counts.bytes["store"] if bytes_known else None,
        atomic_bytes=counts.bytes["atomic"] if bytes_known else None,
        unique_load_bytes=counts.read.bytes() if is_whole and addresses_known else None,
        unique_store_bytes=counts.written.bytes() if is_whole and addresses_known else None,
        compulsory_bytes=_compulsory_bytes(counts) if is_whole and addresses_known else None,
        wave_programs=task.wave,
        wave_load_bytes=counts.wave_requested if addresses_known else None,
        wave_sectors=counts.wave.sectors() if addresses_known else None,
        imbalance=float(work.max() / work.mean()) if flops_known and bytes_known and work.any() else None,
        loops=tuple(
            Loop(where=loop.where, entered=trips.entered, turns=trips.total, least=trips.least, most=trips.most)
            for loop, trips in counts.trips.items()
        ),
        out_of_bounds=_out_of_bounds(task, run),
        coverage=len(run.covered) / len(asked) if asked else 1.0,
        data_dependent=tuple(sorted(cause for cause, data in causes.items() if data)),
        uncovered=tuple(sorted(uncovered)),
    )


def _compulsory_bytes(counts: Counts) -> int:
    return SECTOR_BYTES * (counts.read.sectors() + counts.written.sectors())


def _out_of_bounds(task: _Task, run: _Run) -> tuple[OutOfBounds, ...]:
    x, y, _ = task.grid
    found = []
    for (operation, name), stray in run.counts.strays.items():
        first = int(run.every[min(stray.programs)])
        found.append(
            OutOfBounds(
                operation=operation.name,
                where=operation.where,
                argument=name,
                programs=len(stray.programs),
                first_program=(first % x, first // x % y, first // x // y),
                before_bytes=stray.before_bytes,
                past_bytes=stray.past_bytes,
                allocation_bytes=stray.allocation.size_bytes,
            )
        )
    return tuple(found)
