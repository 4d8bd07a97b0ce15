"""The parent's side of a worker: start it, ask it, notice when it dies."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import select
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec

from flopwatch.errors import FlopwatchError
from flopwatch.measure.process import Code, Nursery, NurseryFailed, Process, forget_lent, spawn
from flopwatch.measure.protocol import Compiled, Gathered, Hello, IrText, Mode, Op, Plan, Prepared, Reply, Request
from flopwatch.model import Choice, Failure, KernelFacts, Memory, Numbers, Timing, from_json, to_json
from flopwatch.static.recorder import Autotune
from flopwatch.static.traffic.footprint import Footprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from flopwatch.model import Case

__all__ = ["CaseFailed", "Code", "Mode", "Nursery", "NurseryFailed", "Worker", "side_by_side"]

T = TypeVar("T")
_LOG_TAIL_BYTES = 4000
_GRACE_S = 5.0


class CaseFailed(Exception):  # noqa: N818 - a case that fails is a result, not an error of flopwatch
    """A worker could not do what it was asked; `failure` says why."""

    def __init__(self, failure: Failure, worker: Worker | None = None) -> None:
        super().__init__(f"{failure.kind}: {failure.message}")
        self.failure = failure
        self.worker = worker


class Worker(contextlib.AbstractContextManager["Worker"]):
    """A process that runs one side's code.

    It starts at the first request, and again at the next one after it died or was stopped for being late.

    Args:
        mode: what it is for.
        code: what it imports.
        nursery: forks the process; None starts a new interpreter.
    """

    def __init__(self, mode: Mode, code: Code, *, nursery: Nursery | None = None) -> None:
        self.mode = mode
        self._code = code
        self._nursery = nursery
        self._process: Process | None = None
        self._requests: BinaryIO | None = None
        self._replies = -1
        self._buffer = b""
        self._log: BinaryIO | None = None
        self._hello: Hello | None = None
        self._abandoned = False
        #: Whether others can open its memory; who found out that they cannot says so here.
        self.lends = True
        self._has_lent = False

    @property
    def pid(self) -> int | None:
        """The number of its process, while there is one."""
        return None if self._process is None else self._process.pid

    @property
    def hello(self) -> Hello:
        """What the worker says of itself.

        Raises:
            FlopwatchError: it does not come up.
        """
        if self._hello is None:
            try:
                self._hello = self._ask(Request(op=Op.HELLO.word), Op.HELLO, Hello)
            except CaseFailed as error:
                failure = error.failure
                todo = "" if failure.kind in ("SuiteError", "UsageError") else f"look into this:\n{failure.traceback}"
                raise FlopwatchError(
                    f"the {self.mode.value} worker does not start", why=failure.message, todo=todo
                ) from None
        return self._hello

    def start(self) -> None:
        """Start the process before its first request, to import meanwhile what it needs."""
        if self._requests is None:
            self._start()

    def wake(self) -> None:
        """Start, and take hold of the GPU, while others do too; what keeps it from that is told at the next request."""
        with contextlib.suppress(CaseFailed):
            self._ask(Request(op=Op.WAKE.word), Op.WAKE, type(None))

    def prepare(
        self, case: Case, plan: Plan | None = None, pins: Sequence[Choice] = (), *, beside: bool = False, lent: str = ""
    ) -> Prepared:
        """Make a case ready on the GPU, in place of the one before or `beside` it, with inputs that another has `lent`.

        Returns:
            The plan that was chosen, which may differ from `plan`, and what autotuned kernels run in.
        """
        request = Request(op=Op.PREPARE.word, case=case, plan=plan, pins=tuple(pins), beside=beside, lent=lent)
        return self._ask(request, Op.PREPARE, Prepared)

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        """Take samples of the prepared case: seconds per call."""
        return self._ask(Request(op=Op.VISIT.word, case=case, samples=samples), Op.VISIT, tuple[float, ...])

    def lend(self, case: Case, to: Worker) -> str:
        """Describe the memory of the prepared case's inputs, for `to` to borrow; "" where it cannot.

        The borrower must be released before this worker is, or prepares anything else.
        """
        if not self.lends or self._code.interpreter != to._code.interpreter:
            return ""  # another torch, perhaps, with other words for it
        self._has_lent = True
        return self._ask(Request(op=Op.LEND.word, case=case), Op.LEND, str)

    def place(self, case: Case) -> None:
        """Move the results of the prepared case to other memory, its inputs left where they are."""
        self._ask(Request(op=Op.PLACE.word, case=case), Op.PLACE, type(None))

    def launch(self, case: Case, samples: int) -> tuple[float, ...]:
        """Measure what calling the prepared case costs the host: seconds per call."""
        return self._ask(Request(op=Op.LAUNCH.word, case=case, samples=samples), Op.LAUNCH, tuple[float, ...])

    def release(self, case: Case) -> None:
        """Give the memory of the prepared case back to the GPU."""
        self._ask(Request(op=Op.RELEASE.word, case=case), Op.RELEASE, type(None))

    def tune(self, case: Case, pins: Sequence[Choice] = ()) -> tuple[Choice, ...]:
        """Compile and tune the case's kernels; return what they run in."""
        return self._ask(Request(op=Op.TUNE.word, case=case, pins=tuple(pins)), Op.TUNE, tuple[Choice, ...])

    def time(self, case: Case) -> Timing:
        """Prepare the case and take the samples of one point of the history."""
        return self._ask(Request(op=Op.TIME.word, case=case), Op.TIME, Timing)

    def numbers(self, case: Case, *, seed: int = 0, pins: Sequence[Choice] = ()) -> Numbers:
        """Compare the case's result with its float64 reference."""
        return self._ask(Request(op=Op.NUMBERS.word, case=case, seed=seed, pins=tuple(pins)), Op.NUMBERS, Numbers)

    def bits(self, case: Case, *, seed: int = 0, pins: Sequence[Choice] = ()) -> str:
        """Return a fingerprint of the case's result."""
        return self._ask(Request(op=Op.BITS.word, case=case, seed=seed, pins=tuple(pins)), Op.BITS, str)

    def memory(self, case: Case, pins: Sequence[Choice] = ()) -> Memory:
        """Measure what one call takes from the GPU's memory, and what it does not give back."""
        return self._ask(Request(op=Op.MEMORY.word, case=case, pins=tuple(pins)), Op.MEMORY, Memory)

    def compile(self, case: Case, *, identify: bool = True) -> Compiled:
        """Compile what the case launches, for the device named at the start; find out, too, what it would run."""
        return self._ask(Request(op=Op.FACTS.word, case=case, identify=identify), Op.FACTS, Compiled)

    def facts(self, case: Case) -> tuple[KernelFacts, ...]:
        """Return what the compiler made of the case."""
        return self.compile(case).facts

    def keep(self, case: Case, autotune: Autotune = Autotune.ALL) -> None:
        """Compile what the case launches; `gather` tells the facts of all that was kept.

        Raises:
            CaseFailed: it cannot be compiled without running; facts that tell why are kept all the same.
        """
        self._ask(Request(op=Op.KEEP.word, case=case, autotune=autotune), Op.KEEP, type(None))

    def gather(self) -> Gathered:
        """Return the facts of the cases that were kept, and forget these; in a worker that died they are lost."""
        return self._ask(Request(op=Op.GATHER.word), Op.GATHER, Gathered)

    def ir(self, case: Case, kernels: Sequence[tuple[str, str, str]], levels: Sequence[str]) -> tuple[IrText, ...]:
        """Return what the compiler had at these levels of these kernels, each a name, a variant and a configuration."""
        request = Request(op=Op.IR.word, case=case, kernels=tuple(kernels), levels=tuple(levels))
        return self._ask(request, Op.IR, tuple[IrText, ...])

    def footprints(self, case: Case, programs: Sequence[int] = ()) -> tuple[Footprint, ...]:
        """Return which elements each program of the case's launches accesses, with these programs told apart."""
        request = Request(op=Op.FOOTPRINTS.word, case=case, programs=tuple(programs))
        return self._ask(request, Op.FOOTPRINTS, tuple[Footprint, ...])

    def abandon(self) -> None:
        """Stop at once, from another thread too; later requests fail instead of starting a new process."""
        self._abandoned = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Stop the process, politely first."""
        if self._requests is not None:
            with contextlib.suppress(BrokenPipeError):
                self._requests.close()
            self._requests = None
        if self._process is not None:
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._has_lent:
                forget_lent(self._process.pid)
            self._process = None
            os.close(self._replies)
        if self._log is not None:
            self._log.close()
            self._log = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> BinaryIO:
        requests_read, requests_write = os.pipe()
        replies_read, replies_write = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process; close() closes it
        ends = (requests_read, replies_write, self._log.fileno())
        if self._nursery is not None:
            try:
                self._process = self._nursery.fork(*ends)
            except NurseryFailed:
                self._nursery = None
        if self._process is None:
            self._process = spawn(self.mode, self._code, *ends)
        if self._abandoned:  # by another thread, which found no process to stop
            self._process.kill()
        os.close(requests_read)
        os.close(replies_write)
        self._requests = os.fdopen(requests_write, "wb")
        self._replies = replies_read
        self._buffer = b""
        return self._requests

    def _ask(self, request: Request, op: Op, answer: type[T]) -> T:
        if self._abandoned:
            raise CaseFailed(Failure(kind="Abandoned", message="the run was stopped"), self)
        requests = self._requests or self._start()
        try:
            requests.write(to_json(request) + b"\n")
            requests.flush()
        except BrokenPipeError:
            pass  # it died before this request; its last words are read below
        line = self._read_line(op.deadline_s)
        if not line:
            raise CaseFailed(self._post_mortem(op, late=line is None), self)
        reply = from_json(line, Reply)
        if reply.last:
            self.close()
        if reply.failure is not None:
            raise CaseFailed(reply.failure, self)
        return msgspec.convert(reply.value, answer)

    def _read_line(self, deadline_s: float) -> bytes | None:
        """Return one line; b"" where the worker closed its end, None where it did not answer in time."""
        until = time.monotonic() + deadline_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._replies], [], [], max(until - time.monotonic(), 0.0))
            if not ready:
                return None
            chunk = os.read(self._replies, 1 << 16)
            if not chunk:
                return b""
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _post_mortem(self, op: Op, *, late: bool) -> Failure:
        """Say how the worker ended, and stop it if it has not."""
        process, log = self._process, self._log
        assert process is not None  # noqa: S101 - _ask started it
        assert log is not None  # noqa: S101 - likewise
        if late:
            process.kill()
        try:
            code = process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        size = log.seek(0, os.SEEK_END)
        log.seek(max(size - _LOG_TAIL_BYTES, 0))
        tail = log.read().decode(errors="replace")
        self.close()
        if late:
            return Failure(kind="TimedOut", message=f"no answer to {op.word} in {op.deadline_s:g} s", traceback=tail)
        return Failure(kind="WorkerDied", message=f"exit status {code} during {op.word}", traceback=tail)


def side_by_side(ask: Callable[[Worker], T], workers: Sequence[Worker]) -> list[T]:
    """Ask workers at the same time; an interrupt does not wait for their answers."""
    with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(ask, worker) for worker in workers]
        try:
            concurrent.futures.wait(futures)
        except BaseException:
            for worker in workers:
                worker.abandon()
            raise
        return [future.result() for future in futures]
