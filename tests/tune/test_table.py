from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flopwatch.compare.result import Speed
from flopwatch.errors import UsageError
from flopwatch.model import Case, Choice, from_json, to_json
from flopwatch.tune.result import By, Candidate, Regret, TunedCase, TuneResult
from flopwatch.tune.table import Table, is_kept, pins_of, read_table, with_result

OLD, NEW = "B: 64, num_warps: 4", "B: 128, num_warps: 8"
FASTER = Speed(estimate=0.05, lower=0.04, upper=0.06, pairs=8)
CASE = TunedCase(
    case=Case(suite="Add", values=("1024", "flopwatch")),
    kernel="add_kernel",
    candidates=(Candidate(config=OLD, own=True), Candidate(config=NEW, own=True)),
    current=OLD,
    first=OLD,
    chosen=NEW,
    seconds=9.5e-6,
    first_pass=-0.055,
    regrets=(Regret(by=By.AUTOTUNER, config=OLD, seconds=1e-5, speed=FASTER),),
)
RESULT = TuneResult(
    device="h200",
    gpu="NVIDIA H200",
    machine=None,
    versions={"triton": "3.6.0"},
    date="2026-11-22",
    resolution=0.005,
    cases=(CASE,),
    command="flopwatch tune Add",
)
NONE = Table(entries=())
SLOWER = replace(FASTER, estimate=-0.05, lower=-0.06, upper=-0.04)


def other(number: str) -> TunedCase:
    return replace(CASE, case=Case(suite="Add", values=(number, "flopwatch")))


def test_each_number_has_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    path.write_bytes(to_json(with_result(NONE, RESULT)))
    (entry,) = read_table(path).entries
    assert entry.choices == (Choice(kernel="add_kernel", config=NEW),)
    assert (entry.date, entry.gpu, entry.versions) == ("2026-11-22", "NVIDIA H200", {"triton": "3.6.0"})
    assert (entry.seconds, entry.gain, entry.first_pass) == (9.5e-6, FASTER, -0.055)
    assert (entry.instead_of, entry.command) == (OLD, "flopwatch tune Add")


def test_a_later_search_replaces_its_cases_and_leaves_the_others() -> None:
    before = with_result(NONE, replace(RESULT, cases=(CASE, other("2048"))))
    after = with_result(before, replace(RESULT, date="2026-12-24", cases=(other("4096"), other("2048"))))
    assert [(entry.case.values[0], entry.date) for entry in after.entries] == [
        ("1024", "2026-11-22"),
        ("2048", "2026-12-24"),
        ("4096", "2026-12-24"),
    ]


def test_an_unfit_machine_changes_nothing() -> None:
    before = with_result(NONE, RESULT)
    assert with_result(before, replace(RESULT, unfit="another process on the GPU", date="later")) == before


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (CASE, True),
        (replace(CASE, chosen=None), False),
        (replace(CASE, chosen=OLD, regrets=()), True),
        (replace(CASE, regrets=()), False),
        (replace(CASE, regrets=(Regret(by=By.AUTOTUNER, speed=SLOWER),)), False),
        (replace(CASE, regrets=(Regret(by=By.AUTOTUNER, speed=replace(SLOWER, upper=0.001)),)), True),
        (replace(CASE, regrets=(Regret(by=By.AUTOTUNER, speed=replace(FASTER, upper=None)),)), True),
        (replace(CASE, regrets=(Regret(by=By.AUTOTUNER, speed=replace(SLOWER, upper=None)),)), False),
    ],
)
def test_a_choice_that_fresh_samples_prove_slower_or_never_saw_is_left_out(case: TunedCase, expected: bool) -> None:
    assert is_kept(case) is expected
    assert bool(with_result(NONE, replace(RESULT, cases=(case,))).entries) is expected


def test_pins_are_what_a_gate_takes() -> None:
    assert pins_of(with_result(NONE, RESULT), Path("choices.json")) == {
        "Add[1024,flopwatch]": (Choice(kernel="add_kernel", config=NEW),)
    }


def test_an_empty_table_pins_nothing() -> None:
    with pytest.raises(UsageError, match="pins nothing"):
        pins_of(NONE, Path("choices.json"))


def test_what_is_not_in_the_kernels_list_cannot_be_pinned() -> None:
    foreign = replace(CASE, candidates=(Candidate(config=OLD, own=True), Candidate(config=NEW, own=False)))
    with pytest.raises(UsageError) as refused:
        pins_of(with_result(NONE, replace(RESULT, cases=(foreign,))), Path("choices.json"))
    assert "choices.json has choices that are not in their kernel's list: 1" in str(refused.value)
    assert NEW in str(refused.value)
    table = with_result(NONE, RESULT)
    with pytest.raises(UsageError, match="not in their kernel's list: 1"):  # written by hand
        pins_of(Table(entries=(replace(table.entries[0], listed=False, choices=()),)), Path("choices.json"))


@pytest.mark.parametrize("content", [b"", b"{}", b"{}x", to_json(RESULT), b'{"entries": [{"case": 1}]}', b"\xff"])
def test_what_is_no_table_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is no table of choices"):
        read_table(path)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_table(tmp_path / "choices.json")


def test_an_empty_table_is_read_as_it_was_written() -> None:
    assert from_json(to_json(NONE), Table) == NONE
