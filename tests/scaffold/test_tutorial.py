"""The tutorial is typed as it stands: each of its commands that needs no GPU, and each line that it says comes out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def environment(folder: Path) -> dict[str, str]:
    """Return an environment with the flopwatch under test, an identity for git, and no GPU."""
    program = folder / "flopwatch"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flopwatch "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    identity = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    variables = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**variables, **identity, "PATH": path, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}


def test_what_is_typed_does_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    variables = environment(tmp_path / "bin")
    place, output, typed, expected = tmp_path, "", 0, 0
    for language, text in BLOCK.findall(PAGE):
        if language == "text":
            for line in text.splitlines():
                assert line in output
                expected += 1
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'{text}\npwd > "$PWD_FILE"'],
            cwd=place,
            env={**variables, "PWD_FILE": str(tmp_path / "pwd")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        output = done.stdout
        assert done.returncode == 0, f"{text}\n{output}"
        place = Path((tmp_path / "pwd").read_text(encoding="utf-8").strip())
        typed += 1
    assert (typed, expected) == (10, 16)
    status = subprocess.run(["git", "status", "--porcelain"], cwd=place, capture_output=True, text=True, check=True)
    assert status.stdout == ""
