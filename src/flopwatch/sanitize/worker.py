"""A process in which cases run to be looked at: ``python -m flopwatch.sanitize.worker JOB OUT``.

Each case runs once, on its first inputs, an autotuned kernel in its first configuration. What becomes of it is a line
of OUT, so that the parent knows how far this came: a kernel may take the process with it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopwatch import overlay
from flopwatch.errors import MachineError
from flopwatch.measure.session import failure_of
from flopwatch.model import from_json, to_json
from flopwatch.sanitize.job import Job
from flopwatch.sanitize.result import CaseReport
from flopwatch.sanitize.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flopwatch.model import Case
    from flopwatch.suite import Suite


def main(arguments: list[str]) -> None:
    """Do a job; OUT is made when everything is ready for the first case."""
    job_path, out_path = arguments
    job = from_json(Path(job_path).read_bytes(), Job)
    overlay.install_from(os.environ)
    with LOOKS.get(job.tool, look_on_gpu)(job) as run, Path(out_path).open("wb", buffering=0) as out:
        out.writelines(to_json(report) + b"\n" for report in run_cases(job, run))  # each as it comes


def run_cases(job: Job, run: Callable[[Suite, Case], CaseReport]) -> Iterator[CaseReport]:
    """Run each case; yield what became of it."""
    from flopwatch.suite import discover  # noqa: PLC0415 - a GPU may have to be pretended before

    suites = discover(Path(job.benchmarks)).suites  # the modules that a look has imported are not imported again
    for case in job.cases:
        try:
            yield run(suites[case.suite](), case)
        except Exception as error:  # noqa: BLE001 - a case that fails is a result, whatever it raises
            yield CaseReport(case=case, tool=job.tool, failure=failure_of(error))


@contextlib.contextmanager
def look_on_gpu(job: Job) -> Iterator[Callable[[Suite, Case], CaseReport]]:
    """Run on the GPU, for a tool that looks from outside."""
    import torch  # noqa: PLC0415 - where it is needed

    if not torch.cuda.is_available():
        raise MachineError("there is no GPU", todo="run this where torch.cuda.is_available()")
    if job.tool is Tool.ASAN and torch.version.hip is None:
        raise MachineError(
            "AddressSanitizer looks at kernels of AMD's GPUs alone",
            why="this torch is not built for ROCm",
            todo="look with compute-sanitizer: leave out --tool",
        )

    def run(suite: Suite, case: Case) -> CaseReport:
        failure = None
        with launched_kernels() as kernels:
            try:
                _call(suite, case)
                torch.cuda.synchronize()
            except Exception as error:  # noqa: BLE001 - a case that fails is a result, whatever it raises
                failure = failure_of(error)
        return CaseReport(case=case, tool=job.tool, kernels=tuple(kernels), failure=failure)

    with first_configurations():
        yield run


@contextlib.contextmanager
def look_guarded(job: Job) -> Iterator[Callable[[Suite, Case], CaseReport]]:
    """Run in the interpreter, and watch every access."""
    from flopwatch.sanitize.guard import guarded  # noqa: PLC0415 - where it is needed
    from flopwatch.static import pretend_gpu  # noqa: PLC0415 - where it is needed
    from flopwatch.static.recorder import Autotune  # noqa: PLC0415 - where it is needed

    def run(suite: Suite, case: Case) -> CaseReport:
        with pretend_gpu(job.device, tensors="cpu", autotune=Autotune.FIRST), guarded() as guard:
            failure = None
            try:
                guard.result(_call(suite, case))
            except Exception as error:  # noqa: BLE001 - a case that fails is a result, whatever it raises
                failure = failure_of(error)
        return CaseReport(
            case=case,
            tool=job.tool,
            findings=guard.findings,
            kernels=tuple(guard.kernels),
            notes=tuple(guard.notes),
            failure=failure,
        )

    with pretend_gpu(job.device, tensors="cpu"):
        from flopwatch.suite import discover  # noqa: PLC0415 - a GPU may have to be pretended before

        discover(Path(job.benchmarks))
    yield run


@contextlib.contextmanager
def look_symbolic(job: Job) -> Iterator[Callable[[Suite, Case], CaseReport]]:
    """Run in triton-viz's interpreter, and have it look."""
    from flopwatch.sanitize import symbolic  # noqa: PLC0415 - where it is needed

    with symbolic.look_symbolic(Path(job.benchmarks), job.device) as run:
        yield run


@contextlib.contextmanager
def look_shared(job: Job) -> Iterator[Callable[[Suite, Case], CaseReport]]:
    """Run kernels that triton-shared compiles for the CPU, on tensors of the host that say they are on a GPU."""
    import triton  # noqa: PLC0415 - where it is needed
    from triton.backends.triton_shared.driver import CPUDriver  # noqa: PLC0415 - where it is needed

    from flopwatch.static import find_device  # noqa: PLC0415 - where it is needed
    from flopwatch.static.tensors import pretended_tensors  # noqa: PLC0415 - where it is needed
    from flopwatch.static.torch_cuda import patch_torch  # noqa: PLC0415 - where it is needed

    triton.runtime.driver.set_active(CPUDriver())

    def run(suite: Suite, case: Case) -> CaseReport:
        _call(suite, case)
        return CaseReport(case=case, tool=job.tool)

    with first_configurations(), contextlib.ExitStack() as restore:
        patch_torch(find_device(job.device), restore)
        restore.enter_context(pretended_tensors("cpu"))
        yield run


#: Who looks from inside the process; the others do from outside, at a GPU.
LOOKS: dict[Tool, Callable[[Job], contextlib.AbstractContextManager[Callable[[Suite, Case], CaseReport]]]] = {
    Tool.INTERPRETER: look_guarded,
    Tool.TRITON_VIZ: look_symbolic,
    Tool.TRITON_SAN: look_shared,
    Tool.TRITON_SAN_RACES: look_shared,
}


def _call(suite: Suite, case: Case) -> object:
    from flopwatch.measure.inputs import make_inputs  # noqa: PLC0415 - where it is needed

    return suite.call(case.provider)(*make_inputs(suite, case, seed=0))


@contextlib.contextmanager
def first_configurations() -> Iterator[None]:
    """Let every autotuner know its first configuration only: nothing is timed, and one run tells all."""
    from triton.runtime.autotuner import Autotuner  # noqa: PLC0415 - where it is needed

    original = Autotuner.run

    @functools.wraps(original)
    def run(tuner: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
        configs = tuner.configs
        tuner.configs = configs[:1]
        try:
            return original(tuner, *arguments, **named)
        finally:
            tuner.configs = configs

    Autotuner.run = run
    try:
        yield
    finally:
        Autotuner.run = original


@contextlib.contextmanager
def launched_kernels() -> Iterator[list[str]]:
    """Collect the names, in machine code, of the kernels that Triton launches."""
    from triton.runtime.jit import JITFunction  # noqa: PLC0415 - where it is needed

    names: list[str] = []
    original = JITFunction.run

    @functools.wraps(original)
    def run(function: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - untyped triton
        kernel = original(function, *arguments, **named)
        name = getattr(kernel, "name", function.__name__)
        if name not in names:
            names.append(name)
        return kernel

    JITFunction.run = run
    try:
        yield names
    finally:
        JITFunction.run = original


if __name__ == "__main__":
    main(sys.argv[1:])
