"""The process that runs the code under test: reads requests, answers them, and dies with its parent.

``python -m flopwatch.measure.worker MODE BENCHMARKS DEVICE REQUESTS_FD REPLIES_FD``; the checkout under test comes from
the environment (`flopwatch.overlay`). Whatever the code under test prints goes to stdout and stderr, never into the
answers.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopwatch import overlay
from flopwatch.errors import SuiteError, UsageError
from flopwatch.measure.protocol import DeclaredCase, Hello, Mode, Op, Plan, Reply, Request
from flopwatch.model import Case, Failure, Timing, from_json, to_json
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.measure.timer import PreparedCase
    from flopwatch.suite import Suite

#: Samples behind one point of the history. The median of 40 errs by 1.25 * 0.3 % / sqrt(40) = 0.06 % at the scatter
#: inside a process on an H200 (0.3 %, 2026-11-20), which is less than processes differ by.
HISTORY_SAMPLES = 40


class Session:
    """The state of one worker: its suites, and the case that is ready to be sampled."""

    def __init__(self, mode: Mode, benchmarks: Path, device: str) -> None:
        self.mode = mode
        self.device = device
        if mode is Mode.GPU:
            from flopwatch.measure.tuning import ignore_line_numbers  # noqa: PLC0415 - before any kernel is defined

            ignore_line_numbers()
        finder = overlay.install_from(os.environ)
        self.discovery = discover(benchmarks)
        foreign = overlay.foreign_modules(finder) if finder else []
        if foreign:
            raise UsageError(
                f"{', '.join(foreign)} did not come from the checkout under test",
                todo="name every package of the code under test in [tool.flopwatch] packages",
            )
        self._ready: tuple[Case, PreparedCase] | None = None

    def answer(self, request: Request) -> object:
        """Do what is asked and return a value that can be written as JSON."""
        case = request.case
        if request.op == Op.HELLO.word:
            return self.hello()
        if case is None:
            raise UsageError(f"request {request.op!r} names no case")
        match request.op:
            case Op.PREPARE.word:
                return self.prepare(case, request.plan).plan
            case Op.VISIT.word:
                return self.prepared(case).sample(request.launches, warm_up=1)
            case Op.TIME.word:
                prepared = self.prepare(case, None)
                return Timing(seconds=prepared.sample(HISTORY_SAMPLES, warm_up=2), method=prepared.plan.method.value)
            case Op.NUMBERS.word:
                return self.numbers(case, request.seed)
            case Op.MEMORY.word:
                return self.peak_memory(case)
            case Op.FACTS.word:
                return self.facts(case)
            case _:
                raise UsageError(f"no such request: {request.op!r}")

    def hello(self) -> Hello:
        """Say what this worker runs on."""
        return Hello(
            gpu=_gpu_name(),
            versions={
                "python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in ("torch", "triton")},
            },
            declared=tuple(
                _declared(suite, case) for suite in self.discovery.suites.values() for case in suite.cases()
            ),
            import_failures={
                name: f"{type(error).__name__}: {error}" for name, error in self.discovery.failures.items()
            },
        )

    def suite(self, case: Case) -> Suite:
        """Return an instance of the suite that declares the case."""
        try:
            return self.discovery.suites[case.suite]()
        except KeyError:
            causes = [f"{name}: {type(error).__name__}: {error}" for name, error in self.discovery.failures.items()]
            raise SuiteError(f"no suite {case.suite!r}", why="; ".join(causes)) from None

    def prepare(self, case: Case, plan: Plan | None) -> PreparedCase:
        """Make a case ready to be sampled, in place of the one before."""
        from flopwatch.measure.timer import PreparedCase  # noqa: PLC0415 - torch is not needed to answer HELLO

        self._release()
        prepared = PreparedCase(self.suite(case), case, plan)
        self._ready = (case, prepared)
        return prepared

    def prepared(self, case: Case) -> PreparedCase:
        """Return the case that `prepare` made ready."""
        if self._ready is None or self._ready[0] != case:
            raise UsageError(f"{case.id} was not prepared")
        return self._ready[1]

    def numbers(self, case: Case, seed: int) -> object:
        """Compare the case's result with its reference, on the GPU or by the interpreter."""
        from flopwatch.measure.numbers import check_numbers  # noqa: PLC0415 - where it is needed

        with self._device():
            return check_numbers(self.suite(case), case, seed, tune_first=self.mode is Mode.GPU)

    def peak_memory(self, case: Case) -> int:
        """Return the bytes that one call allocates at its peak, the inputs not counted."""
        import torch  # noqa: PLC0415 - where it is needed

        from flopwatch.measure.inputs import make_inputs  # noqa: PLC0415 - where it is needed

        suite = self.suite(case)
        call, inputs = suite.call(case.provider), make_inputs(suite, case, seed=0)
        call(*inputs)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call(*inputs)
        torch.cuda.synchronize()
        del result
        return torch.cuda.max_memory_allocated() - before

    def facts(self, case: Case) -> object:
        """Compile every kernel that the case launches, and return what the compiler made of it."""
        from flopwatch.measure.inputs import make_inputs  # noqa: PLC0415 - where it is needed
        from flopwatch.static import kernel_facts, pretend_gpu  # noqa: PLC0415 - where it is needed

        suite = self.suite(case)
        if case.provider != suite.own_provider:
            return ()
        with pretend_gpu(self.device, tensors="meta") as recorder:
            inputs = make_inputs(suite, case, seed=0)
            try:
                suite.run(*inputs)
            except Exception:
                facts = kernel_facts(recorder)
                if not any(fact.failure for fact in facts):
                    raise
                return facts  # a kernel that does not compile is what was asked about
            return kernel_facts(recorder)

    def _device(self) -> contextlib.AbstractContextManager[object]:
        if self.mode is Mode.GPU:
            return contextlib.nullcontext()
        from flopwatch.static import pretend_gpu  # noqa: PLC0415 - where it is needed

        return pretend_gpu(self.device, tensors="cpu")

    def _release(self) -> None:
        if self._ready is not None:
            import torch  # noqa: PLC0415 - where it is needed

            self._ready = None
            torch.cuda.empty_cache()


def _declared(suite: type[Suite], case: Case) -> DeclaredCase:
    return DeclaredCase(
        case=case,
        small=suite.small_case(case),
        own=case.provider == suite.own_provider,
        max_diff_eps=suite.max_diff_eps,
        flops=float(suite().flops(*case.values[:-1])),
        bytes_moved=float(suite().bytes_moved(*case.values[:-1])),
    )


def failure_of(error: BaseException) -> Failure:
    """Keep what is worth knowing of an exception."""
    message = str(error).strip() or type(error).__name__
    return Failure(kind=type(error).__name__, message=message[:2000], traceback=traceback.format_exc()[-8000:])


def _gpu_name() -> str | None:
    import torch  # noqa: PLC0415 - a static worker has no use for it here

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _gpu_is_lost() -> bool:
    """Tell whether an earlier kernel has broken the CUDA context for good."""
    import torch  # noqa: PLC0415 - where it is needed

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def serve(session: Session, requests: Iterator[bytes], replies: Any) -> None:  # noqa: ANN401 - a binary stream
    """Answer until the parent closes its end; give up the process where the GPU context is lost."""
    for line in requests:
        try:
            reply = Reply(value=session.answer(from_json(line, Request)))
        except Exception as error:  # noqa: BLE001 - a failing benchmark is a result, whatever it raises
            reply = Reply(failure=failure_of(error), last=session.mode is Mode.GPU and _gpu_is_lost())
        replies.write(to_json(reply) + b"\n")
        replies.flush()
        if reply.last:
            os._exit(1)  # destructors of a lost context can hang


def main(arguments: list[str]) -> None:
    """Start a session and serve it."""
    mode, benchmarks, device, requests_fd, replies_fd = arguments
    for descriptor in (int(requests_fd), int(replies_fd)):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional-only
    with os.fdopen(int(requests_fd), "rb") as requests, os.fdopen(int(replies_fd), "wb") as replies:
        try:
            session = Session(Mode(mode), Path(benchmarks), device)
        except Exception as error:  # noqa: BLE001 - the parent must learn why there is no worker
            replies.write(to_json(Reply(failure=failure_of(error), last=True)) + b"\n")
            return
        serve(session, iter(requests), replies)


if __name__ == "__main__":
    main(sys.argv[1:])
