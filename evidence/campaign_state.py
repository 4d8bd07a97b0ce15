"""What a campaign has done so far, kept after every step; its list, and its results in one file."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import tarfile
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from flopwatch.cli.output_file import print_and_write
from flopwatch.errors import MachineError, UsageError
from flopwatch.model import from_json, to_json
from flopwatch.units import format_bytes, short_commit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path, PurePath

    from evidence.campaign_steps import Step

STATE = "state.json"
LOCK = "lock"
#: Caches and clones, which the next machine makes anew.
SCRATCH = "scratch"
#: Of a packed file, and of all of them as packed. Chosen, not measured (2026-11-22): what is carried off a borrowed
#: machine, or into git, is to be small.
MOST_BYTES = 16 * 2**20
#: Of an entry's header, before it is compressed.
_HEADER_BYTES = 2**10


class Status(enum.Enum):
    """How a step ended."""

    PASSED = "passed"
    PARTIAL = "partial"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The last time that a step was run.

    Attributes:
        status: passed, or partial where it has more to do and goes on with what it left; failed by itself, or stopped.
        seconds: that it took.
        exit_code: of its process.
        last: what it said last.
        commit: that was checked out.
        gpu: on which, by its UUID.
        ended: when, UTC.
    """

    status: Status
    seconds: float
    exit_code: int
    last: str
    commit: str
    gpu: str
    ended: str

    @property
    def failed(self) -> bool:
        """Whether it has to be begun anew."""
        return self.status in {Status.FAILED, Status.STOPPED}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """A campaign.

    Attributes:
        date: of its first day, which names its results.
        entries: steps that were run, by name.
    """

    date: str
    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, today: str) -> State:
        """Read what a folder has; a new campaign where it has none.

        Raises:
            UsageError: it has something else.
        """
        path = folder / STATE
        if not path.exists():
            return cls(date=today)
        try:
            return from_json(path.read_bytes(), cls)
        except msgspec.DecodeError as error:
            raise UsageError(f"{path} is no campaign's", why=str(error), todo="name another folder") from None

    def write(self, folder: Path) -> None:
        """Keep it, in the place of what was kept before."""
        print_and_write(lambda: None, folder / STATE, lambda: to_json(self, indent=1).decode() + "\n")

    def added(self, name: str, entry: Entry) -> State:
        """Add how a step ended."""
        return replace(self, entries={**self.entries, name: entry})

    def forgotten(self, names: Sequence[str]) -> State:
        """Leave out steps that are to be run again."""
        return replace(self, entries={name: entry for name, entry in self.entries.items() if name not in names})

    def passed(self, name: str) -> Entry | None:
        """Return the entry of a step that has passed."""
        entry = self.entries.get(name)
        return entry if entry is not None and entry.status is Status.PASSED else None

    def waiting(self, steps: Sequence[Step]) -> list[Step]:
        """Return what has not passed: as declared, but what failed before, and what needs that, after the rest."""
        failed = {name for name, entry in self.entries.items() if entry.failed}
        left = [step for step in steps if self.passed(step.name) is None]
        return sorted(left, key=lambda step: bool(failed & {step.name, *step.needs}))

    def missing(self, step: Step, gpu: str) -> str:
        """Say what a step needs that is not there; "" where it may begin."""
        for name in step.needs:
            entry = self.passed(name)
            if entry is None:
                return f"{name} has to pass before"
            if step.one_gpu and entry.gpu != gpu:
                return f"{name} ran on another GPU; begin in another folder"
        return ""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold a campaign's folder; yield the open file on which the lock is, which a step keeps open.

    Raises:
        MachineError: somebody else holds it.
    """
    with (folder / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MachineError(
                f"{folder} is in use",
                why="another campaign runs there, or a step of one that was killed",
                todo=f"wait, or end it: fuser {folder / LOCK} tells its number",
            ) from None
        yield file.fileno()


def listed(state: State, steps: Sequence[Step]) -> Iterator[str]:
    """Yield a line a step: its name, how it ended, its seconds, what for, and where the seconds come from."""
    for step in steps:
        entry = state.entries.get(step.name)
        if entry is None:
            yield f"{step.name:<24}{'not run':<9}{step.expected_s:>6.0f} s  {step.purpose} ({step.origin})"
        else:
            origin = f"measured, {entry.ended[:10]} at {short_commit(entry.commit)}; {entry.last}"
            yield f"{step.name:<24}{entry.status.value:<9}{entry.seconds:>6.0f} s  {step.purpose} ({origin})"


def pack(folder: Path, out: Path) -> list[str]:
    """Put a campaign into one file, small parts first; return what is left out for its size."""
    kept = [path for path in folder.rglob("*") if path.is_file() and _is_packed(path.relative_to(folder))]
    sizes = {path: _HEADER_BYTES + len(zlib.compress(path.read_bytes())) for path in kept if path != out.resolve()}
    left, room = [], MOST_BYTES
    beside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    with tarfile.open(beside, "w:gz") as archive:
        for path, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
            name = path.relative_to(folder).as_posix()
            if size > room or path.stat().st_size > MOST_BYTES:
                left.append(f"{name}, {format_bytes(path.stat().st_size)}")
            else:
                archive.add(path, name)
                room -= size
    beside.replace(out)
    return left


def _is_packed(path: PurePath) -> bool:
    return path.parts[0] not in {SCRATCH, LOCK} and not path.name.endswith(".tmp")
