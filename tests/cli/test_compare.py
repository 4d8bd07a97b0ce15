from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.cli import build_parser, main
from flopwatch.cli.console import LOG_COLUMNS
from flopwatch.compare import ComparedCase, CompareOptions, Comparison, Contender, Kind, Speed
from flopwatch.compare.run import PAIRS
from flopwatch.errors import ExitCode, MachineError
from flopwatch.measure.machine import Machine
from flopwatch.model import Case, from_json
from flopwatch.report.compare import TFLOPS_FROM

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
SIDE = Contender(case=Case(suite="Scale", values=("1000000" * 20, "float16", "flopwatch")), seconds=1e-5)
SAME = Speed(estimate=0.0, lower=None, upper=None, pairs=2)
FOUND = Comparison(
    kind=Kind.PROVIDERS,
    base="torch",
    head="flopwatch",
    gpu="NVIDIA H200",
    machine=Machine(gpu=None, versions={}, cpu_model="", cpu_count=1),
    base_versions={},
    head_versions={},
    cases=(ComparedCase(base=SIDE, head=SIDE, flops=1.0, bytes_moved=1.0, ceiling_eps=1.0, speed=SAME),),
    speed=SAME,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CompareOptions]:
    """What a stand-in for `run_compare` was asked."""
    options: list[CompareOptions] = []

    def stand_in(asked: CompareOptions, _root: Path, **_: object) -> Comparison:
        options.append(asked)
        return FOUND

    monkeypatch.setattr("flopwatch.compare.run_compare", stand_in)
    return options


def test_the_options_reach_the_comparison(toy: ToyRepository, asked: list[CompareOptions]) -> None:
    in_toy = ["compare", "-C", str(toy.root)]
    assert main(in_toy) == ExitCode.OK
    assert main([*in_toy, "main", "topic", "-k", "Scale", "--pairs", "20"]) == ExitCode.OK
    assert main([*in_toy, "--provider", "flopwatch", "--provider", "torch"]) == ExitCode.OK
    assert main([*in_toy, "--base-python", "old", "--head-python", "new"]) == ExitCode.OK
    assert asked == [
        CompareOptions(),
        CompareOptions(base="main", head="topic", select="Scale", pairs=20),
        CompareOptions(providers=("flopwatch", "torch")),
        CompareOptions(base_python=Path("old"), head_python=Path("new")),
    ]


@pytest.mark.usefixtures("asked")
def test_the_comparison_is_printed_and_written(
    toy: ToyRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    path = tmp_path / "compare.json"
    assert main(["compare", "-C", str(toy.root), "--json", str(path)]) == ExitCode.OK
    assert from_json(path.read_bytes(), Comparison) == FOUND
    printed = capsys.readouterr().out
    assert printed.startswith("flopwatch has 1.000x")
    assert max(map(len, printed.splitlines()[1:])) <= LOG_COLUMNS


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    toy: ToyRepository, asked: list[CompareOptions]
) -> None:
    assert main(["compare", "-C", str(toy.root), "--json", "/nonexistent/compare.json"]) == ExitCode.USAGE
    assert asked == []


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_number_of_pairs_is_one(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["compare", f"--pairs={text}"])
    assert f"{text!r} is no number of pairs" in capsys.readouterr().err


def test_without_a_gpu_the_exit_code_is_4_and_the_text_says_why(
    toy: ToyRepository, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver() -> None:
        raise MachineError("no NVIDIA driver answers")

    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", no_driver)
    assert main(["compare", "-C", str(toy.root)]) == ExitCode.UNFIT
    assert capsys.readouterr().err == (
        "flopwatch: flopwatch compare needs a GPU\n"
        "  why: no NVIDIA driver answers\n"
        "  do:  flopwatch doctor tells what is missing; flopwatch gate compares all but the time without one\n"
    )


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (FOUND, ExitCode.OK),
        (replace(FOUND, unfit="busy"), ExitCode.UNFIT),
        (replace(FOUND, interrupted=True), ExitCode.UNDECIDED),
        (replace(FOUND, cases=(replace(FOUND.cases[0], speed=None),)), ExitCode.UNDECIDED),
    ],
)
def test_the_exit_code_says_whether_there_is_a_comparison(found: Comparison, code: ExitCode) -> None:
    assert found.exit_code == code


@pytest.mark.parametrize("record", [Comparison, ComparedCase, Contender, Speed])
def test_the_page_has_every_key_of_the_json(record: type) -> None:
    table = PAGE.partition(f"### {record.__name__}\n")[2].partition("\n#")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [field.name for field in fields(record)]


def test_the_help_and_the_page_have_the_numbers_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["compare", "--help"])
    assert f"pairs of them ({PAIRS}, the fewest" in re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"from {TFLOPS_FROM:g} operations a byte" in re.sub(r"\s+", " ", PAGE)
