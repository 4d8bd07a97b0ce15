"""The workflows' own steps from end to end, in a real sandbox: the gate of a pull request, and a night."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from runner import pack, post, sandbox
from runner.sandbox import Config
from tests.conftest import HAS_GPU
from tests.record.conftest import ASV_CONF
from tests.runner.test_scripts import RUNNER, run

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


@pytest.mark.skipif(HAS_GPU, reason="is about a machine without a GPU")
@pytest.mark.usefixtures("installed")
def test_a_night_without_a_gpu_records_in_the_sandbox_and_keeps_nothing(
    tmp_path: Path,
    toy: Any,  # noqa: ANN401 - likewise
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(RUNNER, toy.root / "runner", ignore=shutil.ignore_patterns("__pycache__"))
    (toy.root / "asv.conf.json").write_text(json.dumps(ASV_CONF))
    toy.git("add", "--all")
    toy.git("commit", "--quiet", "--amend", "--no-edit")
    head = toy.commit("what came to main")
    trial, output = tmp_path / "trial.tar", tmp_path / "output"
    packed = run("pack-night.sh", str(trial), cwd=toy.root, MAIN="main", HEAD=head, GITHUB_OUTPUT=str(output))
    assert (packed.returncode, output.read_text()) == (0, f"base={toy.git('rev-parse', 'HEAD~1').strip()}\n")

    code = sandbox.main(["record", str(trial), str(tmp_path / "results.tar")])

    log = capfd.readouterr().out
    assert f"|   {head[:8]}: 4 cases" in log
    assert "| there is no GPU in here" in log
    assert (code, (tmp_path / "results.tar").exists()) == (3, False)
