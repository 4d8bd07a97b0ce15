"""The parent's side of a worker: start it, ask it, notice when it dies."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec

from flopwatch import overlay
from flopwatch.errors import FlopwatchError
from flopwatch.measure.protocol import Hello, Mode, Op, Plan, Reply, Request
from flopwatch.model import Failure, KernelFacts, Numbers, Timing, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from flopwatch.model import Case

__all__ = ["CaseFailed", "Mode", "Worker"]

T = TypeVar("T")
_LOG_TAIL_BYTES = 4000
_GRACE_S = 5.0


class CaseFailed(Exception):  # noqa: N818 - a case that fails is a result, not an error of flopwatch
    """A worker could not do what it was asked; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.message}")
        self.failure = failure


class Worker(contextlib.AbstractContextManager["Worker"]):
    """A process that runs one side's code.

    It starts at the first request, and again at the next one after it died or was stopped for being late.

    Args:
        mode: what it is for.
        benchmarks: the folder of the suites.
        tree: the checkout under test; None takes what is installed.
        source: the folder inside `tree` that holds the packages.
        packages: the dotted names under test.
        device: the GPU to compile for where none is there.
    """

    def __init__(
        self,
        mode: Mode,
        *,
        benchmarks: Path,
        tree: Path | None = None,
        source: str = "",
        packages: Sequence[str] = (),
        device: str = "h200",
    ) -> None:
        self.mode = mode
        self._benchmarks = benchmarks.resolve()
        self._device = device
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("TRITON_INTERPRET", overlay.TREE_VARIABLE, "TRITON_CACHE_AUTOTUNING")
        }
        # A choice among near ties must be the same in every process of a side, so Triton keeps it on disk; equal
        # source on both sides then means equal choice (see `flopwatch.measure.tuning`).
        self._environment["TRITON_CACHE_AUTOTUNING"] = "1"
        if mode is Mode.INTERPRET:
            self._environment["TRITON_INTERPRET"] = "1"
        if tree is not None:
            self._environment |= overlay.environment(tree, source, packages)
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: BinaryIO | None = None
        self._replies = -1
        self._buffer = b""
        self._log: BinaryIO | None = None
        self._hello: Hello | None = None
        self._abandoned = False

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

    def prepare(self, case: Case, plan: Plan | None = None) -> Plan:
        """Make a case ready on the GPU; return the plan that was chosen, which may differ from `plan`."""
        return self._ask(Request(op=Op.PREPARE.word, case=case, plan=plan), Op.PREPARE, Plan)

    def visit(self, case: Case, launches: int) -> tuple[float, ...]:
        """Take samples of the prepared case: seconds per call."""
        return self._ask(Request(op=Op.VISIT.word, case=case, launches=launches), Op.VISIT, tuple[float, ...])

    def time(self, case: Case) -> Timing:
        """Prepare the case and take the samples of one point of the history."""
        return self._ask(Request(op=Op.TIME.word, case=case), Op.TIME, Timing)

    def numbers(self, case: Case, *, seed: int = 0) -> Numbers:
        """Compare the case's result with its float64 reference."""
        return self._ask(Request(op=Op.NUMBERS.word, case=case, seed=seed), Op.NUMBERS, Numbers)

    def peak_memory(self, case: Case) -> int:
        """Return the bytes that one call allocates at its peak, the inputs not counted."""
        return self._ask(Request(op=Op.MEMORY.word, case=case), Op.MEMORY, int)

    def facts(self, case: Case) -> tuple[KernelFacts, ...]:
        """Compile what the case launches, for the device named at the start."""
        return self._ask(Request(op=Op.FACTS.word, case=case), Op.FACTS, tuple[KernelFacts, ...])

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
        arguments = [self.mode.value, str(self._benchmarks), self._device, str(requests_read), str(replies_write)]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-P", "-m", "flopwatch.measure.worker", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(requests_read, replies_write),
        )
        os.close(requests_read)
        os.close(replies_write)
        self._requests = os.fdopen(requests_write, "wb")
        self._replies = replies_read
        self._buffer = b""
        return self._requests

    def _ask(self, request: Request, op: Op, answer: type[T]) -> T:
        if self._abandoned:
            raise CaseFailed(Failure(kind="Abandoned", message="the run was stopped"))
        requests = self._requests or self._start()
        try:
            requests.write(to_json(request) + b"\n")
            requests.flush()
        except BrokenPipeError:
            pass  # it died before this request; its last words are read below
        line = self._read_line(op.deadline_s)
        if not line:
            raise CaseFailed(self._post_mortem(op, late=line is None))
        reply = from_json(line, Reply)
        if reply.last:
            self.close()
        if reply.failure is not None:
            raise CaseFailed(reply.failure)
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
