from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.errors import FlopwatchError
from flopwatch.measure.client import CaseFailed, Code, Mode, Nursery, Worker
from flopwatch.measure.protocol import Op
from flopwatch.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import ToyRepository

HAS_GPU = torch.cuda.is_available()
SMALL = Case(suite="Scale", values=("1000", "float16", "flopwatch"))


def code_of(toy: ToyRepository, tree: Path | None = None) -> Code:
    return Code(benchmarks=toy.root / "benchmarks", tree=tree or toy.root, source="src", packages=("toykernels",))


def case(weather: str) -> Case:
    return Case(suite="Weather", values=(weather, "flopwatch"))


def descriptors(process: int | str = "self") -> int:
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


def test_a_worker_tells_what_it_runs_what_it_found_and_what_the_compiler_made_of_it(toy: ToyRepository) -> None:
    with Worker(Mode.STATIC, code_of(toy)) as worker:
        hello = worker.hello
        facts = worker.facts(Case(suite="Scale", values=("1000000", "float16", "flopwatch")))
        facts_of_a_peer = worker.facts(Case(suite="Scale", values=("1000000", "float16", "torch")))

    assert (hello.gpu is not None, hello.gpu_uuid is not None) == (HAS_GPU, HAS_GPU)
    assert set(hello.versions) - {"cuda"} == {"python", "torch", "triton", "ptxas"}
    assert [entry.case.id for entry in hello.declared if entry.own] == [
        "Scale[1000000,float16,flopwatch]",
        "Scale[1000000,float32,flopwatch]",
    ]
    assert hello.declared[0].small == SMALL
    assert (hello.declared[0].flops, hello.declared[0].bytes_moved) == (1e6, 4e6)
    assert [(fact.kernel, fact.num_warps, fact.device) for fact in facts] == [("scale_kernel", 4, "h200")]
    assert facts[0].registers is not None
    assert facts[0].registers > 0
    assert facts_of_a_peer == ()


@pytest.mark.parametrize("identify", [False, True])
@pytest.mark.parametrize("forked", [False, True])
def test_what_suites_have_registered_is_done_at_the_end(
    toy: ToyRepository, tmp_path: Path, identify: bool, forked: bool
) -> None:
    left, case = tmp_path / "left", Case(suite="Scale", values=("1000000", "float16", "flopwatch"))
    text = toy.suite.read_text(encoding="utf-8")
    registered = f"import atexit, pathlib\n\natexit.register(pathlib.Path({str(left)!r}).touch)\n"
    toy.suite.write_text(text.replace("import torch\n", f"import torch\n{registered}", 1), encoding="utf-8")
    with contextlib.ExitStack() as stack:
        nursery = stack.enter_context(Nursery(code_of(toy), Mode.STATIC)) if forked else None
        with Worker(Mode.STATIC, code_of(toy), nursery=nursery) as worker:
            worker.start()
            compiled = worker.compile(case, identify=identify)
            assert not left.exists()
        assert left.exists() != forked  # others may be forked yet

    assert left.exists()
    assert (compiled.identity is not None) == identify
    assert compiled.facts
    assert not compiled.tunes


def test_a_right_kernel_has_small_numbers(toy: ToyRepository) -> None:
    with Worker(Mode.INTERPRET, code_of(toy)) as worker:
        numbers = worker.numbers(SMALL)
    assert numbers.finite
    assert numbers.max_diff_eps is not None
    assert numbers.max_diff_eps <= 0.5


def test_a_planted_wrong_factor_and_an_element_never_written_show_in_the_numbers(toy: ToyRepository) -> None:
    toy.edit("mask=mask) * factor", "mask=mask) * tl.where(n == 1000, factor * 1.01, factor)")
    toy.edit("mask = offsets < n", "mask = (offsets < n) & (offsets != 2000)")
    with Worker(Mode.INTERPRET, code_of(toy)) as worker:
        wrong = worker.numbers(SMALL)
        unwritten = worker.numbers(Case(suite="Scale", values=("3000", "float16", "flopwatch")))
    assert wrong.finite
    assert wrong.max_diff_eps is not None
    assert wrong.max_diff_eps > 5
    assert not unwritten.finite


def test_a_checkout_without_the_package_cannot_run_the_suite_and_says_why(toy: ToyRepository, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with Worker(Mode.INTERPRET, code_of(toy, tree=empty)) as worker:
        assert worker.hello.declared == ()
        with pytest.raises(CaseFailed, match="No module named 'toykernels' in the checkout"):
            worker.numbers(SMALL)


def test_a_worker_that_cannot_start_says_why(toy: ToyRepository) -> None:
    (toy.root / "benchmarks" / "again.py").write_text(toy.suite.read_text(encoding="utf-8"), encoding="utf-8")
    with Worker(Mode.INTERPRET, code_of(toy)) as worker:
        with pytest.raises(FlopwatchError, match="two suites are called Scale"):
            worker.hello  # noqa: B018 - reading it starts the worker
        assert worker.pid is None


def test_a_new_interpreter_that_dies_is_replaced_and_none_is_left(
    weather: Code, children: Callable[[int], set[int]]
) -> None:
    before = descriptors(), children(os.getpid())
    with Worker(Mode.GPU, weather) as worker:
        with pytest.raises(CaseFailed) as caught:
            worker.numbers(case("exits"))
        assert caught.value.failure.message == "exit status 7 during numbers"
        assert "last words" in caught.value.failure.traceback
        assert worker.numbers(case("prints")).max_diff_eps == 0
    assert (descriptors(), children(os.getpid())) == before


def test_an_exception_is_a_result_with_its_cause(worker: Worker) -> None:
    with pytest.raises(CaseFailed) as caught:
        worker.numbers(case("raises"))
    assert (caught.value.failure.kind, caught.value.failure.message) == ("ArithmeticError", "no scale today")
    assert "in raises" in caught.value.failure.traceback


@pytest.mark.parametrize(
    ("weather_name", "kind", "message"),
    [
        ("raises", "ArithmeticError", "no scale today"),
        ("raises_what_is_no_utf8", "ArithmeticError", "caf"),
        ("has_no_inputs", "LookupError", "the data set is gone"),
        ("returns_too_few", "ValueError", "the result has shape (63,), its reference (64,)"),
        ("runs_out_of_host_memory", "MemoryError", "MemoryError"),
    ],
)
def test_after_a_failure_the_same_process_goes_on(worker: Worker, weather_name: str, kind: str, message: str) -> None:
    assert worker.numbers(case("fair")).finite
    pid = worker.pid
    with pytest.raises(CaseFailed) as caught:
        worker.numbers(case(weather_name))
    assert caught.value.failure.kind == kind
    assert message in caught.value.failure.message
    assert worker.numbers(case("fair")).finite
    assert worker.pid == pid


@pytest.mark.parametrize(
    ("weather_name", "message", "log"),
    [
        ("is_killed", "exit status -9 during numbers", ""),
        ("segfaults", "exit status -11 during numbers", ""),
        ("exits", "exit status 7 during numbers", "last words"),
        ("quits", "exit status 1 during numbers", "SystemExit: tired"),
        ("leaves_a_child_behind", "exit status 7 during numbers", ""),
    ],
)
def test_a_process_that_dies_is_a_result_and_the_next_one_is_healthy(
    worker: Worker, weather_name: str, message: str, log: str
) -> None:
    assert worker.numbers(case("fair")).finite
    start = time.monotonic()
    with pytest.raises(CaseFailed) as caught:
        worker.numbers(case(weather_name))
    assert time.monotonic() - start < 10
    assert (caught.value.failure.kind, caught.value.failure.message) == ("WorkerDied", message)
    assert log in caught.value.failure.traceback
    assert worker.pid is None
    assert worker.numbers(case("fair")).finite


def test_nan_outputs_are_not_finite(worker: Worker) -> None:
    numbers = worker.numbers(case("returns_nan"))
    assert (numbers.finite, numbers.max_diff) == (False, None)


def test_a_worker_that_does_not_answer_in_time_is_stopped(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker.hello.declared
    pid = worker.pid
    monkeypatch.setattr(Op.NUMBERS, "deadline_s", 0.5)
    start = time.monotonic()
    with pytest.raises(CaseFailed, match=r"TimedOut: no answer to numbers in 0\.5 s") as caught:
        worker.numbers(case("hangs"))
    assert time.monotonic() - start < 3
    assert "nothing happens" in caught.value.failure.traceback
    assert not Path(f"/proc/{pid}").exists()
    monkeypatch.undo()
    assert worker.numbers(case("fair")).finite


def test_what_a_kernel_prints_does_not_disturb_the_answers(worker: Worker) -> None:
    assert [worker.numbers(case(name)).max_diff_eps for name in ("prints", "fair", "prints")] == [0, 0, 0]


def test_an_abandoned_worker_stops_at_once_and_stays_stopped(worker: Worker) -> None:
    assert worker.hello.declared
    pid = worker.pid
    timer = threading.Timer(0.3, worker.abandon)
    timer.start()
    with pytest.raises(CaseFailed, match="WorkerDied: exit status -9 during numbers"):
        worker.numbers(case("hangs"))
    timer.join()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(CaseFailed, match="Abandoned"):
        worker.numbers(case("fair"))
    assert worker.pid is None


def test_closing_stops_a_worker_that_is_idle_politely_and_may_be_repeated(worker: Worker) -> None:
    assert worker.hello.declared
    start = time.monotonic()
    worker.close()
    worker.close()
    assert time.monotonic() - start < 2


def test_nothing_is_left_of_workers_that_ended_in_any_way(
    weather: Code, nursery: Nursery, children: Callable[[int], set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted() -> tuple[int, set[int], int, set[int]]:
        return descriptors(), children(os.getpid()), descriptors(nursery.pid), children(nursery.pid)

    before = counted()
    monkeypatch.setattr(Op.NUMBERS, "deadline_s", 2.0)
    for name in ("fair", "raises", "exits", "is_killed", "segfaults", "hangs", "fair"):
        with Worker(Mode.GPU, weather, nursery=nursery) as worker:
            try:
                worker.numbers(case(name))
            except CaseFailed:
                assert name != "fair"
    assert counted() == before
