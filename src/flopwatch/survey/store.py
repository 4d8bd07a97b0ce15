"""What earlier surveys found, kept so that one of an unchanged tree imports neither torch nor Triton.

An entry is of one tree, its suites, one device, one interpreter and one environment. It holds only while every file
that its workers read is as it was, by size and time of change, and every folder that they looked for modules in:
another torch, Triton or flopwatch, an edited library, other data and what was installed since end it. Not known is what
comes from elsewhere than files, and what is read past Python.

Entries lie in Triton's cache: whoever empties that means these as well, and a job that keeps it keeps both.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flopwatch.measure.protocol import Hello
from flopwatch.model import Case, KernelFacts, from_json, to_json
from flopwatch.static.traffic import Traffic
from flopwatch.static.tree import tree_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flopwatch.static.recorder import Autotune

#: Of the entries; it changes with what they mean.
_FORMAT = 2
_FOLDER = "flopwatch-surveys"
#: Each has the stamps of all files that were imported: 0.2 MB for two cases (torch 2.13, triton 3.7.1, 2026-11-22).
MOST_ENTRIES = 64
#: What tells terminals, sessions and jobs apart, and nothing about what is compiled.
_SESSION = frozenset(
    {"_", "COLORTERM", "COLUMNS", "DISPLAY", "FORCE_COLOR", "INVOCATION_ID", "JOURNAL_STREAM", "LINES", "LS_COLORS"}
    | {"NO_COLOR", "OLDPWD", "PWD", "PYTEST_CURRENT_TEST", "SHLVL", "STY", "TERM", "TMUX", "TMUX_PANE", "WINDOWID"}
)
_SESSIONS = ("GITHUB_", "RUNNER_", "SSH_", "TERM_", "VSCODE_", "XDG_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one case on one side, for one device.

    Attributes:
        case: the case.
        facts: what the compiler made of it.
        traffic: what its launches compute and move.
        cause: why it could not be compiled without running; "" where it could.
        passing: the cause may be gone next time, such as a process that was killed.
    """

    case: Case
    facts: tuple[KernelFacts, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    cause: str = ""
    passing: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What is known of one tree and device.

    Attributes:
        key: all that it is for, as text.
        stamps: size and time of change of whatever the workers loaded, by path.
        hello: what the suites declare; nothing about a GPU.
        outcomes: of the cases that were compiled so far.
    """

    key: str
    stamps: dict[str, tuple[int, int]]
    hello: Hello
    outcomes: tuple[Outcome, ...]


def entry_key(  # noqa: D417 - the others are what they are called
    *,
    source: Path,
    packages: Sequence[str],
    suites: Path,
    device: str,
    autotune: Autotune,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """Return what an entry is for, as text.

    Args:
        source: the folder that holds the packages.
        suites: the folder of the suites.
    """
    ours = sorted(
        (name, value) for name, value in environment.items() if name not in _SESSION and not name.startswith(_SESSIONS)
    )
    parts = (
        _FORMAT,
        tree_identity(source, packages),
        tree_identity(suites.parent, [suites.name]),
        (tuple(packages), suites.name, device, autotune.value),
        (platform.machine(), sys.version, sys.executable),
        hashlib.sha256(repr(ours).encode()).hexdigest(),
    )
    return repr(parts)


def stamps_of(
    paths: Iterable[str], *, trees: Iterable[Path], inside: Iterable[Path]
) -> dict[str, tuple[int, int]] | None:
    """Return the size and time of change of files and folders.

    Args:
        paths: what workers loaded.
        trees: the checkouts, which are gone next time.
        inside: the packages and folders of them that the key knows, without a suffix.

    Returns:
        None where something was loaded from a checkout that the key does not know.
    """
    roots = tuple(f"{tree.resolve()}{os.sep}" for tree in trees)
    known = tuple(f"{path.resolve()}{end}" for path in inside for end in (os.sep, "."))
    stamps = {}
    for path in paths:
        real = str(Path(path).resolve())
        if f"{real}{os.sep}".startswith(roots):
            if not real.startswith(known) and Path(real).is_file():
                return None
        else:
            stamps[path] = _stamp(path)
    return stamps


class Store:
    """The folder of the entries."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder(os.environ) / _FOLDER

    def load(self, key: str) -> Entry | None:
        """Return the entry of that key, if there is one and it holds."""
        try:
            entry = from_json(self._path(key).read_bytes(), Entry)
        except (OSError, msgspec.DecodeError):
            return None
        holds = entry.key == key and all(_stamp(path) == stamp for path, stamp in entry.stamps.items())
        return entry if holds else None

    def save(self, entry: Entry) -> None:
        """Keep an entry, in place of one of the same key; a folder that cannot be written costs the next run time."""
        path = self._path(entry.key)
        beside = path.with_suffix(f".{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(to_json(entry))
            beside.replace(path)
            self._forget()

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"

    def _forget(self) -> None:
        """Remove the oldest entries past the most that are kept."""
        entries = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in entries[MOST_ENTRIES:]:
            path.unlink()


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return Triton's cache, by the variables that Triton reads, without importing it.

    >>> str(cache_folder({"TRITON_CACHE_DIR": "/cache"})), str(cache_folder({"TRITON_HOME": "/home/ada"}))
    ('/cache', '/home/ada/.triton/cache')
    """
    if named := environment.get("TRITON_CACHE_DIR"):
        return Path(named)
    return Path(environment.get("TRITON_HOME") or Path.home()) / ".triton" / "cache"


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - of 2500 files, in 7 ms instead of 28 (Python 3.11, 2026-11-22)
    except OSError:
        return (-1, -1)
    return (found.st_size, found.st_mtime_ns)
