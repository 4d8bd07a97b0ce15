from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.test_output_file import files_of_at_most

from flopwatch.cli import main
from flopwatch.cli.console import LOG_COLUMNS
from flopwatch.cli.gate import read_pins
from flopwatch.errors import ExitCode, UsageError
from flopwatch.gate import CaseVerdict, GateResult
from flopwatch.gate.run import GateOptions
from flopwatch.model import Case, Choice, Failure, Mark, from_json, to_json
from flopwatch.stats import Design
from flopwatch.tune.table import Entry, Table
from flopwatch.verdict import Side

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

PAGE = (Path(__file__).parents[2] / "docs" / "gate.md").read_text(encoding="utf-8")
CASE = Case(suite="Scale", values=("1000000", "float16", "flopwatch"))
TIGHT = Choice(kernel="scale_kernel", config="BLOCK: 64, num_warps: 4", timings_us={"BLOCK: 64, num_warps: 4": 3.5})
RESULT = GateResult(
    base="a1b2c3d4e5f60718293a4b5c6d7e8f9012345678",
    head="working tree",
    gpu="NVIDIA H200",
    device="h200",
    versions={"python": "3.12.3"},
    facts=(),
    base_facts=(),
    fact_changes=(),
    verdicts=(
        CaseVerdict(case=CASE, mark=Mark.SAME, head=Side(bits=("00",), choices=(TIGHT,)), base=Side(bits=("00",))),
    ),
)
INTERRUPTED = replace(RESULT, interrupted=True)
UNFIT = replace(RESULT, unfit="the GPU is used by another process (99)")
BROKEN = replace(
    RESULT,
    verdicts=(replace(RESULT.verdicts[0], mark=Mark.BROKEN, head=Side(failure=Failure(kind="E", message="gone"))),),
)


class Gate:
    """Stands in for `run_gate`: keeps what it was asked and returns a made-up result."""

    def __init__(self, result: GateResult) -> None:
        self.result = result
        self.options = GateOptions()

    def __call__(self, options: GateOptions, _root: Path, **_: object) -> GateResult:
        self.options = options
        return self.result


def gate(monkeypatch: pytest.MonkeyPatch, result: GateResult = RESULT) -> Gate:
    stand_in = Gate(result)
    monkeypatch.setattr("flopwatch.gate.run.run_gate", stand_in)
    return stand_in


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flopwatch.gate.run.run_gate", lambda *_arguments, **_options: pytest.fail("it was measured"))
    assert main(["gate", "-C", str(toy.root), "--json", "/nonexistent/gate.json"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "flopwatch: /nonexistent/gate.json cannot be written\n"
        "  why: No such file or directory\n"
        "  do:  name a file in a folder that exists and can be written\n"
    )


def test_a_disk_that_is_full_by_then_costs_the_file_and_not_the_report(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate(monkeypatch)
    assert main(["gate", "-C", str(toy.root), "--json", "/dev/full"]) == ExitCode.USAGE
    printed = capsys.readouterr()
    assert printed.out.startswith("Nothing got slower")
    assert printed.err.endswith(
        "flopwatch: /dev/full cannot be written\n"
        "  why: No space left on device\n"
        "  do:  what was found out is printed above; make room, and run it again\n"
    )


def test_a_disk_that_is_full_by_then_leaves_the_result_of_the_run_before(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate(monkeypatch)
    path = tmp_path / "gate.json"
    assert main(["gate", "-C", str(toy.root), "--json", str(path)]) == ExitCode.OK
    gate(monkeypatch, BROKEN)
    with files_of_at_most(100):
        assert main(["gate", "-C", str(toy.root), "--json", str(path)]) == ExitCode.USAGE
    assert from_json(path.read_bytes(), GateResult) == RESULT
    assert list(tmp_path.glob("*gate.json*")) == [path]
    assert f"flopwatch: {path} cannot be written\n  why: File too large\n" in capsys.readouterr().err


@pytest.mark.parametrize(("result", "code"), [(INTERRUPTED, ExitCode.UNDECIDED), (UNFIT, ExitCode.UNFIT)])
def test_a_run_that_decided_nothing_is_written_too(
    result: GateResult, code: ExitCode, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate(monkeypatch, result)
    assert main(["gate", "-C", str(toy.root), "--json", str(tmp_path / "gate.json")]) == code
    written = (tmp_path / "gate.json").read_bytes()
    assert from_json(written, GateResult) == result
    assert json.loads(written)["exit_code"] == code


def test_the_file_has_the_code_of_the_verdicts_whatever_the_process_returns(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate(monkeypatch, BROKEN)
    path = tmp_path / "gate.json"
    assert main(["gate", "-C", str(toy.root), "--exit-zero", "--json", str(path)]) == ExitCode.OK
    assert json.loads(path.read_bytes())["exit_code"] == ExitCode.REGRESSED


@pytest.mark.parametrize(
    ("result", "code"),
    [(BROKEN, ExitCode.OK), (INTERRUPTED, ExitCode.OK), (UNFIT, ExitCode.UNFIT), (RESULT, ExitCode.OK)],
)
def test_exit_zero_is_about_verdicts_and_not_about_the_machine(
    result: GateResult, code: ExitCode, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate(monkeypatch, result)
    assert main(["gate", "-C", str(toy.root), "--exit-zero"]) == code


def test_the_options_reach_the_gate(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in = gate(monkeypatch)
    pins = tmp_path / "gate.json"
    pins.write_bytes(to_json(RESULT))
    typed = ["gate", "v1", "v2", "-C", str(toy.root), "-k", "Scale", "--device", "a100", "--budget", "120"]
    assert main([*typed, "--pin", str(pins)]) == ExitCode.OK
    assert stand_in.options == GateOptions(
        base="v1",
        head="v2",
        select="Scale",
        device="a100",
        budget_s=120.0,
        pins={CASE.id: (TIGHT,)},
    )


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf", "soon"])
def test_a_budget_is_a_positive_number_of_seconds(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["gate", f"--budget={text}"])
    assert caught.value.code == ExitCode.USAGE
    assert f"{text!r} is no number of seconds" in capsys.readouterr().err


def test_every_case_is_shown_on_request(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate(monkeypatch)
    monkeypatch.delenv("COLUMNS", raising=False)
    main(["gate", "-C", str(toy.root)])
    assert CASE.id not in capsys.readouterr().out
    main(["gate", "-C", str(toy.root), "--all"])
    assert CASE.id in capsys.readouterr().out


def test_a_log_has_room_for_a_row(
    capsys: pytest.CaptureFixture[str], toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    case = replace(CASE, values=("x" * (LOG_COLUMNS - 80),))
    gate(monkeypatch, replace(RESULT, verdicts=(replace(RESULT.verdicts[0], case=case),)))
    main(["gate", "-C", str(toy.root), "--all"])
    assert case.id in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Input data was truncated"),
        ("{}", "Object missing required field `base`"),
        (to_json(replace(RESULT, verdicts=())).decode(), "no case of it ran an autotuned kernel on a GPU"),
    ],
)
def test_pins_are_a_result_with_choices(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_pins(path)
    assert caught.value.why == why
    assert "flopwatch gate --json" in caught.value.todo


def test_what_a_search_chose_can_be_pinned_as_well(tmp_path: Path) -> None:
    table = tmp_path / "choices.json"
    entry = Entry(
        case=CASE,
        choices=(TIGHT,),
        listed=True,
        seconds=1e-5,
        instead_of="BLOCK: 32, num_warps: 4",
        gain=None,
        first_pass=None,
        date="2026-11-22",
        gpu="NVIDIA H200",
        versions={},
        command="flopwatch tune Scale",
    )
    table.write_bytes(to_json(Table(entries=(entry,))))
    assert read_pins(table) == {CASE.id: (TIGHT,)}


def test_pins_may_come_through_a_pipe() -> None:
    reader, writer = os.pipe()
    os.write(writer, to_json(RESULT))
    os.close(writer)
    assert read_pins(Path(f"/dev/fd/{reader}")) == {CASE.id: (TIGHT,)}
    os.close(reader)


def test_pins_that_are_not_there_are_told_so() -> None:
    with pytest.raises(UsageError, match=r"/nonexistent/gate\.json cannot be read"):
        read_pins(Path("/nonexistent/gate.json"))


def test_the_page_has_the_numbers_of_the_design() -> None:
    design = Design()
    for words in (
        f"{design.first_look} pairs of all cases",
        f"at {design.first_alpha * 100:.1f} %",
        f"all get {design.pairs - design.first_look} more pairs, and {design.last_alpha * 100:.1f} % are spent",
        f"confirmed after {design.confirm_first}, at {design.confirm_first_alpha * 100:.1f} %",
        f"the rest gets {design.confirm_pairs}, at {design.confirm_alpha * 100:.1f} %",
        f"fresh pairs, {design.confirm_pairs} at least",
        f"up to {design.settle_pairs} further pairs",
        f"no room for {design.first_look} pairs",
    ):
        assert words in re.sub(r"\s+", " ", PAGE)
