from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.errors import FlopwatchError
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.protocol import Op
from flopwatch.model import Case

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

HAS_GPU = torch.cuda.is_available()
SMALL = Case(suite="Scale", values=("1000", "float16", "flopwatch"))


def worker_of(toy: ToyRepository, mode: Mode = Mode.INTERPRET, tree: Path | None = None) -> Worker:
    return Worker(
        mode, benchmarks=toy.root / "benchmarks", tree=tree or toy.root, source="src", packages=["toykernels"]
    )


def test_a_worker_tells_what_it_runs_and_what_it_found(toy: ToyRepository) -> None:
    with worker_of(toy, Mode.STATIC) as worker:
        hello = worker.hello
    assert (hello.gpu is not None) == HAS_GPU
    assert set(hello.versions) == {"python", "torch", "triton"}
    assert [entry.case.id for entry in hello.declared if entry.own] == [
        "Scale[1000000,float16,flopwatch]",
        "Scale[1000000,float32,flopwatch]",
    ]
    assert hello.declared[0].small == SMALL
    assert (hello.declared[0].flops, hello.declared[0].bytes_moved) == (1e6, 4e6)


def test_a_right_kernel_has_small_numbers(toy: ToyRepository) -> None:
    with worker_of(toy) as worker:
        numbers = worker.numbers(SMALL)
    assert numbers.finite
    assert numbers.max_diff_eps is not None
    assert numbers.max_diff_eps <= 0.5


def test_a_planted_wrong_factor_shows_in_the_numbers(toy: ToyRepository) -> None:
    toy.edit("mask=mask) * factor", "mask=mask) * factor * 1.01")
    with worker_of(toy) as worker:
        numbers = worker.numbers(SMALL)
    assert numbers.max_diff_eps is not None
    assert numbers.max_diff_eps > 5


def test_an_element_never_written_is_not_finite(toy: ToyRepository) -> None:
    toy.edit("tl.store(out + offsets, tl.load", "mask = mask & (offsets != 7)\n    tl.store(out + offsets, tl.load")
    with worker_of(toy) as worker:
        assert not worker.numbers(SMALL).finite


def test_the_facts_are_those_of_the_checkout(toy: ToyRepository) -> None:
    with worker_of(toy, Mode.STATIC) as worker:
        facts = worker.facts(Case(suite="Scale", values=("1000000", "float16", "flopwatch")))
    assert [(fact.kernel, fact.num_warps, fact.device) for fact in facts] == [("scale_kernel", 4, "h200")]
    assert facts[0].registers is not None
    assert facts[0].registers > 0


def test_a_peer_has_no_facts(toy: ToyRepository) -> None:
    with worker_of(toy, Mode.STATIC) as worker:
        assert worker.facts(Case(suite="Scale", values=("1000000", "float16", "torch"))) == ()


def test_an_exception_is_a_result_with_its_cause(toy: ToyRepository) -> None:
    toy.edit("    out = torch.empty_like(x)", "    raise ArithmeticError('no scale today')")
    with worker_of(toy) as worker, pytest.raises(CaseFailed) as caught:
        worker.numbers(SMALL)
    assert (caught.value.failure.kind, caught.value.failure.message) == ("ArithmeticError", "no scale today")
    assert "in scale" in caught.value.failure.traceback


def test_a_worker_that_dies_is_reported_and_the_next_request_finds_a_new_one(toy: ToyRepository) -> None:
    toy.edit(
        "    out = torch.empty_like(x)",
        "    import os, sys\n    if x.dtype == torch.float32:\n"
        "        print('last words', flush=True)\n        os._exit(7)\n    out = torch.empty_like(x)",
    )
    with worker_of(toy) as worker:
        with pytest.raises(CaseFailed) as caught:
            worker.numbers(Case(suite="Scale", values=("1000", "float32", "flopwatch")))
        assert caught.value.failure.kind == "WorkerDied"
        assert "exit status 7" in caught.value.failure.message
        assert "last words" in caught.value.failure.traceback
        assert worker.numbers(SMALL).finite


def test_a_worker_that_does_not_answer_in_time_is_stopped(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.edit("    out = torch.empty_like(x)", "    import time; time.sleep(600)")
    with worker_of(toy) as worker:
        assert worker.hello.declared
        monkeypatch.setattr(Op.NUMBERS, "deadline_s", 0.5)
        with pytest.raises(CaseFailed, match=r"TimedOut: no answer to numbers in 0\.5 s"):
            worker.numbers(SMALL)


def test_what_a_kernel_prints_does_not_disturb_the_answers(toy: ToyRepository) -> None:
    toy.edit("    out = torch.empty_like(x)", "    print('{\"value\": 1}', flush=True)\n    out = torch.empty_like(x)")
    with worker_of(toy) as worker:
        assert worker.numbers(SMALL).finite


def test_a_checkout_without_the_package_cannot_run_the_suite_and_says_why(toy: ToyRepository, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with worker_of(toy, tree=empty) as worker:
        assert worker.hello.declared == ()
        with pytest.raises(CaseFailed, match="No module named 'toykernels' in the checkout"):
            worker.numbers(SMALL)


def test_a_worker_that_cannot_start_says_why(toy: ToyRepository) -> None:
    (toy.root / "benchmarks" / "again.py").write_text(toy.suite.read_text(encoding="utf-8"), encoding="utf-8")
    with worker_of(toy) as worker, pytest.raises(FlopwatchError, match="two suites are called Scale"):
        worker.hello  # noqa: B018 - reading it starts the worker


def test_closing_leaves_no_process_and_no_descriptor(toy: ToyRepository) -> None:
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    with worker_of(toy, Mode.STATIC) as worker:
        assert worker.hello.declared
        process = worker._process
        assert process is not None
    assert process.poll() == 0
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before
