"""Add a night's recordings to the branch that keeps them: ``python -m runner.store RESULTS.tar FOLDER``.

Main's code made the archive, on the machine with the GPU: it is reviewed, yet what it wrote is only taken where it has
the form of asv's results, and only where nothing else is kept.
"""

# ruff: noqa: T201 - a job's log is what it prints

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        if not member.isreg() or not NAME.fullmatch(member.name):
            raise StoreError(f"{member.name!r} is no result of asv")
        if member.size > LARGEST_BYTES:
            raise StoreError(f"{member.name!r} has {member.size} bytes, more than {LARGEST_BYTES}")
        file = archive.extractfile(member)
        assert file is not None  # noqa: S101 - of a plain file there is one
        yield member.name, file.read()


def store(archive_path: Path, folder: Path) -> list[str]:
    """Write the recordings below `folder`, all or none; returns their names.

    Raises:
        StoreError: the archive is not of the right form.
    """
    try:
        with tarfile.open(archive_path, "r:") as archive:
            files = dict(accepted(archive))
    except (tarfile.TarError, OSError) as error:
        raise StoreError(f"{archive_path} cannot be read: {error}") from None
    for name, content in files.items():
        target = folder / name
        if not target.parent.resolve().is_relative_to(folder.resolve()) or target.is_symlink():
            raise StoreError(f"{name!r} leads out of the folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return sorted(files)


def main(arguments: Sequence[str] | None = None) -> int:
    """Store one archive."""
    archive, folder = map(Path, sys.argv[1:] if arguments is None else arguments)
    try:
        names = store(archive, folder)
    except StoreError as error:
        print(f"::error::{str(error)!a}")
        return 2
    print(f"{len(names)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
