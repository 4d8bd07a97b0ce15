from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.report.test_footprint import FOUND

from flopwatch.cli import main
from flopwatch.errors import ExitCode
from flopwatch.explain.footprints import FootprintOptions, Footprints
from flopwatch.model import Case
from flopwatch.report.footprint import footprint_svg

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository

CASE = Case(suite="Scale", values=("1000", "float32", "flopwatch"))


class Run:
    """Stands in for `run_footprints`."""

    def __init__(self) -> None:
        self.result = Footprints(launches=((CASE, FOUND),))
        self.options: list[FootprintOptions] = []

    def __call__(self, options: FootprintOptions, _root: Path, **_: object) -> Footprints:
        self.options.append(options)
        return self.result


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    stand_in = Run()
    monkeypatch.setattr("flopwatch.explain.footprints.run_footprints", stand_in)
    return stand_in


def test_the_options_reach_the_run(toy: ToyRepository, run: Run, tmp_path: Path) -> None:
    start = ["footprint", "-C", str(toy.root), "Scale", "--out", str(tmp_path / "a" / "b")]
    assert main(start) == ExitCode.OK
    assert main([*start, "--device", "b200", "--small", "--program", "0,31"]) == ExitCode.OK
    assert run.options == [
        FootprintOptions(select="Scale"),
        FootprintOptions(select="Scale", device="b200", small=True, programs=(0, 31)),
    ]


@pytest.mark.usefixtures("run")
def test_each_launch_is_a_file_and_a_line(
    toy: ToyRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["footprint", "-C", str(toy.root), "Scale", "--out", str(tmp_path)]) == ExitCode.OK
    (path,) = tmp_path.glob("*.svg")
    assert path.name == "Scale-1000-float32-flopwatch-0-add_kernel.svg"
    assert path.read_text(encoding="utf-8") == footprint_svg(FOUND, CASE.id)
    assert capsys.readouterr().out == f"{CASE.id}: add_kernel [BLOCK=4] -> {path}\n"


def test_what_is_not_drawn_is_told(
    toy: ToyRepository, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = replace(FOUND, panels=(), unknown=("its loops take too many turns",))
    run.result = Footprints(launches=((CASE, nothing),), failures=("Scale[2]: [b]no[/b]",))
    assert main(["footprint", "-C", str(toy.root), "Scale", "--out", str(tmp_path)]) == ExitCode.UNDECIDED
    assert list(tmp_path.glob("*.svg")) == []
    assert capsys.readouterr().out.splitlines() == [
        f"not shown of {CASE.id}: its loops take too many turns",
        "not compiled: Scale[2]: [b]no[/b]",
    ]


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("text", ["one", "-1"])
def test_programs_are_numbers(text: str, toy: ToyRepository, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["footprint", "-C", str(toy.root), "Scale", "--out", str(tmp_path), f"--program={text}"])
    assert caught.value.code == ExitCode.USAGE
