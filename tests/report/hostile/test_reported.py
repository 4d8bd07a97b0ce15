from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flopwatch.config import Config, WatchedClaim, load_config
from flopwatch.errors import ConfigError, ExitCode
from flopwatch.model import Mark, to_json
from flopwatch.report.policy import read_policy
from flopwatch.report.reported import MAX_PROBLEMS, Origin, Reported, report_on
from flopwatch.waivers import Waiver, WaiverState, WaiverUse

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.gate import GateResult

PROJECT = """\
[tool.flopwatch]
packages = ["mykernels"]
margin_percent = 1
same_within_percent = 2.0
margins = { "Attention*" = 3 }
[[tool.flopwatch.waivers]]
case = "Matmul[1x*"
reason = "64-bit offsets"
owner = "Ada"
until = 2026-12-31
limit_percent = 5
[[tool.flopwatch.conclusions]]
study = "Tiles"
says = "8 is never slow"
[[tool.flopwatch.conclusions]]
study = "Tiles"
says = "8 is within 1 % of the best"
at = ["4096,*"]
"""


@pytest.fixture
def path(honest: GateResult, tmp_path: Path) -> Path:
    path = tmp_path / "gate.json"
    path.write_bytes(to_json(honest))
    return path


def test_an_honest_result_is_believed(path: Path, honest: GateResult) -> None:
    report = report_on(path, origin=Origin(sha=honest.head), policy=Config())
    assert report == Reported(result=honest, origin=Origin(sha=honest.head))
    assert report.exit_code is ExitCode.REGRESSED


def test_a_result_about_another_commit_is_refused(path: Path) -> None:
    report = report_on(path, origin=Origin(sha="f" * 40))
    assert report.refusal == "it is about another commit"
    assert report.exit_code is ExitCode.UNDECIDED


def test_a_working_tree_is_called_by_the_commit_that_was_asked_for(honest: GateResult, tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_bytes(to_json(replace(honest, head="working tree")))
    report = report_on(path, origin=Origin(sha="f" * 40))
    assert report.result is not None
    assert report.result.head == "f" * 40
    assert " ffffffffffff -k " in report.next_command


def test_margins_of_its_own_are_refused(path: Path) -> None:
    report = report_on(path, origin=Origin(), policy=Config(margin_percent=0.25, same_within_percent=0.5))
    assert report.refusal.startswith(
        "SAME excludes 1 %, and not 0.5 %; Matmul[0x64x64,float16,flopwatch]: another margin"
    )
    assert report.refusal.count("; ") == MAX_PROBLEMS
    assert report.refusal.endswith("; and 2 more")


def test_a_waiver_that_the_repository_does_not_have_is_refused(honest: GateResult, tmp_path: Path) -> None:
    waiver = Waiver(case="Matmul[1x*", reason="x", owner="x", until=dt.date(2026, 12, 31), limit_percent=9.0)
    slower = honest.verdicts[1]
    assert slower.mark is Mark.SLOWER
    use = WaiverUse(waiver=waiver, state=WaiverState.WAIVED, text="x", case_id=slower.case.id, log_ratio=0.02)
    kept = tuple(verdict for verdict in honest.verdicts if verdict.mark is not Mark.BROKEN)
    path = tmp_path / "waived.json"
    path.write_bytes(to_json(replace(honest, verdicts=kept, waivers=(use,), suite=None)))
    assert report_on(path, origin=Origin(), policy=Config(waivers=(waiver,))).exit_code is ExitCode.OK
    forged = report_on(path, origin=Origin(), policy=Config())
    assert (forged.exit_code, forged.refusal) == (3, "a waiver that the repository does not have")


def test_other_conclusions_than_the_repositorys_are_refused(watching: GateResult, tmp_path: Path) -> None:
    claims = tuple(WatchedClaim(study=found.study, says=found.says) for found in watching.conclusions)
    path = tmp_path / "watching.json"
    path.write_bytes(to_json(watching))
    assert report_on(path, origin=Origin(), policy=Config(conclusions=claims)).result == watching
    forged = report_on(path, origin=Origin(), policy=Config(conclusions=claims[:2]))
    assert forged.refusal == "other conclusions than those that the repository watches"


def test_what_is_recomputed_otherwise_is_refused(path: Path) -> None:
    report = report_on(path, origin=Origin(), recompute=lambda _result: ["Add[1]: same, but its pairs decide slower"])
    assert report.refusal == "Add[1]: same, but its pairs decide slower"


def test_the_policy_is_what_the_gate_reads(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    known = load_config(tmp_path)
    found = read_policy(tmp_path)
    keys = ("margin_percent", "same_within_percent", "margins", "waivers", "conclusions")
    assert [getattr(found, key) for key in keys] == [getattr(known, key) for key in keys]
    assert found.margin_of("Attention[1]") == 3


@pytest.mark.parametrize("text", [None, "[", "[tool]\nflopwatch = 1", "[tool.flopwatch]\nmargin_percent = 'x'"])
def test_a_policy_that_cannot_be_read_is_an_error(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_policy(tmp_path)


def test_the_next_command_follows_from_the_verdict(honest: GateResult, watching: GateResult) -> None:
    commands = {
        "broken": Reported(result=honest).next_command,
        "unfit": Reported(result=replace(honest, verdicts=honest.verdicts[:1], suite=None, unfit="busy")).next_command,
        "refused": Reported(result=None, refusal="x").next_command,
        "fine": Reported(result=replace(honest, verdicts=honest.verdicts[:1], suite=None)).next_command,
        "lost": Reported(result=replace(watching, verdicts=honest.verdicts[:1], suite=None)).next_command,
    }
    assert commands == {
        "broken": "flopwatch gate a1b2c3d4e5f6 0123456789ab -k 'Attention[1x1x1x1,flopwatch]'",
        "unfit": "flopwatch doctor",
        "refused": "flopwatch gate --json gate.json",
        "fine": "flopwatch gate a1b2c3d4e5f6 0123456789ab",
        "lost": "flopwatch compare --study Tiles",
    }
