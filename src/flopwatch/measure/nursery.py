"""The parent of one side's workers: it imports everything once, never touches the GPU, and forks them on request.

``python -m flopwatch.measure.nursery MODE BENCHMARKS DEVICE CONTROL_FD``. A fork is ready to measure in about a second
where a new interpreter takes four (H200, 2026-11-20), and each fork has its own CUDA context, memory and placement, as
a new interpreter would. Neither CUDA nor threads survive a fork: if a suite or a package initialises the one or starts
others while it is imported, the nursery says so and ends, and workers are started anew each time instead.

On the control socket the client sends FORK with three descriptors (requests, replies, log), answered by the process
number; or REAP with a process number, answered by the exit status or by nothing while it runs.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import UsageError
from flopwatch.measure.loaded import watch_opened
from flopwatch.measure.protocol import Mode, Nursed, NurseryOp, Reply
from flopwatch.measure.session import Session, failure_of, serve
from flopwatch.measure.worker import leave, session_class
from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_MESSAGE_BYTES = 1 << 16
_DESCRIPTORS = 3
_CUDA_ERROR_NOT_INITIALIZED = 3
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Import, prove that the GPU was not touched, and fork until the client closes its end."""
    mode, benchmarks, device, control_fd = arguments
    if Mode(mode) is Mode.STATIC:
        watch_opened()
    with socket.socket(fileno=int(control_fd)) as control:
        control.set_inheritable(False)
        try:
            _import_what_workers_need()
            session_of = session_class()
            threads = count_threads()
            session = session_of(Mode(mode), Path(benchmarks), device)
            session.get_ready()
            require_untouched_gpu()
            require_no_threads_beyond(threads)
        except Exception as error:  # noqa: BLE001 - the client must learn why there is no nursery
            control.send(to_json(Reply(failure=failure_of(error), last=True)))
            return
        control.send(to_json(Reply()))
        gc.collect()
        gc.freeze()  # children share these pages for longer when the collector leaves them alone
        sys.stdout.flush()  # or each child would say it again
        children: set[int] = set()
        try:
            for request, descriptors in _received(control):
                answer = _answer(request, descriptors, session, control, children)
                control.send(to_json(Reply(value=answer)))
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)


def _received(control: socket.socket) -> Iterator[tuple[Nursed, list[int]]]:
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, _DESCRIPTORS)
        for descriptor in descriptors:  # a child of the code under test that outlives it would keep the replies open
            os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional-only
        if not message:
            return
        yield from_json(message, Nursed), descriptors


def _answer(
    request: Nursed, descriptors: list[int], session: Session, control: socket.socket, children: set[int]
) -> int | None:
    if request.op is NurseryOp.REAP:
        child, status = os.waitpid(request.child, os.WNOHANG)
        if not child:
            return None
        children.discard(child)
        return os.waitstatus_to_exitcode(status)
    nursery = os.getpid()
    child = os.fork()
    if not child:
        control.close()
        _die_with(nursery)
        _be_a_worker(session, *descriptors)
    children.add(child)
    for descriptor in descriptors:
        os.close(descriptor)
    return child


def _be_a_worker(session: Session, requests_fd: int, replies_fd: int, log_fd: int) -> None:
    """Serve on the descriptors; never return."""
    code = 1
    try:
        for stream in (1, 2):
            os.dup2(log_fd, stream)
        os.close(log_fd)
        with os.fdopen(requests_fd, "rb") as requests, os.fdopen(replies_fd, "wb") as replies:
            serve(session, iter(requests), replies)
        code = 0
    except BaseException:  # noqa: BLE001 - SystemExit too: these are the last words, which the log keeps
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the nursery's own clean-up is not the worker's


def _die_with(parent: int) -> None:
    """Have the kernel stop this process when its parent ends in any way: a worker that hangs would keep the GPU."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _import_what_workers_need() -> None:
    import flopwatch.measure.memory  # noqa: PLC0415 - once here instead of in every worker
    import flopwatch.measure.numbers  # noqa: PLC0415 - likewise
    import flopwatch.measure.timer  # noqa: F401, PLC0415 - likewise


def require_untouched_gpu() -> None:
    """Make sure that this process can be forked.

    Raises:
        UsageError: CUDA was initialised in it.
    """
    if cuda_was_initialised():
        raise UsageError(
            "CUDA was initialised while the suites were imported",
            why="a process that has touched the GPU cannot be forked",
            todo="keep torch.cuda calls out of module level, torch.cuda.is_available() included",
        )


def require_no_threads_beyond(threads: int) -> None:
    """Make sure that a fork, which has no threads but the one that forks, will not wait for others forever.

    After one parallel operation of torch on the host, the next one in a fork hangs: OpenMP believes in its threads.

    Raises:
        UsageError: there are more than `threads`, which torch and its like have started.
    """
    if count_threads() > threads:
        raise UsageError(
            "threads were started while the suites were imported",
            why="a forked process has none of them, and hangs when it waits for one",
            todo="keep computations out of module level, those of torch on the host included",
        )


def count_threads() -> int:
    """Count the threads of this process, whoever started them."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def cuda_was_initialised() -> bool:
    """Ask the CUDA driver itself, if it is loaded: whoever initialised it, torch or another, no fork can use it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    count = ctypes.c_int()
    return bool(driver.cuDeviceGetCount(ctypes.byref(count)) != _CUDA_ERROR_NOT_INITIALIZED)


if __name__ == "__main__":
    main(sys.argv[1:])
    leave()
