"""What asv has no place for: causes, the state of the machine, and which cases are done; a line each.

The file lies beside asv's result and has its name, with ``.jsonl`` at the end, which asv passes over.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from flopwatch.measure.machine import Machine, Snapshot
from flopwatch.model import Choice, Failure, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """Metrics of a case that could not be had, and why."""

    metrics: tuple[str, ...]
    failure: Failure


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionLog:
    """One start of the recorder on a commit.

    Attributes:
        at: when.
        machine: versions, the host, and of the GPU what changes by itself: driver, clocks, power limit.
    """

    at: dt.datetime
    machine: Machine


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseLog:
    """One case that is saved in asv's result.

    Attributes:
        case: its name.
        version: of its suite.
        at: when it was measured.
        seconds: how long that took.
        missing: what could not be measured.
        compiled: the configurations that the static facts are of; `key` is the types of the arguments.
        choices: what the tuners of its kernels chose on the GPU, without their timings; None where it did not run.
        anchor: the commit with which it was paired; "" without one.
        anchor_seconds: the anchor's median in the pair.
        pair_seconds: the commit's own in the pair.
        commit_slot: the slot of the pair that ran the commit, by a coin.
        snapshot: the GPU when the case ended.
    """

    case: str
    version: str
    at: dt.datetime
    seconds: float
    missing: tuple[Missing, ...] = ()
    compiled: tuple[Choice, ...] = ()
    choices: tuple[Choice, ...] | None = None
    anchor: str = ""
    anchor_seconds: float | None = None
    pair_seconds: float | None = None
    commit_slot: int | None = None
    snapshot: Snapshot | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenUp:
    """The recording of a commit was given up, as a night does with one that it has no time for.

    Attributes:
        at: when.
        reason: why the cases that are not in the file were not measured.
    """

    at: dt.datetime
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the file: a session, a case of the session before it, or that the rest was given up."""

    session: SessionLog | None = None
    case: CaseLog | None = None
    given_up: GivenUp | None = None


def append(path: Path, line: Line) -> None:
    """Add a line; one that a crash cut short stays by itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:  # in one write, which others that append do not come between
        cut_short = False
        if file.tell():
            file.seek(-1, 2)
            cut_short = file.read() != b"\n"
        file.write(b"\n" * cut_short + to_json(line) + b"\n")


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file, if there is one; one that cannot be read is as if it had not been written."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for text in lines:
        try:
            line = from_json(text, Line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        yield line


def read_cases(path: Path) -> list[CaseLog]:
    """Return the cases that are done."""
    return [line.case for line in read_lines(path) if line.case is not None]
