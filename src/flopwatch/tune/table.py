"""The table of choices: what each case is to run in, where each number comes from, and pins for the gate.

It is JSON, in records that can be diffed. `Choice` is what a gate's result has, too: `pins_of` is what
``flopwatch gate --pin`` takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.compare.result import Speed
from flopwatch.errors import UsageError
from flopwatch.model import SCHEMA_VERSION, Case, Choice, from_json

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.tune.result import TunedCase, TuneResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The choice for one case, and its origin.

    Attributes:
        case: of the kernel under test.
        choices: what its autotuned kernel runs in; one, without a key, which is for every launch of the kernel.
        listed: the configuration is of the kernel's own list, so that a gate can pin it.
        seconds: per call, on samples that chose nothing; None where the choice is the current one and was not timed.
        instead_of: what the autotuner chose.
        gain: the speed in units of that, on the same samples; None where both are the same.
        first_pass: log(seconds / seconds of the autotuner's choice) on the samples that chose.
        date: of the search.
        gpu: that measured.
        versions: of Python, torch, Triton, torch's CUDA and Triton's ptxas.
        command: the line that derives it again.
    """

    case: Case
    choices: tuple[Choice, ...]
    listed: bool
    seconds: float | None
    instead_of: str
    gain: Speed | None
    first_pass: float | None
    date: str
    gpu: str
    versions: dict[str, str]
    command: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """All choices, one a case."""

    entries: tuple[Entry, ...]  # without a default: what has none is another file
    schema_version: int = SCHEMA_VERSION


def read_table(path: Path) -> Table:
    """Read a table.

    Raises:
        UsageError: it cannot be read, or is none.
    """
    import msgspec  # noqa: PLC0415 - so that --help answers at once

    todo = "name a file that flopwatch tune --out wrote"
    try:
        return from_json(path.read_bytes(), Table)
    except OSError as error:
        raise UsageError(f"{path} cannot be read", why=str(error.strerror or error), todo=todo) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no table of choices", why=str(error), todo=todo) from None


def with_result(table: Table, result: TuneResult) -> Table:
    """Return the table with the choices of a search, each in the place of an earlier one of its case.

    What was measured on an unfit machine, or is proved to be slower than the current choice, is left out.
    """
    found = {} if result.unfit else {case.case: _entry(case, result) for case in result.cases if is_kept(case)}
    kept = [found.pop(entry.case, entry) for entry in table.entries]
    return Table(entries=(*kept, *found.values()))


def is_kept(case: TunedCase) -> bool:
    """Tell whether a choice goes into the table: it is the current one, or fresh samples do not say that it is slower.

    Fresh samples do not choose: they only refuse what the first ones were mistaken about. Where they are too few for a
    bound, as in a run that was interrupted, their estimate says so.
    """
    if case.chosen is None:
        return False
    if case.chosen == case.current:
        return True
    gain = case.gain
    return gain is not None and (gain.estimate if gain.upper is None else gain.upper) >= 0


def pins_of(table: Table, path: Path) -> dict[str, tuple[Choice, ...]]:
    """Return what a gate pins, by the case's name.

    Raises:
        UsageError: there is none, or one is not in its kernel's list, from which alone a tuner can be made to take it.
    """
    if not table.entries:
        raise UsageError(f"{path} pins nothing", why="the table has no choice", todo="flopwatch tune CASE --out FILE")
    foreign = [entry for entry in table.entries if not entry.listed]
    if foreign:
        raise UsageError(
            f"{path} has choices that are not in their kernel's list: {len(foreign)}",
            why=f"such as that for {foreign[0].case.id}: {'; '.join(choice.config for choice in foreign[0].choices)}",
            todo="add them to the configurations of its triton.autotune, and tune again",
        )
    return {entry.case.id: entry.choices for entry in table.entries}


def _entry(case: TunedCase, result: TuneResult) -> Entry:
    assert case.chosen is not None  # noqa: S101 - such a case is kept
    return Entry(
        case=case.case,
        choices=(Choice(kernel=case.kernel, config=case.chosen),),
        listed=any(one.own for one in case.candidates if one.config == case.chosen),
        seconds=case.seconds,
        instead_of=case.current or "",
        gain=case.gain,
        first_pass=case.first_pass,
        date=result.date,
        gpu=result.gpu or "",
        versions=result.versions,
        command=result.command,
    )
