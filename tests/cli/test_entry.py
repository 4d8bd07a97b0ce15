from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from flopwatch import __version__
from flopwatch.cli import build_parser, main
from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository


def test_help_lists_the_verbs_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(["--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "gate" in printed
    assert all(f"  {code.value}  " in printed for code in ExitCode)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"flopwatch {__version__}\n"


def test_an_unknown_verb_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["gatte"])
    assert caught.value.code == ExitCode.USAGE
    assert "gatte" in capsys.readouterr().err


def test_an_error_is_three_lines_and_its_exit_code(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert main(["gate", "-C", str(tmp_path)]) == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert printed.startswith(f"flopwatch: {tmp_path} is in no git repository\n  why: ")
    assert "Traceback" not in printed


def test_a_folder_that_is_not_there_is_told_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["gate", "-C", str(tmp_path / "nowhere")]) == ExitCode.USAGE
    assert "is not a folder" in capsys.readouterr().err


def test_verbose_shows_the_traceback_and_keeps_the_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["gate", "-v", "-C", str(tmp_path)]) == ExitCode.USAGE
    assert "Traceback" in capsys.readouterr().err


def test_a_setting_that_is_no_table_is_told_so(capsys: pytest.CaptureFixture[str], toy: ToyRepository) -> None:
    (toy.root / "pyproject.toml").write_text("[tool]\nflopwatch = 3\n", encoding="utf-8")
    assert main(["gate", "-C", str(toy.root)]) == ExitCode.USAGE
    assert "not a table" in capsys.readouterr().err


def test_a_bug_is_not_reported_as_a_regression(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flopwatch.gate.run.run_gate", lambda *_arguments, **_options: 1 / 0)
    assert main(["gate", "-C", str(toy.root)]) == ExitCode.UNDECIDED
    assert "internal error: ZeroDivisionError" in capsys.readouterr().err


def test_a_full_disk_is_told_so(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("flopwatch.gate.run.run_gate", full)
    assert main(["gate", "-C", str(toy.root)]) == ExitCode.USAGE
    assert capsys.readouterr().err.endswith("flopwatch: No space left on device\n")


@pytest.mark.parametrize(
    "verb", ["bisect", "compare", "doctor", "gate", "history", "init", "record", "report", "waive"]
)
def test_every_verb_has_a_page_that_ends_in_examples_and_exit_codes(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "-C DIR" in printed
    assert printed.index(f"examples:\n  flopwatch {verb}") < printed.index("exit codes:")
