"""Code under test that does what its case is called, and a nursery that has imported it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.measure.client import Code, Mode, Nursery, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Each function is a case. None needs a GPU, so that what goes wrong is the same on every machine.
KERNELS = '''\
"""What can happen to a kernel."""

import ctypes
import os
import resource
import signal
import time

import torch

FACTOR = 2.0
calls = 0


def fair(x):
    return x * FACTOR


def counts(x):
    global calls
    calls += 1
    return x * 0 + calls


def raises(x):
    raise ArithmeticError("no scale today")


def raises_what_is_no_utf8(x):
    raise ArithmeticError("caf\\udce9")


def runs_out_of_host_memory(x):
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * os.sysconf("SC_PAGESIZE") + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return bytearray(1 << 30)


def returns_too_few(x):
    return x[:-1] * FACTOR


def returns_nan(x):
    return x * torch.where(x == x.max(), float("nan"), FACTOR)


def prints(x):
    print('{"value": 1}', flush=True)
    os.write(1, b'{"value": 2}\\n')
    os.write(2, b'{"value": 3}\\n')
    return x * FACTOR


def is_killed(x):
    os.kill(os.getpid(), signal.SIGKILL)


def segfaults(x):
    ctypes.string_at(0)


def hangs(x):
    print("nothing happens", flush=True)
    time.sleep(600)


def exits(x):
    print("last words", flush=True)
    os._exit(7)


def quits(x):
    raise SystemExit("tired")


def leaves_a_child_behind(x):
    os.system("sleep 20 &")
    os._exit(7)
'''
SUITE = '''\
"""The suite of what can happen."""

import torch
import toykernels
from flopwatch import Suite


class Weather(Suite):
    """out = 2 * x."""

    params = (["fair"],)
    param_names = ("weather",)

    def inputs(self, weather, *, seed):
        if weather == "has_no_inputs":
            raise LookupError("the data set is gone")
        return torch.randn(64, generator=torch.Generator().manual_seed(seed)), weather

    def run(self, x, weather):
        return getattr(toykernels, weather)(x)

    def reference(self, x, weather):
        return x.double() * 2

    def flops(self, weather):
        return 64

    def bytes_moved(self, weather):
        return 512
'''


def write_code(folder: Path, *, kernels: str = KERNELS, suite: str = SUITE) -> Code:
    """Write a checkout of `kernels` and its suite."""
    for path, text in (("src/toykernels/__init__.py", kernels), ("benchmarks/weather.py", suite)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return Code(benchmarks=folder / "benchmarks", tree=folder, source="src", packages=("toykernels",))


@pytest.fixture(scope="session")
def weather(tmp_path_factory: pytest.TempPathFactory) -> Code:
    """What can happen, as a checkout."""
    return write_code(tmp_path_factory.mktemp("weather"))


@pytest.fixture(scope="session")
def nursery(weather: Code) -> Iterator[Nursery]:
    """A nursery for all tests that do it no harm."""
    with Nursery(weather) as started:
        started.ready()
        yield started


@pytest.fixture
def worker(weather: Code, nursery: Nursery) -> Iterator[Worker]:
    """A worker that is forked at its first request."""
    with Worker(Mode.GPU, weather, nursery=nursery) as started:
        yield started


@pytest.fixture
def children() -> Callable[[int], set[int]]:
    """Return the processes whose parent is the given one, those included that ended and were not waited for."""
    return _children


def _children(parent: int) -> set[int]:
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # no process, or one that ended meanwhile
        if folder.name.isdigit() and int(stat.rpartition(")")[2].split()[1]) == parent:
            found.add(int(folder.name))
    return found
