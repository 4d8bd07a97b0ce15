from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from flopwatch.asv.configurations import Configurations, moves
from flopwatch.model import Choice
from flopwatch.record.sidecar import CaseLog, Line, append

if TYPE_CHECKING:
    from pathlib import Path

H200: dict[str, str | None] = {
    "machine": "lab",
    "python": "3.12",
    "gpu": "NVIDIA H200",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "branch": "main",
}
COMMIT = "c0ffee11" * 5
CASE = "Scale[small,flopwatch]"
#: As `flopwatch record` names it, by asv's own rules.
NAME = "c0ffee11-shared-py3.12-gpuNVIDIA H200-torch2.11.0-triton3.6.0.jsonl"
NARROW = "BLOCK=64,num_stages=3,num_warps=4"
TUNED = "BLOCK: 64, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None"


def ran(config: str, *, kernel: str = "k", key: str = "") -> Choice:
    return Choice(kernel=kernel, config=config, key=key)


def keep(
    results: Path, *, case: str = CASE, compiled: tuple[Choice, ...] = (), tuned: tuple[Choice, ...] | None
) -> None:
    now = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    log = CaseLog(case=case, version="1", at=now, seconds=0.5, compiled=compiled, choices=tuned)
    append(results / "lab" / NAME, Line(case=log))


def test_seconds_are_of_what_the_tuner_chose_and_registers_of_what_was_compiled(tmp_path: Path) -> None:
    other = ran("BLOCK=256,num_warps=4", kernel="other")
    keep(tmp_path, compiled=(ran(NARROW), other), tuned=(ran(TUNED),))
    ran_in = Configurations(tmp_path)

    assert list(ran_in(H200, COMMIT, CASE, "time")) == [ran(TUNED), other]
    assert list(ran_in(H200, COMMIT, CASE, "registers")) == [ran(NARROW), other]


def test_what_was_measured_again_counts(tmp_path: Path) -> None:
    keep(tmp_path, tuned=(ran(NARROW),))
    keep(tmp_path, tuned=(ran(TUNED),))

    assert list(Configurations(tmp_path)(H200, COMMIT, CASE, "time")) == [ran(TUNED)]


@pytest.mark.parametrize(
    "changed", [{"machine": "other"}, {"gpu": "NVIDIA B200"}, {"triton": "3.5.1"}, {"python": "3.11"}]
)
def test_another_machine_or_toolchain_has_another_sidecar(changed: dict[str, str], tmp_path: Path) -> None:
    keep(tmp_path, tuned=(ran(TUNED),))

    assert list(Configurations(tmp_path)({**H200, **changed}, COMMIT, CASE, "time")) == []


def test_without_a_record_of_the_gpu_nothing_is_known_of_seconds(tmp_path: Path) -> None:
    keep(tmp_path, compiled=(ran(NARROW),), tuned=None)
    ran_in = Configurations(tmp_path)

    assert list(ran_in(H200, COMMIT, CASE, "time")) == []
    assert list(ran_in(H200, COMMIT, CASE, "spills")) == [ran(NARROW)]
    assert list(ran_in(H200, COMMIT, "Scale[large,flopwatch]", "spills")) == []


def test_a_sidecar_is_read_once(tmp_path: Path) -> None:
    keep(tmp_path, tuned=(ran(TUNED),))
    ran_in = Configurations(tmp_path)
    first = ran_in(H200, COMMIT, CASE, "time")
    (tmp_path / "lab" / NAME).unlink()

    assert ran_in(H200, COMMIT, CASE, "time") == first


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([ran(NARROW)], [ran(NARROW)], []),
        ([ran("A=1,B=2,num_warps=4")], [ran("A=3,B=2,num_warps=8")], ["A 1 → 3; num_warps 4 → 8"]),
        ([ran("A=1")], [ran("A=1,EVEN=True")], ["EVEN none → True"]),
        # The keys may be of other arguments, where there is one launch on either side.
        ([ran("A: 1", key="8")], [ran("A: 2", key="8, float16")], ["A 1 → 2"]),
        # A kernel that is tuned from now on: what was compiled names settings that a tuner does not, and back.
        (
            [ran("A=64,EVEN=True,num_stages=3,num_warps=4")],
            [ran("A: 64, num_warps: 8, num_ctas: 1")],
            ["num_warps 4 → 8"],
        ),
        (
            [ran("A: 1", key="8"), ran("A: 1", key="9")],
            [ran("A: 1", key="8"), ran("A: 2", key="9")],
            ["A 1 → 2"],
        ),
        (
            [ran("A: 1", key="8"), ran("A: 1", key="9")],
            [ran("A: 2", key="a"), ran("A: 2", key="b")],
            ["2 of 2 configurations differ"],
        ),
        ([ran("A=1", key="x")], [ran("A=1", key="x"), ran("A=1", key="y")], ["launches 1 → 2"]),
        (
            [ran("A=1"), ran("A=1", kernel="sum")],
            [ran("A=2"), ran("A=1", kernel="sum")],
            ["k: A 1 → 2"],
        ),
        ([ran("A=1")], [ran("A=1"), ran("A=1", kernel="sum")], ["sum is launched too"]),
        ([ran("A=1"), ran("A=1", kernel="sum")], [ran("A=1")], ["sum is no longer launched"]),
    ],
)
def test_what_differs_is_told_and_nothing_else(before: list[Choice], after: list[Choice], told: list[str]) -> None:
    assert list(moves(before, after)) == told
