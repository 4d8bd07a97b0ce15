"""What runs inside the sandbox: unpack a trial, let flopwatch measure it, and send the result out.

The trial is read from stdin and the result written to stdout; all that the measured code prints becomes stderr. This
file stands alone, and nothing in it protects anything: whatever runs in here can do all that it can.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import BinaryIO

#: `-P` keeps the trial's own folder out of the path of imports: the flopwatch that judges is the installed one.
FLOPWATCH = (sys.executable, "-P", "-m", "flopwatch")
RESULTS = "results"


def unpack(source: BinaryIO, repository: Path) -> None:
    """Unpack the git folder of a trial, and check its head out."""
    with tarfile.open(fileobj=source, mode="r|") as archive:
        archive.extractall(repository, filter="data")
    command = ["git", "-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--force"]
    subprocess.run(command, cwd=repository, check=True)  # noqa: S603 - no shell


def gate(repository: Path, out: BinaryIO) -> int:
    """Compare head with base; returns the gate's exit code.

    Head is the working tree: a pull request's head has base's suites in it, and is no commit that anybody knows.
    """
    result = repository.with_name("gate.json")
    command = [*FLOPWATCH, "gate", "refs/heads/base", "--json", str(result)]
    code = subprocess.run(command, cwd=repository, check=False).returncode  # noqa: S603 - no shell
    with contextlib.suppress(FileNotFoundError):
        out.write(result.read_bytes())
    return code


def record(repository: Path, out: BinaryIO) -> int:
    """Record the commits from base to head; returns the exit code of ``flopwatch record``."""
    before = _contents(repository)
    command = [*FLOPWATCH, "record", "refs/heads/base..refs/heads/head"]
    code = subprocess.run(command, cwd=repository, check=False).returncode  # noqa: S603 - no shell
    changed = [path for path, content in _contents(repository).items() if before.get(path) != content]
    if changed:
        with tarfile.open(fileobj=out, mode="w|") as archive:
            for path in sorted(changed):
                archive.add(repository / path, arcname=path, recursive=False)
    return code


def _contents(repository: Path) -> dict[str, bytes]:
    """Return the files of the results, by their path from the repository."""
    return {
        path.relative_to(repository).as_posix(): path.read_bytes()
        for path in (repository / RESULTS).rglob("*.json*")
        if path.is_file() and not path.is_symlink()
    }


def main() -> int:
    """Run the verb that the launcher names."""
    verb = {"gate": gate, "record": record}[sys.argv[1]]
    repository = Path.cwd() / "trial"
    repository.mkdir()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        unpack(sys.stdin.buffer, repository)
        return verb(repository, out)


if __name__ == "__main__":
    sys.exit(main())
