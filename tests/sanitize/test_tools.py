from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import ExitCode, MachineError
from flopwatch.sanitize.tools import WHEEL, compute_sanitizer_version, find_compute_sanitizer

if TYPE_CHECKING:
    from pathlib import Path


def plant(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho 'Version 2026.4.0.0 (build 1) (public-release)'\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has none."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    places = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: places)
    return tmp_path


def test_the_path_comes_before_cuda_home_and_that_before_the_wheel(nowhere: Path) -> None:
    wheel = plant(nowhere / "nvidia" / "cu13" / "compute-sanitizer" / "compute-sanitizer")
    assert find_compute_sanitizer() == wheel
    cuda = plant(nowhere / "cuda" / "bin" / "compute-sanitizer")
    assert find_compute_sanitizer() == cuda
    path = plant(nowhere / "bin" / "compute-sanitizer")
    assert find_compute_sanitizer() == path


def test_a_file_that_cannot_be_run_is_not_it(nowhere: Path) -> None:
    path = nowhere / "cuda" / "bin" / "compute-sanitizer"
    plant(path)
    path.chmod(0o644)

    with pytest.raises(MachineError):
        find_compute_sanitizer()


@pytest.mark.usefixtures("nowhere")
def test_where_there_is_none_the_wheel_is_named() -> None:
    with pytest.raises(MachineError) as caught:
        find_compute_sanitizer()

    assert WHEEL in caught.value.todo
    assert caught.value.exit_code is ExitCode.UNFIT


def test_its_version_is_read(nowhere: Path) -> None:
    assert compute_sanitizer_version(plant(nowhere / "tool")) == "2026.4.0.0"
