"""Decide again by the pairs in a result: ``python -m runner.judge RESULT SETTINGS``, in a job that can write nothing.

That needs numpy, which is not installed beside a token. What comes out is one digit, an exit code of flopwatch; the job
that posts the verdict makes it green only where its own report has the same.
"""

# ruff: noqa: T201 - a job's log is what it prints

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED, UNFIT = 3, 4


def judge(result: Path, settings: Path, sha: str) -> int:
    """Return the exit code of a result: the gate's, 3 where it is refused, 4 where no GPU measured.

    Without a GPU a gate judges code and numbers alone, and is green for the slowest kernel: here that would be a GPU
    that the sandbox does not see, or a forgery.
    """
    command = [sys.executable, "-P", "-m", "flopwatch", "report", str(result), "--format", "annotations"]
    command += ["--recompute", "--policy", str(settings), "--sha", sha]
    code = subprocess.run(command, check=False).returncode  # noqa: S603 - no shell
    if code == REFUSED:
        return code
    try:
        gpu = json.loads(result.read_bytes())["gpu"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return REFUSED
    return code if isinstance(gpu, str) and gpu else UNFIT


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the output `code` of the job."""
    result, settings = map(Path, sys.argv[1:] if arguments is None else arguments)
    code = judge(result, settings, os.environ["SHA"])
    if not 0 <= code <= UNFIT:
        print(f"::error::the report failed with {code}")
        return 2
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.write(f"code={code}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
