"""The files that ``flopwatch init`` writes: none is overwritten, and none is left half written."""

from __future__ import annotations

import contextlib
import enum
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.errors import UsageError
from flopwatch.pyproject import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Action(enum.Enum):
    """What becomes of a file.

    CREATE: it is not there, and is written.
    APPEND: it is there, and text is put at its end.
    KEEP: it is left alone.
    """

    CREATE = "create"
    APPEND = "append to"
    KEEP = "leave alone"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedFile:
    """A file, and what becomes of it.

    Attributes:
        path: relative to the repository.
        action: what becomes of it.
        data: its whole content afterwards; of a file that is kept, nothing.
        text: what is new in it.
        why: why it is left alone.
        by_hand: what somebody has to add to a file that is left alone.
    """

    path: str
    action: Action
    data: bytes = b""
    text: str = ""
    why: str = ""
    by_hand: str = ""


def plan_file(root: Path, path: str, text: str, *, by_hand: str = "", known_by: str = "flopwatch") -> PlannedFile:
    """Plan a file that is written where there is none.

    Args:
        root: the repository.
        path: of the file, relative to it.
        text: its content.
        by_hand: what to add to a file that is there, unless it has `known_by` in it.
        known_by: what a file that needs nothing more has in it.
    """
    place = root / path
    if not os.path.lexists(place):
        return PlannedFile(path=path, action=Action.CREATE, data=text.encode(), text=text)
    try:
        present = place.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return PlannedFile(path=path, action=Action.KEEP, why=f"it cannot be read: {error.strerror}", by_hand=by_hand)
    if present == text:
        return PlannedFile(path=path, action=Action.KEEP, why="it is as it would be written")
    if known_by in present:
        return PlannedFile(path=path, action=Action.KEEP, why="it is there")
    return PlannedFile(path=path, action=Action.KEEP, why="it is there, without flopwatch", by_hand=by_hand)


def write_files(root: Path, files: Sequence[PlannedFile]) -> None:
    """Write what is planned, after a look at whether all of it can be written.

    Raises:
        UsageError: something cannot be; nothing was written then.
    """
    problems = [problem for file in files for problem in _problems(root / file.path, file.action)]
    if problems:
        raise UsageError(
            "flopwatch init wrote nothing",
            why="; ".join(dict.fromkeys(problems)),
            todo="make these writable, or move them out of the way; then run flopwatch init again",
        )
    for file in files:
        place = root / file.path
        match file.action:
            case Action.CREATE:
                place.parent.mkdir(parents=True, exist_ok=True)
                _create(place, file.data)
            case Action.APPEND:
                replace_file(place, file.data)
            case Action.KEEP:
                pass


def _create(place: Path, data: bytes) -> None:
    """Write a new file; one that has come to be meanwhile is an error, and is as it was."""
    with place.open("xb") as file:
        try:
            file.write(data)
            file.flush()
        except BaseException:
            with contextlib.suppress(OSError):
                place.unlink()
            raise


def _problems(place: Path, action: Action) -> Iterator[str]:
    if action is Action.KEEP:
        return
    if action is Action.APPEND and not _writable(place):
        yield f"{place} is read-only"
    folder = place.parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        yield f"{folder} is not a folder"
    elif not _writable(folder):
        yield f"the folder {folder} is read-only"


def _writable(place: Path) -> bool:
    """Tell whether its owner means it to be written: root may write everything, and should not."""
    return bool(place.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)) and os.access(place, os.W_OK)
