from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.measure.conftest import write_code

from flopwatch import __version__
from flopwatch.compare.environments import Environments, require_flopwatch
from flopwatch.config import Config
from flopwatch.errors import UsageError
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import Mode, Nursery, Worker


def script(path: Path, text: str) -> Path:
    """Write what stands in for an interpreter."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_this_interpreter_can_run_workers_and_keeps_its_links(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(script(tmp_path / "real", f'exec {sys.executable} "$@"'))
    assert require_flopwatch(link) == link


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('echo "ImportError: no flopwatch" >&2; exit 1', "ImportError: no flopwatch"),
        ("exit 1", "it says nothing"),
        ("""echo '"0.0.1"'""", f"it has flopwatch 0.0.1, this is {__version__}"),
        ("echo hello", f"it has flopwatch of an unknown version, this is {__version__}"),
    ],
)
def test_an_interpreter_that_cannot_run_workers_is_told_why(text: str, why: str, tmp_path: Path) -> None:
    python = script(tmp_path / "python", text)
    with pytest.raises(UsageError) as caught:
        require_flopwatch(python)
    assert caught.value.what == f"{python} cannot run flopwatch"
    assert caught.value.why == why
    assert f"{python} -m pip install flopwatch=={__version__}" in caught.value.todo


def test_an_interpreter_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere/python cannot be run"):
        require_flopwatch(tmp_path / "nowhere" / "python")


def test_each_side_has_its_interpreter_and_both_have_one_tree(tmp_path: Path) -> None:
    pythons = {Arm.BASE: Path("/old/bin/python"), Arm.HEAD: Path("/new/bin/python")}
    sides = Environments(Config(packages=("toy",)), device="h200", tree=tmp_path, pythons=pythons)
    assert [sides.code(arm).interpreter for arm in Arm] == ["/old/bin/python", "/new/bin/python"]
    assert {sides.code(arm).tree for arm in Arm} == {tmp_path}


def test_workers_and_nurseries_run_in_the_interpreter_that_is_named(tmp_path: Path) -> None:
    started = tmp_path / "started"
    python = script(tmp_path / "python", f'echo "$4" >> {started}\nexec {sys.executable} "$@"')
    code = replace(write_code(tmp_path), python=python)
    with Nursery(code) as nursery, Worker(Mode.GPU, code, nursery=nursery) as forked:
        assert forked.hello.declared
    with Worker(Mode.STATIC, code) as anew:
        assert anew.hello.declared
    assert len(started.read_text(encoding="utf-8").splitlines()) == 2
