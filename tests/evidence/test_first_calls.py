from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest
import triton
from evidence.call_costs import run
from evidence.first_calls import SIZES, Costs, FirstCall, FirstCalls, in_a_process, told, tunings

from flopwatch.errors import FlopwatchError
from flopwatch.kernels.known import TABLES, tabled
from flopwatch.kernels.tuner import Tuner
from flopwatch.measure.machine import Machine
from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MACHINE = Machine(gpu=None, versions={"torch": "2.11.0"}, cpu_model="Some Processor", cpu_count=16)
CALLS = FirstCalls(
    machine=MACHINE,
    date="2026-11-25",
    calls=(
        FirstCall(name="triton_matmul", cold=(1.9, 0.5), warm=(0.25, 0.001)),
        FirstCall(name="flash_attention, 64", cold=(1.5, 2.1), warm=(0.25, 0.001), start=(2.5, 0.125), tuned=(0, 2.01)),
        FirstCall(name="flash_attention, 96", cold=(1.5, 2.1), warm=(0.25, 0.001), start=(2.5, 0.125), tuned=(1.2, 1)),
        FirstCall(name="flash_attention, 128", cold=(1.5, 2.1), warm=(0.25, 0.001), start=(2.5, 0.125), tuned=(0, 0)),
    ),
)


def test_no_table_has_these_sizes() -> None:
    """Or nothing would be chosen: keys begin with M, N and K, or with B, H, H_KV, S, S_KV and D."""
    keys = {tuple(choice["key"].split(", ")) for _entry, choice in tabled(TABLES)}
    for name, both in SIZES.items():
        assert both[0] != both[1]
        for sizes in both:
            texts = list(map(str, sizes))
            if name.startswith("flash_attention"):
                b, h, s, d = texts
                texts = [b, h, h, s, s, d]
            assert not [key for key in keys if key[: len(texts)] == tuple(texts)], name


def test_the_goal_is_missed_by_any_autotuning_and_two_seconds_by_any_call() -> None:
    text = told([None, CALLS])

    assert text.startswith("no GPU, Some Processor; torch 2.11.0; 2026-11-25:\n")
    assert "| triton_matmul 2304x2304x2304 |  | 1.900 s | 500.0 ms |  | 250.0 ms | 1.000 ms |  |  | yes |" in text
    row = "2.500 s | 1.500 s | 2.100 s | 125.0 ms | 250.0 ms | 1.000 ms |"
    assert f"| flash_attention, 64 2x12x1536x64 | {row} 2.010 s | **not reached** | **no** |" in text
    assert f"| flash_attention, 96 2x12x1536x96 | {row} 1.200 s | reached | **no** |" in text
    assert f"| flash_attention, 128 2x12x1536x128 | {row} none |  | **no** |" in text
    assert told([None]).startswith("Not measured yet")


@pytest.mark.parametrize(
    ("code", "stdout", "stderr"), [(1, "", "Traceback\nRuntimeError: broken\n"), (-9, "", "")], ids=["error", "killed"]
)
def test_a_call_that_fails_is_told(
    code: int, stdout: str, stderr: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], code, stdout=stdout, stderr=stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_arguments, **_options: done)

    with pytest.raises(FlopwatchError, match=f"why: {'RuntimeError: broken' if stderr else 'exit status -9'}"):
        in_a_process("triton_matmul", tmp_path)


def test_a_process_has_its_own_cache_and_tells_all_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    costs = Costs(start=0.5, calls=(1.5, 0.25), tuned=(0.75, 0.0))

    def run(arguments: list[str], *, env: dict[str, str], **_options: object) -> subprocess.CompletedProcess[str]:
        asked.extend((arguments[-1], env["TRITON_CACHE_DIR"]))
        return subprocess.CompletedProcess(arguments, 0, stdout=f"a warning\n{to_json(costs).decode()}\n", stderr="")

    monkeypatch.setattr(subprocess, "run", run)

    assert in_a_process("triton_matmul, small", tmp_path) == costs
    assert "costs('triton_matmul, small')" in asked[0]
    assert asked[1] == str(tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SIZES)
def test_first_calls_are_made_on_a_gpu(name: str, tmp_path: Path) -> None:
    found = in_a_process(name, tmp_path)

    assert all(0 < cost < 60 for cost in (found.start, *found.calls))
    assert all(0 <= tuned < cost for tuned, cost in zip(found.tuned, found.calls, strict=True))


@pytest.mark.gpu
def test_autotuning_is_part_of_a_call_that_times_candidates(tmp_path: Path) -> None:
    tuned, _ = in_a_process("triton_matmul, small", tmp_path).tuned

    assert tuned > 0


def test_a_choice_among_several_candidates_is_timed_and_one_of_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tuner, "check_disk_cache", lambda *_arguments: time.sleep(0.01))
    tuner = object.__new__(Tuner)

    def nothing() -> None: ...

    with tunings() as seconds:
        tuner.check_disk_cache((), [triton.Config({})], nothing)
        tuner.check_disk_cache((), [triton.Config({})] * 2, nothing)
    tuner.check_disk_cache((), [triton.Config({})] * 2, nothing)

    assert len(seconds) == 1
    assert seconds[0] >= 0.01


def test_what_was_measured_before_a_call_fails_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "first-calls.json"

    def measure() -> Iterator[FirstCalls]:
        yield CALLS
        raise FlopwatchError("the first call of vector_add failed", why="broken", todo="run it by itself")

    with pytest.raises(SystemExit, match="the first call of vector_add failed"):
        run([str(out)], "evidence.first_calls", "", measure, lambda found: told([found]))

    assert from_json(out.read_bytes(), FirstCalls) == CALLS
    assert not capsys.readouterr().out
