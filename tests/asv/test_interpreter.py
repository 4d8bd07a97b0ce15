from __future__ import annotations

import os
import platform
import sys
import venv
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from flopwatch.asv.interpreter import find_interpreter, probe_interpreter
from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Forget what was probed before."""
    probe_interpreter.cache_clear()
    yield
    probe_interpreter.cache_clear()


def test_the_versions_are_those_of_the_interpreter_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    found = probe_interpreter(sys.executable)

    assert (found.torch, found.triton) == (metadata.version("torch"), metadata.version("triton"))
    assert found.python == ".".join(platform.python_version_tuple()[:2])
    assert found.gpu is None


def test_an_interpreter_is_asked_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = tmp_path / "python"
    answer = '{"python": "3.12", "torch": "2.12.0", "triton": "3.6.0", "gpu": "NVIDIA H200"}'
    script.write_text(f"#!/bin/sh\necho asked >> {log}\necho '{answer}'\n", encoding="utf-8")
    script.chmod(0o755)

    assert probe_interpreter(str(script)).gpu == "NVIDIA H200"
    assert probe_interpreter(str(script)).triton == "3.6.0"
    assert log.read_text(encoding="utf-8") == "asked\n"


def test_a_module_in_the_current_folder_does_not_stand_in_for_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('shadowed')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert probe_interpreter(sys.executable).missing == ()


def test_an_interpreter_without_torch_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "bare", with_pip=False)

    with pytest.raises(UsageError) as caught:
        probe_interpreter(str(tmp_path / "bare" / "bin" / "python"))

    assert "lacks flopwatch, asv_runner, torch, triton" in caught.value.what
    assert "shared_python" in caught.value.todo


def test_a_program_that_is_no_interpreter_is_an_error() -> None:
    with pytest.raises(UsageError, match="cannot be asked for its versions"):
        probe_interpreter("/bin/true")


def test_without_a_setting_the_interpreter_is_that_of_asv() -> None:
    assert find_interpreter(None) == sys.executable


def test_the_link_of_a_virtual_environment_is_kept(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(os.path.realpath(sys.executable))

    assert find_interpreter(str(link)) == str(link)


def test_an_interpreter_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        find_interpreter("/nowhere/python")

    assert str(caught.value).startswith("no interpreter /nowhere/python\n  why: asv.conf.json names it")
