"""What is tuned: the cases that are named, at shapes that the suite need not list, and the kernel of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.errors import SuiteError, UsageError
from flopwatch.gate.static import select_cases
from flopwatch.measure.client import CaseFailed
from flopwatch.model import Case
from flopwatch.tune.client import Declared, Tunable
from flopwatch.tune.space import configurations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.tune.client import TuneWorker
    from flopwatch.tune.space import Space

#: Which of a suite's parameters `--shapes` is of; else its first one.
SHAPE = "shape"


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A case with its autotuned kernel, and what is searched.

    Attributes:
        case: of the kernel under test.
        declared: what its suite says of it.
        tunable: the kernel.
        configs: what is searched, in declared order.
    """

    case: Case
    declared: Declared
    tunable: Tunable
    configs: tuple[str, ...]


def named_cases(worker: TuneWorker, select: str, shapes: Sequence[str]) -> tuple[Case, ...]:
    """Return the selected cases, or these at other shapes.

    Args:
        worker: that compiles.
        select: a part of their names.
        shapes: values of the parameter called "shape", or of the first one where none is; none keeps the suite's.

    Raises:
        UndecidedError: no case is selected.
        UsageError: they are of several suites, or the suite cannot be made at such a shape.
    """
    cases = [entry.case for entry in select_cases(worker.hello, select)]
    exact = [case for case in cases if case.id == select]
    cases = exact or cases
    suites = sorted({case.suite for case in cases})
    named = [case for case in cases if case.suite == select]
    if len(suites) > 1 and not named:
        raise UsageError(
            f"{select!r} names cases of {len(suites)} suites",
            why=f"they are {', '.join(suites)}; a space is of one kernel",
            todo="name one suite, or one case in quotes",
        )
    cases = named or cases
    if not shapes:
        return tuple(cases)
    names = worker.declare(cases[0]).names
    place = names.index(SHAPE) if SHAPE in names else 0
    found = dict.fromkeys(
        replace(case, values=(*case.values[:place], shape, *case.values[place + 1 :]))
        for shape in shapes
        for case in cases
    )
    for case in found:
        _require_shape(worker, case, place, names[place])
    return tuple(found)


def subject_of(worker: TuneWorker, case: Case, space: Space) -> Subject:
    """Find the autotuned kernel of a case, and what is searched for it.

    Raises:
        UsageError: it launches none or several, or the space is not of its kernel.
        SuiteError: it cannot be compiled without running.
    """
    try:
        declared, tunables = worker.declare(case), worker.tunables(case)
    except CaseFailed as error:
        raise SuiteError(
            f"{case.id} cannot be compiled", why=str(error).splitlines()[0], todo="flopwatch static tells more"
        ) from None
    if not tunables:
        raise UsageError(
            f"{case.id} launches no autotuned kernel",
            why="a search tries the configurations of triton.autotune, and this kernel has none, or asks no tuner",
            todo="decorate the kernel with triton.autotune, if only with its one configuration; where it is one of"
            " flopwatch's own functions that takes another kernel, set FLOPWATCH_KERNELS=plain",
        )
    if len(tunables) > 1:
        raise UsageError(
            f"{case.id} launches {len(tunables)} autotuned kernels",
            why=f"they are {', '.join(one.kernel for one in tunables)}; the best of one depends on the other's",
            todo="give each a suite of its own",
        )
    (tunable,) = tunables
    configs = configurations(tunable.configs, space or declared.space)
    return Subject(case=case, declared=declared, tunable=tunable, configs=configs)


def _require_shape(worker: TuneWorker, case: Case, place: int, name: str) -> None:
    """Make sure that the suite takes a value that it does not list."""
    try:
        flops = worker.declare(case).flops
        why = "" if math.isfinite(flops) and flops > 0 else f"its work comes to {flops:g} FLOPs"
    except CaseFailed as error:
        why = str(error).splitlines()[0]
    if why:
        own = [entry.case.values[place] for entry in worker.hello.declared if entry.case.suite == case.suite]
        raise UsageError(
            f"{case.suite} has no {name} {case.values[place]!r}",
            why=why,
            todo=f"write it as the suite does: {', '.join(dict.fromkeys(own))}",
        )
