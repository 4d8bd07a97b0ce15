from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.cli import main
from flopwatch.errors import ExitCode
from flopwatch.model import Case, from_json
from flopwatch.profile import Profile, ProfiledCase, ProfileOptions
from flopwatch.profile.hatchet import Frame
from flopwatch.profile.roofline import Point, RooflineOptions, RooflinePoints

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

CASE = Case(suite="Scale", values=("1000000", "float16", "flopwatch"))
FOUND = Profile(
    gpu="NVIDIA H200",
    versions={},
    cases=(ProfiledCase(case=CASE, flops=1e6, bytes_moved=4e6, calls=8, kernel_seconds=2e-6),),
    tree=Frame(name="ROOT", children=(Frame(name=CASE.id, time_ns=16000, count=8),)),
)
POINTS = RooflinePoints(
    device="h200",
    points=(Point(case=CASE, flops=1e6, bytes_moved=4e6, seconds=2e-6, measured=True),),
    source="asv's results",
    left_out=("Scale[8] [b]was[/b] not",),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ProfileOptions]:
    """What a stand-in for `run_profile` was asked."""
    options: list[ProfileOptions] = []

    def stand_in(asked: ProfileOptions, _root: Path, **_: object) -> Profile:
        options.append(asked)
        return FOUND

    monkeypatch.setattr("flopwatch.profile.run.run_profile", stand_in)
    return options


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[RooflineOptions]:
    """What a stand-in for `gather` was asked."""
    options: list[RooflineOptions] = []

    def stand_in(asked: RooflineOptions, _root: Path, **_: object) -> RooflinePoints:
        options.append(asked)
        return POINTS

    monkeypatch.setattr("flopwatch.profile.roofline.gather", stand_in)
    return options


def test_the_options_reach_the_profile(toy: ToyRepository, asked: list[ProfileOptions], tmp_path: Path) -> None:
    start = ["profile", "-C", str(toy.root), "Scale"]
    assert main(start) == ExitCode.OK
    more = ["--provider", "torch", "--provider", "flopwatch", "--calls", "20", "--counters", "--memory"]
    assert main([*start, *more, "--out", str(tmp_path)]) == ExitCode.OK
    assert asked == [
        ProfileOptions(select="Scale", out=toy.root / ".flopwatch" / "profile"),
        ProfileOptions(
            select="Scale", out=tmp_path, providers=("torch", "flopwatch"), calls=20, counters=True, snapshot=True
        ),
    ]


@pytest.mark.usefixtures("asked")
def test_the_profile_is_printed_and_written(
    toy: ToyRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    assert main(["profile", "-C", str(toy.root), "Scale", "--json", str(path)]) == ExitCode.OK
    assert "1 case on NVIDIA H200" in capsys.readouterr().out
    assert from_json(path.read_bytes(), Profile) == FOUND


@pytest.mark.parametrize(
    ("arguments", "todo"),
    [
        ([], "name a part of a case's name"),
        (["Scale", "--show", "a.hatchet"], "leave out CASE"),
        (["Scale", "--device", "h200"], "name --roofline"),
        (["Scale", "--from", "gate.json"], "name --roofline"),
        (["--roofline", "a.png"], ".svg or .html"),
        (["--show", "a.hatchet", "--json", "a.json"], "all other options"),
        (["--show", "a.hatchet", "--counters"], "all other options"),
        (["Scale", "--roofline", "a.svg", "--counters"], "or --roofline"),
        (["Scale", "--roofline", "a.svg", "--out", "here"], "or --roofline"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    arguments: list[str], todo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *arguments]) == ExitCode.USAGE
    assert todo in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-3", "many"])
def test_a_number_of_calls_is_one(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["profile", "Scale", "--calls", number])
    assert caught.value.code == ExitCode.USAGE
    assert "calls" in capsys.readouterr().err


def test_without_a_gpu_the_machine_is_unfit(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", dict)
    assert main(["profile", "-C", str(toy.root), "Scale"]) == ExitCode.UNFIT
    assert "--roofline" in capsys.readouterr().err


def test_a_tree_that_another_machine_recorded_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.hatchet"
    kernel = '{"frame": {"name": "[b]k[/b]"}, "metrics": {"time (ns)": 2000, "count": 2}, "children": []}'
    path.write_text(f'[{{"frame": {{"name": "ROOT"}}, "metrics": {{}}, "children": [{kernel}]}}, {{}}]')
    assert main(["profile", "--show", str(path)]) == ExitCode.OK
    line = next(line for line in capsys.readouterr().out.splitlines() if "[b]k[/b]" in line)
    assert [cell.strip() for cell in line.strip("│").split("│")][1:5] == ["2.000 µs", "100.0 %", "2", "1.000 µs"]


@pytest.mark.usefixtures("gathered")
@pytest.mark.parametrize(("name", "start"), [("a.svg", "<svg "), ("b.HTML", "<!doctype html>")])
def test_the_roofline_is_a_picture_or_a_page(name: str, start: str, toy: ToyRepository, tmp_path: Path) -> None:
    path = tmp_path / name
    assert main(["profile", "-C", str(toy.root), "--roofline", str(path)]) == ExitCode.OK
    assert path.read_text(encoding="utf-8").startswith(start)


def test_the_options_reach_the_roofline_and_what_is_left_out_is_told(
    toy: ToyRepository, gathered: list[RooflineOptions], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.svg"
    arguments = ["--roofline", str(path), "--device", "h200", "--from", "gate.json", "--provider", "torch"]
    assert main(["profile", "-C", str(toy.root), *arguments]) == ExitCode.OK
    assert gathered == [RooflineOptions(providers=("torch",), device="h200", source=Path("gate.json"))]
    assert capsys.readouterr().out.splitlines() == [
        f"1 case as measured (asv's results), under the roofs of the NVIDIA H200. -> {path}",
        "left out: Scale[8] [b]was[/b] not",
    ]


@pytest.mark.usefixtures("gathered")
def test_a_full_disk_leaves_the_roofline_that_was_there(
    toy: ToyRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def half(path: Path, text: str, **_: object) -> int:
        with path.open("w", encoding="utf-8") as file:
            file.write(text[:9])
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.svg"
    path.write_text("of yesterday", encoding="utf-8")
    monkeypatch.setattr(Path, "write_text", half)
    assert main(["profile", "-C", str(toy.root), "--roofline", str(path)]) == ExitCode.USAGE
    assert path.read_text(encoding="utf-8") == "of yesterday"
    assert "1 case as measured" in capsys.readouterr().out
