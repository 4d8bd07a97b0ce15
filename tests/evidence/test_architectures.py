from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from evidence import architectures
from evidence.architectures import DEVICES, HEADS, TOO_LARGE, compile_all, every_case, faults, row
from tests.test_docs import read

from flopwatch.kernels.configs import ATTENTION_AUTOTUNE, MATMUL_AUTOTUNE
from flopwatch.kernels.matmul_fp8 import FP8_AUTOTUNE, FP8_PROMOTED_AUTOTUNE
from flopwatch.model import Case, Failure, KernelFacts
from flopwatch.survey.store import Outcome

if TYPE_CHECKING:
    from pathlib import Path

CASE = Case(suite="ListedAttention", values=("64", "causal", "flopwatch"))
FITS = KernelFacts(
    kernel="k",
    device="a100",
    config="BLOCK=64",
    variant="*fp16:16",
    chosen=True,
    spill_store_bytes=8,
    spill_load_bytes=8,
)
TOO_MUCH = replace(FITS, config="BLOCK=128", failure=Failure(kind=TOO_LARGE, message="room"))
BROKEN = replace(TOO_MUCH, failure=Failure(kind="CompilationError", message="planted"))


def outcome(*facts: KernelFacts, cause: str = "") -> Outcome:
    return Outcome(case=CASE, facts=facts, cause=cause)


def test_each_architecture_of_the_promise_is_compiled_for() -> None:
    rows = [row(device, {}) for device in DEVICES]

    assert {cells[1] for cells in rows} == {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942"}


def test_there_is_a_call_of_each_list() -> None:
    listed: Counter[str] = Counter()
    for case, number in every_case().items():
        listed[case.suite] += number

    assert listed["ListedAttention"] == 6 * sum(map(len, ATTENTION_AUTOTUNE.values()))
    assert listed["ListedMatmul"] == 2 * (3 * len(MATMUL_AUTOTUNE) + 3)
    assert listed["ListedMatmulFp8"] == 2 * (len(FP8_AUTOTUNE) + len(FP8_PROMOTED_AUTOTUNE))
    assert listed["ListedAddition"] == listed["ListedCopies"] == 6


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (outcome(FITS, TOO_MUCH), ""),
        (outcome(FITS, BROKEN), "BLOCK=128: CompilationError: planted"),
        (outcome(FITS), "1 configurations were compiled, and the list has 2"),
        (outcome(TOO_MUCH, TOO_MUCH), "no configuration fits"),
        (outcome(FITS, FITS, cause="needs a value"), "needs a value"),
        (None, "was not compiled"),
    ],
)
def test_what_is_wrong_is_told(found: Outcome | None, fault: str) -> None:
    told = faults({} if found is None else {CASE: found}, {CASE: 2})

    assert told == ([f"{CASE.id}: {fault}"] if fault else [])


def test_a_row_counts_what_fits_and_what_spills() -> None:
    cells = dict(zip(HEADS, row("a100", {CASE: outcome(FITS, TOO_MUCH, TOO_MUCH)}), strict=True))

    assert {head: cells[head] for head in HEADS[2:]} == dict(zip(HEADS[2:], ("1", "3", "1", "2", "1"), strict=True))


def test_a_call_is_compiled_for_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("FLOPWATCH_AUTOTUNE", "all")
    listed = {case: number for case, number in every_case().items() if case.values[0] == "16" and "full" in case.values}

    found = compile_all(("a100", "mi300x"), tuple(listed), lambda *_: None)

    assert [faults(outcomes, listed) for outcomes in found.values()] == [[], []]
    assert [len(fact.facts) for outcomes in found.values() for fact in outcomes.values()] == [2, 2]


def test_a_fault_fails_and_leaves_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- architectures:begin -->\nold\n<!-- architectures:end -->\n", encoding="utf-8")
    found = {device: {CASE: outcome(FITS, BROKEN)} for device in DEVICES}
    monkeypatch.setenv("FLOPWATCH_AUTOTUNE", "")  # what is set is taken back
    monkeypatch.setattr(architectures, "compile_all", lambda *_: found)
    monkeypatch.setattr(architectures, "every_case", lambda: {CASE: 2})

    assert architectures.main(["--page", str(page)]) == 1
    assert "old" in page.read_text(encoding="utf-8")
    assert capsys.readouterr().err.count("CompilationError: planted") == len(DEVICES)

    for outcomes in found.values():
        outcomes[CASE] = outcome(FITS, TOO_MUCH)
    assert architectures.main(["--page", str(page)]) == 0
    assert "| mi300x | gfx942 | 1 | 2 | 1 | 1 | 1 |" in page.read_text(encoding="utf-8")


def test_a_device_that_there_is_none_of_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOPWATCH_AUTOTUNE", "")  # what is set is taken back

    assert architectures.main(["--device", "a100,h300"]) == 2
    assert "h300" in capsys.readouterr().err


def test_a_page_of_some_devices_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        architectures.main(["--device", "a100", "--page", str(tmp_path / "page.md")])

    assert "leave out --device, or --page" in capsys.readouterr().err


def test_the_page_has_all_of_them() -> None:
    rows = re.findall(
        r"^\| (\w+) \| (?:sm_|gfx)\w+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", read("docs/kernels.md"), re.MULTILINE
    )

    assert [device for device, *_ in rows] == list(DEVICES)
    for _, calls, configurations, fitting, too_large in rows:
        assert int(calls) == len(every_case())
        assert int(configurations) == int(fitting) + int(too_large)
        assert int(configurations) >= sum(every_case().values())
