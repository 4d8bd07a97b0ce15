"""What `evidence.peers` measures, as records that are kept and read again."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from flopwatch.compare.result import ComparedCase, Speed
from flopwatch.errors import UsageError
from flopwatch.measure.machine import Machine
from flopwatch.model import SCHEMA_VERSION, eps_of, from_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from flopwatch.compare.result import Contender

#: What measurements are called; of a point that several of a GPU have, the last by its name is what the page tells.
PATTERN = "peers-*.json"
#: By the number of processes.
STUDENT_95 = {2: 12.706, 3: 4.303}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sitting:
    """One run of the program on a GPU.

    Attributes:
        machine: the GPU, the host and the versions.
        date: when.
        commit: of the working tree, "" where there is no repository.
        kernels: a fingerprint of the kernels and of what runs beside them.
        command: the line that was typed.
    """

    machine: Machine
    date: str
    commit: str
    kernels: str
    command: str

    @property
    def origin(self) -> tuple[str, ...]:
        """What two sittings must share to be parts of one measurement: GPUs of one name count as one."""
        gpu = self.machine.gpu
        named = (gpu.name, f"driver {gpu.driver}", f"{gpu.power_limit_w} W") if gpu else ()
        versions = (f"{name} {version}" for name, version in sorted(self.machine.versions.items()))
        return (f"kernels {self.kernels}", *named, *versions)


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """One point beside one peer.

    Attributes:
        case: both: head is ours, base the peer, and the speed is ours in units of the peer's.
        log_ratios: log(peer's seconds / ours) of each process.
        sitting: position of the run that measured it.
        seconds: what this took, its share of what it was measured with.
    """

    case: ComparedCase
    log_ratios: tuple[float, ...]
    sitting: int
    seconds: float

    @property
    def point(self) -> tuple[str, ...]:
        """The suite and the parameters."""
        return (self.case.head.case.suite, *self.case.head.case.values[:-1])

    @property
    def peer(self) -> str:
        """The provider it is measured beside."""
        return self.case.base.case.provider

    @property
    def variance(self) -> float | None:
        """Of the mean over the processes, by their spread; None of fewer than two."""
        number = len(self.log_ratios)
        return statistics.variance(self.log_ratios) / number if number > 1 else None

    @property
    def error(self) -> float | None:
        """Half of the 95 % interval about the logarithm of the speed, by Student's t of the processes alone."""
        variance = self.variance
        return None if variance is None else STUDENT_95[len(self.log_ratios)] * math.sqrt(variance)


@dataclass(frozen=True, kw_only=True, slots=True)
class Peers:
    """What was measured; a file has one version of the kernels."""

    sittings: tuple[Sitting, ...] = ()
    beside: tuple[Beside, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @property
    def done(self) -> set[str]:
        """The peers' cases that need not be measured again."""
        return {each.case.base.case.id for each in self.beside}

    def added(self, sitting: Sitting, found: Iterable[Beside]) -> Peers:
        """Add what a sitting found."""
        sittings = self.sittings if sitting in self.sittings else (*self.sittings, sitting)
        place = sittings.index(sitting)
        return replace(
            self, sittings=sittings, beside=(*self.beside, *(replace(each, sitting=place) for each in found))
        )

    def seconds_each(self, peer: str) -> float | None:
        """Return what a point beside this peer took, in the median; None where none was measured."""
        taken = [each.seconds for each in self.beside if each.peer == peer]
        return statistics.median(taken) if taken else None


def kept(folder: Path) -> Peers:
    """Read all measurements of a GPU; of what was measured again the newest counts.

    Raises:
        UsageError: a file is none that this version reads.
    """
    found = Peers()
    for path in sorted(folder.glob(PATTERN), key=lambda path: path.stem):
        newer = read(path)
        found = replace(found, beside=tuple(each for each in found.beside if each.case.base.case.id not in newer.done))
        for place, sitting in enumerate(newer.sittings):
            found = found.added(sitting, [each for each in newer.beside if each.sitting == place])
    return found


def read(path: Path | None) -> Peers:
    """Read a measurement; an empty one where there is no file.

    Raises:
        UsageError: it is none that this version reads.
    """
    if path is None or not path.is_file():
        return Peers()
    try:
        found = from_json(path.read_bytes(), Peers)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no measurement beside peers", why=str(error)) from None
    if found.schema_version != SCHEMA_VERSION:
        raise UsageError(f"{path} has version {found.schema_version}, and this reads {SCHEMA_VERSION}")
    return found


def log_speed(log_ratios: Sequence[float]) -> Speed | None:
    """Average the processes; None where there are none. A sign-flip test has no bounds for so few: see `Beside.error`.

    >>> log_speed([0.04, 0.06])
    Speed(estimate=0.05, lower=None, upper=None, pairs=2)
    """
    if not log_ratios:
        return None
    return Speed(estimate=statistics.fmean(log_ratios), lower=None, upper=None, pairs=len(log_ratios))


def slim(case: ComparedCase) -> ComparedCase:
    """Leave out what nobody reads again: tuners' timings, and tracebacks, which name folders of the machine."""
    return replace(case, base=_slim(case.base), head=_slim(case.head))


def _slim(contender: Contender) -> Contender:
    failure = contender.failure
    return replace(
        contender,
        choices=tuple(replace(choice, timings_us={}) for choice in contender.choices),
        failure=None if failure is None else replace(failure, message=first_line(failure.message), traceback=""),
    )


def first_line(text: str) -> str:
    """Return the first line of a message."""
    return next(iter(text.splitlines()), "")


def unusable(contender: Contender, ceiling_eps: float) -> str:
    """Say why a contender's time is worth nothing; "" where it is worth something."""
    if contender.failure is not None:
        return f"fails ({contender.failure.kind}: {first_line(contender.failure.message)})"
    if contender.numbers is None:
        return "was not run"
    if not contender.numbers.finite:
        return "returns NaN or infinity"
    eps = eps_of(contender.numbers)
    return f"is wrong: error {eps:.3g} eps, ceiling {ceiling_eps:g}" if eps > ceiling_eps else ""


def factor(beside: Beside) -> str:
    """Write our speed in units of the peer's, with half of its 95 % interval; "" where it was not measured."""
    speed = beside.case.speed
    return "" if speed is None else within(speed.estimate, beside.error)


def within(estimate: float, error: float | None) -> str:
    """Write a factor and its error, both given by their logarithms.

    >>> within(0.05, 0.002), within(-0.05, None)
    ('1.051 ± 0.002', '0.951')
    """
    value = math.exp(estimate)
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {value * error:.3f}"
