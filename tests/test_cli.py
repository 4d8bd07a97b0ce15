from __future__ import annotations

import pytest

from flopwatch import __version__
from flopwatch.cli import build_parser, main
from flopwatch.errors import ExitCode


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
    assert printed.startswith("flopwatch: git rev-parse --show-toplevel failed\n  why: ")
    assert "Traceback" not in printed
