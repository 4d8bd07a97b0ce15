from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.measure.conftest import KERNELS, write_code

from flopwatch.measure.client import CaseFailed, Mode, Nursery, NurseryFailed, Worker
from flopwatch.measure.process import Code
from flopwatch.measure.protocol import Op
from flopwatch.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable

OVERLAY = {"FLOPWATCH_TREE": "/tree", "FLOPWATCH_SOURCE": "src", "FLOPWATCH_PACKAGES": "a,b"}
CODE = Code(benchmarks=Path("benchmarks"))


def case(weather: str) -> Case:
    return Case(suite="Weather", values=(weather, "flopwatch"))


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}/exe").exists():  # of a zombie that nobody waits for, there is none
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.01)


def test_the_environment_names_the_checkout_and_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITON_INTERPRET", "TRITON_CACHE_AUTOTUNING", *OVERLAY):
        monkeypatch.setenv(name, "outer")
    code = Code(benchmarks=Path("benchmarks"), tree=Path("/tree"), source="src", packages=("a", "b"))

    gpu, interpreted = code.environment(Mode.GPU), code.environment(Mode.INTERPRET)

    assert gpu.items() >= OVERLAY.items()
    assert {"TRITON_INTERPRET", "TRITON_CACHE_AUTOTUNING"} & gpu.keys() == set()
    assert interpreted["TRITON_INTERPRET"] == "1"


def test_without_a_checkout_what_is_installed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOPWATCH_TREE", "outer")

    assert "FLOPWATCH_TREE" not in CODE.environment(Mode.GPU)


def test_triton_keeps_its_choices_on_disk_on_request() -> None:
    kept = Code(benchmarks=Path("benchmarks"), keep_choices=True)

    assert kept.environment(Mode.GPU)["TRITON_CACHE_AUTOTUNING"] == "1"


def test_a_fork_can_be_waited_for_and_stopped(nursery: Nursery) -> None:
    requests_read, requests_write = os.pipe()
    replies_read, replies_write = os.pipe()
    with tempfile.TemporaryFile() as log:
        process = nursery.fork(requests_read, replies_write, log.fileno())
    try:
        assert process.pid != nursery.pid
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.kill()
        assert process.wait(10) == -signal.SIGKILL
        process.kill()  # its number may be another's by now
        assert process.wait() == -signal.SIGKILL
    finally:
        for descriptor in (requests_read, requests_write, replies_read, replies_write):
            os.close(descriptor)


def test_a_fork_ends_by_itself_when_nobody_can_ask_it_anything(nursery: Nursery) -> None:
    requests_read, requests_write = os.pipe()
    replies_read, replies_write = os.pipe()
    with tempfile.TemporaryFile() as log:
        process = nursery.fork(requests_read, replies_write, log.fileno())
    for descriptor in (requests_read, requests_write, replies_read, replies_write):
        os.close(descriptor)

    assert process.wait(10) == 0


def test_two_threads_can_fork_and_reap_at_once(nursery: Nursery, weather: Code) -> None:
    def live(name: str) -> str:
        try:
            with Worker(Mode.GPU, weather, nursery=nursery) as worker:
                return str(worker.numbers(case(name)).finite)
        except CaseFailed as error:
            return error.failure.message

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(live, ["fair", "exits", "is_killed", "fair"] * 6))

    expected = ["True", "exit status 7 during numbers", "exit status -9 during numbers", "True"]
    assert found == expected * 6


def test_two_checkouts_are_measured_at_once_and_one_that_does_not_import_says_why(tmp_path: Path) -> None:
    head = write_code(tmp_path / "head", kernels=KERNELS.replace("FACTOR = 2.0", "FACTOR = 2.5"))
    (tmp_path / "base").mkdir()
    base = dataclasses.replace(head, tree=tmp_path / "base")  # it is older than the package under test
    with (
        Nursery(head) as of_head,
        Nursery(base) as of_base,
        Worker(Mode.GPU, head, nursery=of_head) as one,
        Worker(Mode.GPU, base, nursery=of_base) as other,
    ):
        wrong = one.numbers(case("fair"))
        failures = other.hello.import_failures
        with pytest.raises(CaseFailed, match="SuiteError: no suite 'Weather'"):
            other.numbers(case("fair"))
    assert wrong.max_diff_eps is not None
    assert wrong.max_diff_eps > 1e5
    assert failures.keys() == {"benchmarks.weather"}
    assert "No module named 'toykernels' in the checkout" in failures["benchmarks.weather"]


def test_a_nursery_that_dies_takes_its_workers_along(
    weather: Code, children: Callable[[int], set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Op.NUMBERS, "deadline_s", 20.0)
    before = children(os.getpid()), sum(1 for _ in Path("/proc/self/fd").iterdir())
    with Nursery(weather) as nursery, Worker(Mode.GPU, weather, nursery=nursery) as worker:
        assert worker.hello.declared
        pid = worker.pid
        assert pid is not None
        with ThreadPoolExecutor(1) as pool:
            hanging = pool.submit(worker.numbers, case("hangs"))
            time.sleep(0.2)
            os.kill(nursery.pid, signal.SIGKILL)
            with pytest.raises(CaseFailed, match="WorkerDied: exit status -9 during numbers"):
                hanging.result()
        wait_until_gone(pid)
        with pytest.raises(NurseryFailed, match="the nursery"):
            nursery.ready()
        # Without a GPU the case fails, but in a new interpreter: no one is left to fork it.
        monkeypatch.setattr(Op.NUMBERS, "deadline_s", 120.0)
        assert worker.hello.declared
        with contextlib.suppress(CaseFailed):
            worker.numbers(case("fair"))
        assert worker.pid in children(os.getpid())
    assert (children(os.getpid()), sum(1 for _ in Path("/proc/self/fd").iterdir())) == before


def test_when_its_client_is_killed_nothing_is_left(weather: Code) -> None:
    program = f"""\
import os, signal
from pathlib import Path
from flopwatch.measure.client import Code, Mode, Nursery, Worker
code = Code(benchmarks=Path({str(weather.benchmarks)!r}), tree=Path({str(weather.tree)!r}), source="src",
            packages=("toykernels",))
nursery = Nursery(code)
worker = Worker(Mode.GPU, code, nursery=nursery)
worker.hello
print(nursery.pid, worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)

    assert done.returncode == -signal.SIGKILL
    for pid in map(int, done.stdout.split()):
        wait_until_gone(pid)


def test_a_nursery_that_cannot_import_a_suite_says_why_once_and_for_all(tmp_path: Path) -> None:
    with Nursery(Code(benchmarks=tmp_path / "missing")) as nursery:
        for _ in range(2):
            with pytest.raises(NurseryFailed, match=r"SuiteError: no suites in .*missing"):
                nursery.ready()
