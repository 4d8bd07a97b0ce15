"""Add a night's recordings to the branch that keeps them: ``python -m runner.store RESULTS.tar FOLDER HEAD``.

Main's code made the archive, on the machine with the GPU: it is reviewed, yet what it wrote is only taken where it has
the form of asv's results, and only where nothing else is kept. How far the night came is taken where main's history has
that commit between the last recorded one and HEAD. It runs in a clone with that history.
"""

# ruff: noqa: T201 - a job's log is what it prints

from __future__ import annotations

import re
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.pack import COMMIT, PackError, git

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: The last commit up to which nothing is left to record, in an archive and in the folder.
RECORDED = "recorded"
#: In an archive: the same commit, where it is not complete and never will be, because it takes more than a night.
GIVEN_UP = "given-up"
#: Names below results/: asv's benchmarks.json, MACHINE/machine.json and MACHINE/COMMIT-ENVIRONMENT.json, and beside the
#: last its sidecar, .jsonl.
NAME = re.compile(
    r"results/(?:benchmarks\.json|[A-Za-z0-9][A-Za-z0-9_.-]{0,63}/"
    r"(?:machine\.json|[0-9a-f]{8}-[A-Za-z0-9 _.+-]{1,160}\.jsonl?))"
)
LARGEST_BYTES = 16 * 2**20
MOST_FILES = 2000


class StoreError(Exception):
    """The archive is not what a recording writes."""


def accepted(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of an archive.

    Raises:
        StoreError: a member is no plain file, has another name, or is too large; or there are too many.
    """
    for number, member in enumerate(archive):
        if number >= MOST_FILES:
            raise StoreError(f"more than {MOST_FILES} files")
        if not member.isreg() or not (member.name in {RECORDED, GIVEN_UP} or NAME.fullmatch(member.name)):
            raise StoreError(f"{member.name!r} is no result of asv")
        if member.size > LARGEST_BYTES:
            raise StoreError(f"{member.name!r} has {member.size} bytes, more than {LARGEST_BYTES}")
        file = archive.extractfile(member)
        assert file is not None  # noqa: S101 - of a plain file there is one
        yield member.name, file.read()


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What was taken of an archive.

    Attributes:
        names: of the results.
        given_up: the commit that takes more than a night; "" where there is none.
    """

    names: tuple[str, ...]
    given_up: str


def store(archive_path: Path, folder: Path, *, repository: Path, head: str) -> Stored:
    """Write the recordings below `folder`, and how far they are complete, all or none.

    Args:
        archive_path: what the night sent.
        folder: the branch of recordings, whose file `recorded` says how far they are complete by now.
        repository: a clone with main's history.
        head: main's newest commit when the night was packed.

    Raises:
        StoreError: the archive is not of the right form, or says of another commit that it is recorded.
    """
    try:
        with tarfile.open(archive_path, "r:") as archive:
            files = dict(accepted(archive))
    except (tarfile.TarError, OSError) as error:
        raise StoreError(f"{archive_path} cannot be read: {error}") from None
    for name in files:
        target = folder / name
        if not target.parent.resolve().is_relative_to(folder.resolve()) or target.is_symlink():
            raise StoreError(f"{name!r} leads out of the folder")
    before = folder / RECORDED
    last = before.read_text(encoding="utf-8").strip() if before.is_file() else ""
    recorded = files.pop(RECORDED, b"").decode("utf-8", errors="replace")
    given_up = files.pop(GIVEN_UP, b"").decode("utf-8", errors="replace")
    check_progress(repository, recorded, last=last, head=head)
    if given_up not in {"", recorded}:
        raise StoreError(f"{given_up[:80]!r} is given up, and the night came to {recorded}")
    for name, content in (files | {RECORDED: f"{recorded}\n".encode()}).items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return Stored(names=tuple(sorted(files)), given_up=given_up)


def check_progress(repository: Path, recorded: str, *, last: str, head: str) -> None:
    """Refuse a commit that is not of main, or not beyond the last recorded one: nights would skip some, or stand still.

    Args:
        repository: a clone with main's history.
        recorded: what the archive says.
        last: recorded before; "" in the first night. One that main's line does not have, after a forced push, is passed
            over, as `runner.pack` does.
        head: main's newest commit when the night was packed.

    Raises:
        StoreError: the commit is refused, or the clone cannot tell.
    """
    if not recorded:
        raise StoreError("the archive does not say how far the night came: install the sandbox of this main branch")
    if not COMMIT.fullmatch(recorded):
        raise StoreError(f"{recorded[:80]!r} is no full hash of a commit that is recorded")
    try:
        if git("rev-parse", "--is-shallow-repository", cwd=repository) != "false":
            raise StoreError("main's history is needed, and the clone is shallow")
        line = git("rev-list", "--first-parent", "--end-of-options", head, "--", cwd=repository).splitlines()
    except PackError as error:
        raise StoreError(str(error)) from None
    newer = line[: line.index(last)] if last in line else line
    if recorded not in newer:
        raise StoreError(f"{recorded} is no commit of main after {last or 'the first'} and up to {head}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Store one archive."""
    archive, folder, head = sys.argv[1:] if arguments is None else arguments
    try:
        stored = store(Path(archive), Path(folder), repository=Path(), head=head)
    except StoreError as error:
        print(f"::error::{str(error)!a}")
        return 2
    if stored.given_up:
        print(f"::warning::{stored.given_up} takes more than a night and is given up: its sidecar, a .jsonl, says why")
    print(f"{len(stored.names)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
