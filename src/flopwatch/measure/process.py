"""How a worker process comes to be: a new interpreter, or a fork of a nursery that has imported everything."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flopwatch import overlay
from flopwatch.measure.protocol import Mode, Nursed, NurseryOp, Reply
from flopwatch.model import Failure, from_json, to_json

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from flopwatch.config import Config

_MESSAGE_BYTES = 1 << 16
_START_DEADLINE_S = 180.0
_FORK_DEADLINE_S = 30.0
_LAST_WORDS_S = 5.0
_POLL_S = 0.005
#: Where Linux keeps shared memory that has a name.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - nothing is written there


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """What a worker imports.

    Attributes:
        benchmarks: the folder of the suites.
        tree: the checkout under test; None takes what is installed.
        source: the folder inside `tree` that holds the packages.
        packages: the dotted names under test.
        device: the GPU to compile for where none is there.
        keep_choices: whether Triton keeps its tuner's choices on disk, so that processes and commits agree on them.
        python: the interpreter, with a flopwatch of its own; None is the one that runs now.
    """

    benchmarks: Path
    tree: Path | None = None
    source: str = ""
    packages: tuple[str, ...] = ()
    device: str = "h200"
    keep_choices: bool = False
    python: Path | None = None

    @classmethod
    def of(cls, tree: Path, config: Config, *, keep_choices: bool = False) -> Self:
        """Return what a repository's configuration names in a checkout of it."""
        return cls(
            benchmarks=tree / config.benchmarks,
            tree=tree,
            source=config.source,
            packages=config.packages,
            device=config.device,
            keep_choices=keep_choices,
        )

    @property
    def interpreter(self) -> str:
        """The Python that imports it."""
        return str(self.python or sys.executable)

    def environment(self, mode: Mode) -> dict[str, str]:
        """Return the environment of a process that runs this code."""
        own = {"TRITON_INTERPRET", overlay.TREE_VARIABLE, "TRITON_CACHE_AUTOTUNING"}
        environment = {name: value for name, value in os.environ.items() if name not in own}
        if self.keep_choices:
            environment["TRITON_CACHE_AUTOTUNING"] = "1"
        if mode is Mode.INTERPRET:
            environment["TRITON_INTERPRET"] = "1"
        if self.tree is not None:
            environment |= overlay.environment(self.tree, self.source, self.packages)
        return environment


class Process(Protocol):
    """A process that can be stopped and waited for; `subprocess.Popen` is one."""

    pid: int

    def kill(self) -> None:
        """Stop it at once."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """


def spawn(mode: Mode, code: Code, requests_fd: int, replies_fd: int, log_fd: int) -> Process:
    """Start a worker in a new interpreter."""
    arguments = [mode.value, str(code.benchmarks.resolve()), code.device, str(requests_fd), str(replies_fd)]
    return subprocess.Popen(  # noqa: S603 - an interpreter that the user chose, and our own module
        [code.interpreter, "-P", "-m", "flopwatch.measure.worker", *arguments],
        env=code.environment(mode),
        stdin=subprocess.DEVNULL,
        stdout=log_fd,
        stderr=log_fd,
        pass_fds=(requests_fd, replies_fd),
    )


def forget_lent(pid: int) -> None:
    """Remove what stays behind of a process that lent GPU memory: the counts of torch and of CUDA, 160 KB in all.

    A fork ends without the clean-up of either, and so does whoever is killed.
    """
    for names in (f"torch_{pid}_*", f"cuda.shm.*.{pid:x}.*"):
        for path in SHARED_MEMORY.glob(names):
            with contextlib.suppress(OSError):
                path.unlink()


class NurseryFailed(Exception):  # noqa: N818 - a side that cannot be forked is spawned instead
    """There is no nursery; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.message}")
        self.failure = failure


class Nursery(contextlib.AbstractContextManager["Nursery"]):
    """One side's code, imported once (`flopwatch.measure.nursery`); forks workers of one mode.

    Starts importing at once; `ready` waits for it.
    """

    def __init__(self, code: Code, mode: Mode = Mode.GPU) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process; close() closes it
        self._ready = False
        self._failure: Failure | None = None
        self._lock = threading.Lock()  # both sides are asked, forked and reaped from two threads
        with theirs:
            arguments = [mode.value, str(code.benchmarks.resolve()), code.device, str(theirs.fileno())]
            self._process = subprocess.Popen(  # noqa: S603 - an interpreter that the user chose, and our own module
                [code.interpreter, "-P", "-m", "flopwatch.measure.nursery", *arguments],
                env=code.environment(mode),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
            )

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def ready(self) -> None:
        """Wait until everything is imported.

        Raises:
            NurseryFailed: the code cannot be imported, or has touched the GPU.
        """
        with self._lock:
            if self._failure is not None:
                raise NurseryFailed(self._failure)
            if not self._ready:
                self._receive(_START_DEADLINE_S)
                self._ready = True

    def fork(self, requests_fd: int, replies_fd: int, log_fd: int) -> Process:
        """Start a worker.

        Raises:
            NurseryFailed: it is gone.
        """
        self.ready()
        child = self._request(Nursed(op=NurseryOp.FORK), requests_fd, replies_fd, log_fd)
        assert isinstance(child, int)  # noqa: S101 - the nursery is ours
        return _Forked(child, self)

    def reap(self, child: int) -> int | None:
        """Return the exit status of a forked worker, None while it runs."""
        try:
            value = self._request(Nursed(op=NurseryOp.REAP, child=child))
        except NurseryFailed:
            return -signal.SIGKILL  # the nursery is gone, and takes its children along
        assert value is None or isinstance(value, int)  # noqa: S101 - the nursery is ours
        return value

    def close(self) -> None:
        """Stop it, and every worker that is left; one that nobody has waited for is not let finish importing."""
        self._control.close()
        if not self._ready:
            self._process.kill()
        try:
            self._process.wait(_FORK_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, request: Nursed, *descriptors: int) -> object:
        with self._lock:
            try:
                socket.send_fds(self._control, [to_json(request)], list(descriptors))
            except OSError as error:
                raise self._failed(Failure(kind="WorkerDied", message=f"the nursery is gone: {error}")) from None
            return self._receive(_FORK_DEADLINE_S).value

    def _receive(self, deadline_s: float) -> Reply:
        self._control.settimeout(deadline_s)
        try:
            message = self._control.recv(_MESSAGE_BYTES)
        except TimeoutError:
            self._process.kill()  # a late answer would be taken for that to the next request
            raise self._failed(Failure(kind="TimedOut", message=f"no answer in {deadline_s:g} s")) from None
        except ConnectionError:
            message = b""
        if not message:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it says why after it has closed its end
                self._process.wait(_LAST_WORDS_S)
            self._log.seek(0)
            last_words = self._log.read()[-_MESSAGE_BYTES:].decode(errors="replace")
            raise self._failed(Failure(kind="WorkerDied", message="the nursery died", traceback=last_words))
        reply = from_json(message, Reply)
        if reply.failure is not None:
            raise self._failed(reply.failure)
        return reply

    def _failed(self, failure: Failure) -> NurseryFailed:
        """Give it up: from now on it is never ready."""
        self._failure = failure
        return NurseryFailed(failure)


class _Forked:
    """A child of the nursery: only its parent can wait for it."""

    def __init__(self, pid: int, nursery: Nursery) -> None:
        self.pid = pid
        self._nursery = nursery
        self._status: int | None = None

    def kill(self) -> None:
        if self._status is None:  # not reaped, so the number is still its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            self._status = self._nursery.reap(self.pid)
            if self._status is None:
                if until is not None and time.monotonic() >= until:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
                time.sleep(_POLL_S)
        return self._status
