from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.tune.test_table import CASE, RESULT

from flopwatch.cli import main
from flopwatch.errors import ExitCode
from flopwatch.model import from_json
from flopwatch.tune import TuneOptions, TuneResult
from flopwatch.tune.facts import Limits
from flopwatch.tune.table import read_table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository


class Tune:
    """Stands in for `run_tune`."""

    def __init__(self) -> None:
        self.result = RESULT
        self.options: list[TuneOptions] = []

    def __call__(self, options: TuneOptions, _root: Path, **_: object) -> TuneResult:
        self.options.append(options)
        return self.result


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch) -> Tune:
    stand_in = Tune()
    monkeypatch.setattr("flopwatch.tune.run.run_tune", stand_in)
    return stand_in


def test_the_options_reach_the_run(toy: ToyRepository, tune: Tune) -> None:
    start = ["tune", "-C", str(toy.root), "Scale"]
    assert main(start) == ExitCode.OK
    options = ["--shapes", "1x2, 3x4,1x2", "--space", "B=1,2", "num_warps=4", "--device", "b200", "--rounds", "3"]
    more = ["--pairs", "9", "--resolution", "0", "--min-occupancy", "25", "--against", "torch", "--against", "rule"]
    assert main([*start, *options, *more]) == ExitCode.OK
    assert tune.options == [
        TuneOptions(select="Scale", space={}),
        TuneOptions(
            select="Scale",
            shapes=("1x2", "3x4"),
            space={"B": ("1", "2"), "num_warps": ("4",)},
            device="b200",
            rounds=3,
            pairs=9,
            resolution_percent=0.0,
            limits=Limits(occupancy=0.25),
            providers=("torch", "rule"),
        ),
    ]


def test_the_result_is_written_as_json(toy: ToyRepository, tune: Tune, tmp_path: Path) -> None:
    assert main(["tune", "-C", str(toy.root), "Scale", "--json", str(tmp_path / "tune.json")]) == ExitCode.OK
    assert from_json((tmp_path / "tune.json").read_bytes(), TuneResult) == tune.result


def test_the_table_keeps_what_it_had(toy: ToyRepository, tune: Tune, tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    line = ["tune", "-C", str(toy.root), "Scale", "--out", str(path)]
    assert main(line) == ExitCode.OK
    other = replace(CASE, case=replace(CASE.case, values=("2048", "flopwatch")))
    tune.result = replace(RESULT, cases=(other,))
    assert main(line) == ExitCode.OK
    assert [entry.case.values[0] for entry in read_table(path).entries] == ["1024", "2048"]


def test_without_a_choice_a_table_is_not_touched(toy: ToyRepository, tune: Tune, tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    line = ["tune", "-C", str(toy.root), "Scale", "--out", str(path)]
    assert main(line) == ExitCode.OK
    before = path.read_bytes()
    tune.result = replace(RESULT, gpu=None, cases=(replace(CASE, chosen=None),))
    assert main(line) == ExitCode.UNDECIDED
    assert path.read_bytes() == before


def test_a_file_that_is_no_table_is_found_out_before_anything_is_measured(
    toy: ToyRepository, tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("of mine", encoding="utf-8")
    assert main(["tune", "-C", str(toy.root), "Scale", "--out", str(path)]) == ExitCode.USAGE
    assert "is no table of choices" in capsys.readouterr().err
    assert tune.options == []
    assert path.read_text(encoding="utf-8") == "of mine"


def test_a_result_that_cannot_be_written_does_not_cost_the_table(
    toy: ToyRepository, tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "choices.json"
    line = ["tune", "-C", str(toy.root), "Scale", "--out", str(path), "--json", "/dev/full"]
    assert main(line) == ExitCode.USAGE
    assert "/dev/full cannot be written" in capsys.readouterr().err
    assert [entry.case for entry in read_table(path).entries] == [tune.result.cases[0].case]


def test_one_file_is_not_both_the_table_and_the_result(
    toy: ToyRepository, tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "choices.json")
    assert main(["tune", "-C", str(toy.root), "Scale", "--out", path, "--json", path]) == ExitCode.USAGE
    assert "cannot be both the table and the result" in capsys.readouterr().err
    assert tune.options == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "0"], "'0' is no number above zero"),
        (["--resolution", "nan"], "'nan' is no percentage below 100"),
        (["--min-occupancy", "-1"], "'-1' is no percentage"),
        (["--shapes", ","], "',' names no shape"),
    ],
)
@pytest.mark.usefixtures("tune")
def test_bad_numbers_are_refused(
    toy: ToyRepository, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["tune", "-C", str(toy.root), "Scale", *arguments])
    assert left.value.code == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("tune")
@pytest.mark.parametrize(
    ("arguments", "said"), [(["--space", "B"], "declares no values"), (["--out", "-"], "a table is a file")]
)
def test_what_cannot_be_searched_or_written_is_refused(
    toy: ToyRepository, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "-C", str(toy.root), "Scale", *arguments]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
