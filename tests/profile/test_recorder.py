from __future__ import annotations

import json
import pathlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
import torch
from tests.compare.conftest import declared

from flopwatch.errors import MachineError, UndecidedError
from flopwatch.model import Case, Choice, from_json, to_json
from flopwatch.profile import recorder
from flopwatch.profile.recorder import Contender, Proton, in_turns, main, wall
from flopwatch.profile.request import Answer, Ask

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.measure.session import Session
    from flopwatch.model import Failure


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


@dataclass
class Suite:
    made: list[int] = field(default_factory=list)
    fails: bool = False

    def inputs(self, *_values: str, seed: int) -> tuple[int]:
        if self.fails:
            raise ValueError("no inputs")
        self.made.append(seed)
        return (len(self.made),)


class Sessions:
    """Stands for a worker's session: the suites alone."""

    def __init__(self, **suites: Suite) -> None:
        self.suites = suites

    def suite(self, case: Case) -> Suite:
        return self.suites[case.suite]


class Calls:
    """Notes who was called with what."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []

    def of(self, suite: str, provider: str, *, fails_at: int = -1) -> Contender:
        entry = declared(suite, provider)

        def call(value: int) -> None:
            self.log.append((provider, value))
            if sum(name == provider for name, _ in self.log) == fails_at:
                raise RuntimeError("an illegal address")

        return Contender(declared=entry, call=call, choices=(), call_seconds=1e-3, host_seconds=1e-5)


def turns(session: Sessions, contenders: list[Contender], number: int = 2) -> tuple[list[str], dict[Case, Failure]]:
    visited: list[str] = []
    failures: dict[Case, Failure] = {}

    def visit(one: Contender, inputs: tuple[Any, ...]) -> None:
        visited.append(one.case.provider)
        one.call(*inputs)

    in_turns(cast("Session", session), contenders, failures, visit, turns=number)
    return visited, failures


def test_the_providers_of_a_point_take_turns_on_the_same_inputs() -> None:
    calls, session = Calls(), Sessions(Matmul=Suite(), Add=Suite())
    contenders = [calls.of("Matmul", "ours"), calls.of("Matmul", "torch"), calls.of("Add", "ours")]
    assert turns(session, contenders) == (["ours", "torch", "ours", "torch", "ours", "ours"], {})
    assert session.suites["Matmul"].made == [0]
    assert {value for _, value in calls.log} == {1}


def test_what_fails_has_no_more_turns_and_the_others_go_on() -> None:
    calls = Calls()
    contenders = [calls.of("Matmul", "ours", fails_at=2), calls.of("Matmul", "torch")]
    visited, failures = turns(Sessions(Matmul=Suite()), contenders, number=3)
    assert visited == ["ours", "torch", "torch", "torch"]
    assert {case.provider: failure.message for case, failure in failures.items()} == {"ours": "an illegal address"}


def test_cases_are_prepared_in_what_is_pinned() -> None:
    pins = (Choice(kernel="matmul_kernel", config="BLOCK_M: 128"),)
    asked: list[tuple[object, ...]] = []

    class Preparing:
        def prepare(self, *what: object) -> None:
            asked.append(what)
            raise RuntimeError("no GPU")

        def release(self) -> None:
            pass

    entry = declared("Matmul", "ours")
    contenders, failures = recorder.prepare_all(cast("Session", Preparing()), [entry], pins)
    assert asked == [(entry.case, None, pins)]
    assert (contenders, list(failures)) == ([], [entry.case])


def test_inputs_that_cannot_be_made_are_the_failure_of_all_their_cases() -> None:
    calls = Calls()
    contenders = [calls.of("Matmul", "ours"), calls.of("Matmul", "torch"), calls.of("Add", "ours")]
    visited, failures = turns(Sessions(Matmul=Suite(fails=True), Add=Suite()), contenders, number=1)
    assert visited == ["ours"]
    assert sorted(case.suite for case in failures) == ["Matmul", "Matmul"]


def test_the_wall_has_every_call() -> None:
    called: list[int] = []
    assert wall(called.append, (3,), 5) > 0
    assert called == [3] * 5


def test_a_proton_that_does_not_start_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def start(_name: str, **_: object) -> int:
        raise RuntimeError("Failed to execute cuptiSubscribe with error 999")

    monkeypatch.setattr("triton.profiler.start", start)
    with pytest.raises(MachineError, match="does not start") as caught, Proton(tmp_path).recording("a", data="tree"):
        pytest.fail("it recorded")
    assert "cuptiSubscribe" in caught.value.why


def test_a_proton_that_is_switched_off_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("triton.profiler.start", lambda _name, **_: None)
    with pytest.raises(MachineError, match="switched off"), Proton(tmp_path).recording("a", data="tree"):
        pytest.fail("it recorded")


def test_an_error_is_an_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def answer_to(_ask: Ask) -> Answer:
        raise MachineError("no", why="because", todo="that")

    monkeypatch.setattr(recorder, "answer_to", answer_to)
    (tmp_path / "ask.json").write_bytes(to_json(Ask(benchmarks="b", device="h200", folder="f")))
    main([str(tmp_path / "ask.json"), str(tmp_path / "answer.json")])
    answer = from_json((tmp_path / "answer.json").read_bytes(), Answer)
    assert (answer.refusal, answer.why, answer.todo, answer.unfit) == ("no", "because", "that", True)
    assert json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))["cases"] == []


def test_without_proton_the_machine_is_unfit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import triton  # noqa: PLC0415 - to take a part of it away

    monkeypatch.delattr(triton, "profiler", raising=False)
    monkeypatch.setitem(sys.modules, "triton.profiler", None)
    with pytest.raises(MachineError, match="does not start") as caught, Proton(tmp_path).recording("a", data="tree"):
        pytest.fail("it recorded")
    assert caught.value.why.startswith("ModuleNotFoundError")


def test_an_answer_that_does_not_fit_on_the_disk_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def half(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorder, "answer_to", lambda _ask: Answer(gpu="NVIDIA H200"))
    (tmp_path / "ask.json").write_bytes(to_json(Ask(benchmarks="b", device="h200", folder="f")))
    monkeypatch.setattr(pathlib.Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space left"):
        main([str(tmp_path / "ask.json"), str(tmp_path / "answer.json")])
    assert not (tmp_path / "answer.json").exists()


def test_a_snapshot_that_fails_does_not_cost_the_times_and_no_case_says_what_failed_to_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Calls().of("Matmul", "ours")

    class Hello:
        gpu, versions, declared = "NVIDIA H200", {"triton": "3.6.0"}, (one.declared,)
        import_failures: ClassVar[dict[str, str]] = {"bench_softmax": "ImportError: softmax"}

    class Answering:
        def hello(self) -> Hello:
            return Hello()

    def snapshot(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorder, "Session", lambda *_: Answering())
    monkeypatch.setattr(recorder, "prepare_all", lambda *_: ([one], {}))
    monkeypatch.setattr(recorder, "profile_all", lambda *_: None)
    monkeypatch.setattr(recorder, "take_snapshot", snapshot)
    answer = recorder.answer_to(Ask(benchmarks="b", device="h200", folder="f", snapshot=True))
    assert [case.failure for case in answer.cases] == [None]
    assert answer.notes == (f"no snapshot of {one.case.id}: OSError: [Errno 28] No space left on device",)
    with pytest.raises(UndecidedError) as caught:
        recorder.answer_to(Ask(benchmarks="b", device="h200", folder="f", select="Softmax"))
    assert "bench_softmax cannot be imported: ImportError: softmax" in caught.value.why
