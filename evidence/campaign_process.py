"""A step of a campaign as a process: it ends in time, and nothing that it started is left beside the next one."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: How a group of processes is ended, and the seconds that it has for it. The first is what Ctrl-C sends, by which
#: programs remove their worktrees; a program that is started in the background may ignore it.
SIGNALS = ((signal.SIGINT, 12.0), (signal.SIGTERM, 4.0), (signal.SIGKILL, 4.0))
#: Who is killed and still there after so long cannot be ended.
SWEEP_S = 5.0
_POLL_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36


class Cut(enum.Enum):
    """Why a process was ended."""

    LIMIT = "its time was up"
    INTERRUPT = "interrupted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        exit_code: below 0 that of a signal, as `subprocess` has it.
        seconds: that it took.
        cut: why it was ended; None where it ended by itself.
        left: processes of it that cannot be ended.
    """

    exit_code: int
    seconds: float
    cut: Cut | None
    left: tuple[int, ...]


def run(
    command: Sequence[str], *, log: Path, cwd: Path, environment: Mapping[str, str], limit_s: float, held: int
) -> Ended:
    """Run a command until it ends, its time is up or Ctrl-C, and whatever it started as well.

    Args:
        command: a program and its arguments.
        log: what both of its streams are appended to.
        cwd: its folder.
        environment: all of it.
        limit_s: seconds until it is ended.
        held: an open file that it keeps open, with the lock on it, even where this process is killed.
    """
    others = _children()
    cut = None
    begun = time.monotonic()
    with log.open("ab") as output, _adopting_orphans():
        process = subprocess.Popen(  # noqa: S603 - our own programs
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C is for the campaign, which then ends it
            pass_fds=(held,),
        )
        try:
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                cut = Cut.LIMIT
            except KeyboardInterrupt:
                cut = Cut.INTERRUPT
            if cut:
                _end(process)
        finally:
            left = _sweep(others)
    # One that cannot be ended has no exit code.
    exit_code = -signal.SIGKILL if process.returncode is None else process.returncode
    return Ended(exit_code=exit_code, seconds=time.monotonic() - begun, cut=cut, left=left)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a group of processes, gently first; each further Ctrl-C does so less gently."""
    for sent, patience_s in SIGNALS:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(patience_s)
            return


def _sweep(others: set[int]) -> tuple[int, ...]:
    """Kill all children but these, and what they leave to us in turn; return who does not end."""
    ends = time.monotonic() + SWEEP_S
    while (left := _children() - others) and time.monotonic() < ends:
        for child in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        time.sleep(_POLL_S)
    return tuple(sorted(left))


def _children() -> set[int]:
    """Return the children of this process, ended ones that nobody waited for among them."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parent = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(int(stat.parent.name))
    return found


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Become the parent of whoever loses theirs below this process, in groups and sessions of their own too."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)
