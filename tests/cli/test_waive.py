from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from flopwatch.cli import main
from flopwatch.config import load_config
from flopwatch.errors import ExitCode
from flopwatch.waivers import Waiver

if TYPE_CHECKING:
    from tests.conftest import ToyRepository


@pytest.fixture(autouse=True)
def _suites(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask no worker for the cases, which takes seconds, but in the tests that are about that."""
    if "declared_cases" not in request.fixturenames:
        monkeypatch.setattr("flopwatch.cli.waive.declared_cases", lambda *_: ())


@pytest.fixture
def declared_cases() -> None:
    """Ask the suites."""


def day(ahead: int) -> date:
    return datetime.now(UTC).date() + timedelta(days=ahead)


def waive(toy: ToyRepository, *arguments: str) -> int:
    return main(["waive", "-C", str(toy.root), *arguments])


def good(**changed: str) -> list[str]:
    options = {"reason": "int64", "until": str(day(30)), "limit": "5%", "owner": "Ada"} | changed
    return [f"--{key}={value}" for key, value in options.items()]


def settings(toy: ToyRepository) -> bytes:
    return (toy.root / "pyproject.toml").read_bytes()


def test_a_waiver_is_written_shown_and_read_by_the_gate(capsys: pytest.CaptureFixture[str], toy: ToyRepository) -> None:
    before = settings(toy)
    assert waive(toy, "Scale[*,float16,*]", *good()) == ExitCode.OK

    printed = capsys.readouterr().out
    after = settings(toy)
    assert load_config(toy.root).waivers == (
        Waiver(case="Scale[*,float16,*]", reason="int64", owner="Ada", until=day(30), limit_percent=5.0),
    )
    assert after.startswith(before)
    assert after.removeprefix(before).decode().strip() in printed
    assert "Commit it" in printed


@pytest.mark.usefixtures("declared_cases")
@pytest.mark.parametrize(("case", "waives"), [("Scale[*,float16,*]", True), ("Scael[*", False)])
def test_a_waiver_of_no_case_is_written_and_told_of(
    case: str, *, waives: bool, capsys: pytest.CaptureFixture[str], toy: ToyRepository
) -> None:
    assert waive(toy, case, *good()) == ExitCode.OK
    last = capsys.readouterr().out.splitlines()[-1]
    suites = "the suites have Scale[1000000,float16,flopwatch] and 1 more."
    told = f"No case has such a name now, so that it waives nothing; {suites}"
    assert (last == told) is not waives
    assert load_config(toy.root).waivers[0].case == case


@pytest.mark.usefixtures("declared_cases")
def test_suites_that_cannot_be_imported_keep_no_waiver_from_being_written(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository
) -> None:
    toy.suite.write_text("import gone", encoding="utf-8")
    assert waive(toy, "Scael[*", *good()) == ExitCode.OK
    assert "No case" not in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "percent"), [("5%", 5.0), ("5", 5.0), ("0.25 %", 0.25), ("1e1%", 10.0)])
def test_a_limit_may_have_a_percent_sign(typed: str, percent: float, toy: ToyRepository) -> None:
    assert waive(toy, "Scale*", *good(limit=typed)) == ExitCode.OK
    assert load_config(toy.root).waivers[0].limit_percent == percent


@pytest.mark.parametrize(
    ("name", "email", "owner"),
    [("Ada", "ada@example.org", "Ada <ada@example.org>"), ("Ada", "", "Ada"), ("", "a@example.org", "a@example.org")],
)
def test_the_owner_is_who_git_says(name: str, email: str, owner: str, toy: ToyRepository) -> None:
    toy.git("config", "user.name", name)
    toy.git("config", "user.email", email)
    assert waive(toy, "Scale*", *good()[:-1]) == ExitCode.OK
    assert load_config(toy.root).waivers[0].owner == owner


def test_an_owner_that_git_does_not_know_is_asked_for(capsys: pytest.CaptureFixture[str], toy: ToyRepository) -> None:
    toy.git("config", "user.name", "")
    toy.git("config", "user.email", "")
    before = settings(toy)
    assert waive(toy, "Scale*", *good()[:-1]) == ExitCode.USAGE
    assert "--owner: missing" in capsys.readouterr().err
    assert settings(toy) == before


@pytest.mark.parametrize("text", ['"', "'''", "]]\n[tool]", "🚀\u202e\x1b[31m", "\\", "x" * 20_000, "-5%"])
def test_hostile_text_comes_back_as_it_was(text: str, capsys: pytest.CaptureFixture[str], toy: ToyRepository) -> None:
    assert waive(toy, "Scale*", *good(reason=text, owner=text)) == ExitCode.OK
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())
    (waiver,) = load_config(toy.root).waivers
    assert (waiver.reason, waiver.owner) == (text, text)


def test_all_that_is_wrong_is_said_at_once_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository
) -> None:
    before = settings(toy)
    assert waive(toy, "Scale", *good(reason=" ", until="soon", limit="lots", owner="")) == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert printed.startswith("flopwatch: no waiver was written\n  why: CASE: 'Scale' matches no case")
    for problem in (
        "--reason: is blank",
        "--until: 'soon' is no date such as 2026-12-31",
        "--limit: 'lots' is no percentage such as 5%",
        "--owner: is blank",
    ):
        assert problem in printed
    assert "  do:  " in printed
    assert settings(toy) == before


def test_nothing_typed_is_everything_missing(capsys: pytest.CaptureFixture[str], toy: ToyRepository) -> None:
    assert waive(toy) == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert all(f"{typed}: missing" in printed for typed in ("CASE", "--reason", "--until", "--limit"))


@pytest.mark.parametrize("ahead", [-1, 0, 367])
def test_a_day_that_has_passed_or_is_too_far_is_refused(
    ahead: int, capsys: pytest.CaptureFixture[str], toy: ToyRepository
) -> None:
    assert waive(toy, "Scale*", *good(until=str(day(ahead)))) == ExitCode.USAGE
    assert "is not between tomorrow and a year from now" in capsys.readouterr().err


@pytest.mark.parametrize("ahead", [1, 366])
def test_a_day_within_a_year_is_accepted(ahead: int, toy: ToyRepository) -> None:
    assert waive(toy, "Scale*", *good(until=str(day(ahead)))) == ExitCode.OK


@pytest.mark.parametrize("limit", ["0%", "-1%", "nan", "inf%"])
def test_a_limit_that_is_none_is_refused(limit: str, capsys: pytest.CaptureFixture[str], toy: ToyRepository) -> None:
    assert waive(toy, "Scale*", *good(limit=limit)) == ExitCode.USAGE
    assert "is not a finite number > 0" in capsys.readouterr().err


def test_a_second_waiver_of_the_same_cases_is_refused(capsys: pytest.CaptureFixture[str], toy: ToyRepository) -> None:
    assert waive(toy, "Scale*", *good()) == ExitCode.OK
    before = settings(toy)
    assert waive(toy, "Scale*", *good(limit="50%")) == ExitCode.USAGE
    assert "CASE: pyproject.toml has a waiver of it already" in capsys.readouterr().err
    assert settings(toy) == before


def test_a_configuration_that_is_wrong_already_is_not_added_to(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository
) -> None:
    (toy.root / "pyproject.toml").write_text('[tool.flopwatch]\npackages = ["toykernels"]\nspeed = 1\n')
    before = settings(toy)
    assert waive(toy, "Scale*", *good()) == ExitCode.USAGE
    assert "speed: no such key" in capsys.readouterr().err
    assert settings(toy) == before


def test_the_list_shows_what_holds_and_what_has_expired(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert waive(toy, "Scale*", *good()) == ExitCode.OK
    with (toy.root / "pyproject.toml").open("a") as file:
        file.write(
            f'[[tool.flopwatch.waivers]]\ncase = "Old*"\nreason = "r"\nowner = "Bo"\n'
            f"until = {day(-2)}\nlimit_percent = 3\n"
        )
    capsys.readouterr()
    assert waive(toy, "--list") == ExitCode.OK
    printed = capsys.readouterr().out
    assert "30 days left" in printed
    assert "expired 2 days ago" in printed


def test_a_list_of_none_says_so(capsys: pytest.CaptureFixture[str], toy: ToyRepository) -> None:
    assert waive(toy, "--list") == ExitCode.OK
    assert capsys.readouterr().out == "No waivers: every case is held to its margin.\n"


def test_a_list_ignores_no_option(capsys: pytest.CaptureFixture[str], toy: ToyRepository) -> None:
    assert waive(toy, "Scale*", "--list", "--limit", "5%") == ExitCode.USAGE
    assert "CASE, --limit would be ignored" in capsys.readouterr().err
