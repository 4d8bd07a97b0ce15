from __future__ import annotations

import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import torch
from tests.measure.conftest import SUITE, write_code

from flopwatch.measure.client import CaseFailed, Code, Mode, Nursery, NurseryFailed, Worker
from flopwatch.model import Case

if TYPE_CHECKING:
    from pathlib import Path

#: A driver that answers what the real one does: 3 before it is initialised, 0 afterwards.
DRIVER = "int cuDeviceGetCount(int *count) { *count = 1; return RESULT; }\n"
PROGRAM = """\
import ctypes, sys
from flopwatch.measure.nursery import cuda_was_initialised
for library in sys.argv[1:]:
    ctypes.CDLL(library)
print(cuda_was_initialised())
"""


def case(weather: str) -> Case:
    return Case(suite="Weather", values=(weather, "flopwatch"))


def build_driver(folder: Path, *, result: int) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler to build a driver that pretends")
    source, library = folder / "driver.c", folder / "libpretend.so"
    source.write_text(DRIVER, encoding="utf-8")
    options = ["-shared", "-fPIC", f"-DRESULT={result}", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([compiler, *options, "-o", str(library), str(source)], check=True)
    return library


def ask(*libraries: Path) -> str:
    command = [sys.executable, "-c", PROGRAM, *map(str, libraries)]
    return subprocess.check_output(command, text=True).strip()


def failure_of(code: Code) -> str:
    with Nursery(code) as nursery, pytest.raises(NurseryFailed) as caught:
        nursery.ready()
    return str(caught.value)


def test_without_a_driver_in_memory_cuda_was_not_initialised() -> None:
    assert ask() == "False"


@pytest.mark.parametrize(("result", "answer"), [(3, "False"), (0, "True"), (100, "True")])
def test_a_driver_in_memory_tells_whether_it_was_initialised(tmp_path: Path, result: int, answer: str) -> None:
    assert ask(build_driver(tmp_path, result=result)) == answer


def test_a_suite_that_touches_the_gpu_when_imported_cannot_be_forked(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        touch = "torch.cuda.init()"
    else:
        touch = f"import ctypes\nctypes.CDLL({str(build_driver(tmp_path, result=0))!r})"
    code = write_code(tmp_path, suite=SUITE.replace("import toykernels\n", f"import toykernels\n{touch}\n"))

    assert "CUDA was initialised while the suites were imported" in failure_of(code)


def test_a_suite_that_starts_threads_when_imported_cannot_be_forked(tmp_path: Path) -> None:
    compute = "torch.set_num_threads(2)\ntorch.randn(4_000_000).mul(2)"
    code = write_code(tmp_path, suite=SUITE.replace("import toykernels\n", f"import toykernels\n{compute}\n"))

    assert "threads were started while the suites were imported" in failure_of(code)


def test_a_nursery_that_nobody_has_waited_for_ends_at_once(tmp_path: Path) -> None:
    code = write_code(tmp_path, suite=SUITE.replace("import toykernels\n", "import time\n\ntime.sleep(20)\n"))
    start = time.monotonic()
    with Nursery(code, Mode.STATIC):
        pass

    assert time.monotonic() - start < 10


def test_a_suite_that_leaves_when_imported_ends_the_nursery_with_its_last_words(tmp_path: Path) -> None:
    code = write_code(tmp_path, suite=SUITE.replace("import toykernels\n", "raise SystemExit('not today')\n"))
    with Nursery(code) as nursery, pytest.raises(NurseryFailed, match="WorkerDied: the nursery died") as caught:
        nursery.ready()

    assert "not today" in caught.value.failure.traceback


def test_a_suite_that_raises_when_imported_costs_no_other_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    code = write_code(tmp_path, suite=f"print('read the suite')\n{SUITE}")
    (tmp_path / "benchmarks" / "bad.py").write_text("raise LookupError('no licence')\n", encoding="utf-8")
    with Nursery(code) as nursery, Worker(Mode.GPU, code, nursery=nursery) as worker:
        assert worker.hello.import_failures == {"benchmarks.bad": "LookupError: no licence"}
        assert worker.numbers(case("fair")).finite
        with pytest.raises(CaseFailed) as caught:
            worker.numbers(case("exits"))

    assert caught.value.failure.traceback == "last words\n"  # and not what the suite printed in the nursery


def test_each_fork_starts_with_what_was_imported_and_nothing_else(nursery: Nursery, weather: Code) -> None:
    found = []
    for _ in range(2):
        with Worker(Mode.GPU, weather, nursery=nursery) as worker:
            found.append([worker.numbers(case("counts")).bitwise for _ in range(2)])

    assert found[0][0] != found[0][1]
    assert found[0] == found[1]
