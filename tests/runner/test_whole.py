"""The gate of a pull request from end to end: packed, measured in a real sandbox, read as hostile data."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from runner import pack, post, sandbox
from runner.sandbox import Config

import flopwatch

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Config:
    """Let the sandbox see the environment of these tests, which on a runner lies below /opt."""
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    folders = {Path(sys.prefix), Path(sys.base_prefix), Path(flopwatch.__file__).parents[1]}
    binds = [word for path in sorted(folders) for word in ("--ro-bind", str(path), str(path))]
    original = sandbox.bubblewrap_command

    def command(config: Config, program: Sequence[str], *, devices: Sequence[str]) -> list[str]:
        words = original(config, program, devices=devices)
        at = len(words) - words[::-1].index("--tmpfs") + 1  # behind that of /tmp, below which the checkout may lie
        return [*words[:at], *binds, *words[at:]]

    monkeypatch.setattr(sandbox, "bubblewrap_command", command)
    config = Config(environment=sys.prefix)
    check = subprocess.run(command(config, ["true"], devices=[]), capture_output=True, text=True, check=False)
    if check.returncode:
        pytest.skip(f"bubblewrap does not work here: {check.stderr.strip()}")
    monkeypatch.setattr(sandbox, "load_config", lambda *_, **__: config)
    monkeypatch.setattr(sandbox, "refuse_root", lambda: None)
    monkeypatch.setattr(sandbox, "gpu_devices", lambda _: [])
    return config


@pytest.mark.usefixtures("installed")
def test_a_pull_request_that_breaks_a_kernel_and_bends_the_ruler_is_red(tmp_path: Path, toy: Any) -> None:  # noqa: ANN401 - a record of tests/conftest.py
    base = toy.commit("base")
    toy.edit("* factor, mask", "* factor + 1, mask")
    toy.suite.write_text(toy.suite.read_text().replace("x.double() * factor", "x.double() * factor + 1"))
    head = toy.commit("wrong, and the reference with it")
    trial, result, settings = tmp_path / "trial.tar", tmp_path / "result.json", tmp_path / "settings"
    packed = ["gate", str(trial), "--repository", str(toy.root), "--head", head, "--base", base]

    assert pack.main([*packed, "--settings", str(settings)]) == 0
    assert sandbox.main(["gate", str(trial), str(result)]) == 0
    target = post.Target(repository="owner/name", pr="7", sha=head, url="", judged="1")
    report = post.make_report(result, settings, target, summary=None)

    assert (report.state, report.description) == post.STATES[1]
    assert "Scale[1000,float16" in report.comment.replace("\\", "")
