"""The tutorial is typed as it stands: each of its commands that needs no GPU, and each line that it says comes out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|text)( gpu)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def environment(folder: Path) -> dict[str, str]:
    """Return an environment with the flopwatch under test and an identity for git."""
    program = folder / "flopwatch"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flopwatch "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    identity = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    variables = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**variables, **identity, "PATH": path, "COLUMNS": "200"}


class Terminal:
    """Types blocks one after the other, each where the one before ended."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.place = folder
        self.output = ""
        self._end = folder / "place"
        (folder / "bin").mkdir()
        self._variables = {**environment(folder / "bin"), **variables, "PWD_FILE": str(self._end)}

    def type(self, text: str) -> None:
        """Type a block, all of whose commands must succeed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'{text}\npwd > "$PWD_FILE"'],
            cwd=self.place,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.output = done.stdout
        assert done.returncode == 0, f"{text}\n{self.output}"
        self.place = Path(self._end.read_text(encoding="utf-8").strip())


def test_what_is_typed_does_what_the_page_says(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CUDA_VISIBLE_DEVICES="")
    typed = expected = 0
    for language, gpu, text in BLOCK.findall(PAGE):
        if gpu:
            continue
        if language == "text":
            for line in text.splitlines():
                assert line in terminal.output
                expected += 1
            continue
        terminal.type(text)
        typed += 1
    assert (typed, expected) == (11, 20)
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=terminal.place, capture_output=True, text=True, check=True
    )
    assert status.stdout == ""


@pytest.mark.gpu
def test_on_a_gpu_the_planted_slowdown_turns_red(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    before, after = PAGE.split("\n## The same code on both sides\n")
    for language, _, text in BLOCK.findall(before):
        if language == "sh":
            terminal.type(text)
    expected = 0
    for language, gpu, text in BLOCK.findall(after):
        if gpu and language == "sh":
            terminal.type(text)
        elif gpu:
            for line in text.splitlines():
                assert line in terminal.output, terminal.output
                expected += 1
    assert expected == 3
