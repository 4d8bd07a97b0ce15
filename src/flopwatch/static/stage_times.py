"""How long each stage of Triton's compiler took of a kernel, kept in the metadata that Triton's cache has beside it."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

#: Where the seconds by stage lie in a compiled kernel's metadata: of when it was compiled, on that machine.
TIMES_KEY = "flopwatch_seconds"


def time_stages(restore: contextlib.ExitStack) -> None:
    """Patch Triton's backends to take the time of each stage."""
    from triton.backends import backends  # noqa: PLC0415 - the key is asked for where Triton is not loaded

    for backend in backends.values():
        restore.callback(setattr, backend.compiler, "add_stages", backend.compiler.add_stages)
        backend.compiler.add_stages = _timing(backend.compiler.add_stages)


def _timing(original: Callable[..., None]) -> Callable[..., None]:
    def add_stages(backend: Any, stages: dict[str, Callable[..., Any]], *options: object) -> None:  # noqa: ANN401 - untyped triton
        original(backend, stages, *options)
        for name, stage in stages.items():
            stages[name] = functools.partial(_timed, name, stage)

    return add_stages


def _timed(name: str, stage: Callable[..., Any], source: Any, metadata: dict[str, Any]) -> Any:  # noqa: ANN401 - untyped triton
    begun = time.perf_counter()
    made = stage(source, metadata)
    metadata.setdefault(TIMES_KEY, {})[name] = round(time.perf_counter() - begun, 4)
    return made
