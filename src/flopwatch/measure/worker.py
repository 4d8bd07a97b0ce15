"""A process that runs the code under test: reads requests, answers them, and dies with its parent.

``python -m flopwatch.measure.worker MODE BENCHMARKS DEVICE REQUESTS_FD REPLIES_FD``; the checkout under test comes from
the environment (`flopwatch.overlay`), and so does what answers (`SESSION_VARIABLE`). What the code under test prints
goes to stdout and stderr, never into the answers.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from flopwatch.measure.loaded import watch_opened
from flopwatch.measure.protocol import Mode, Reply
from flopwatch.measure.session import Session, failure_of, serve
from flopwatch.model import to_json

#: Names a subclass of `Session` that answers in its place, as MODULE:CLASS.
SESSION_VARIABLE = "FLOPWATCH_SESSION"


def session_class() -> type[Session]:
    """Return what answers in this process."""
    module, _, name = os.environ.get(SESSION_VARIABLE, "").partition(":")
    if not module:
        return Session
    found: type[Session] = getattr(importlib.import_module(module), name)
    return found


def main(arguments: list[str]) -> None:
    """Start a session and serve it."""
    mode, benchmarks, device, requests_fd, replies_fd = arguments
    for descriptor in (int(requests_fd), int(replies_fd)):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional-only
    if Mode(mode) is Mode.STATIC:
        watch_opened()
    with os.fdopen(int(requests_fd), "rb") as requests, os.fdopen(int(replies_fd), "wb") as replies:
        try:
            session = session_class()(Mode(mode), Path(benchmarks), device)
        except Exception as error:  # noqa: BLE001 - the parent must learn why there is no worker
            replies.write(to_json(Reply(failure=failure_of(error), last=True)) + b"\n")
            return
        serve(session, iter(requests), replies)


def leave() -> NoReturn:
    """End the process as Python does, but for taking torch and Triton apart: 0.4 s (torch 2.13, 2026-11-23)."""
    atexit._run_exitfuncs()  # noqa: SLF001 - what a suite wants to be done at the end, such as removing a folder
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
    leave()
