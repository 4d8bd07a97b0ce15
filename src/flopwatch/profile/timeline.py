"""Turn Proton's timeline into one that Chrome and Perfetto open, with the scopes above their kernels.

Proton writes ``NAME.chrome_trace``: a JSON object a line, one for each stream, which neither opens where there are
several; since Triton 3.9 one object. A kernel's scopes are in its call stack alone: here they become slices of their
own, so that the stream reads as a flame graph.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_ROOT = "ROOT"


def read_events(text: str, path: Path) -> list[dict[str, Any]]:
    """Return the kernels and other events of a timeline; `path` is what errors name.

    Raises:
        UsageError: it is no such file.
    """
    events: list[dict[str, Any]] = []
    try:
        for document in _documents(text):
            events += document["traceEvents"]
        if all(isinstance(event, dict) for event in events):
            return events
        why = "an event is no object"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
    raise UsageError(f"{path} is no timeline of Proton's", why=why, todo="name a file that ends in .chrome_trace")


def timeline(events: Sequence[dict[str, Any]]) -> str:
    """Return the timeline as one JSON object, scopes as slices around their kernels.

    >>> kernel = {"name": "k", "cat": "kernel", "ph": "X", "ts": 2.0, "dur": 1.0, "tid": 7}
    >>> kernel["args"] = {"call_stack": ["ROOT", "Add[8]", "k"]}
    >>> [(event["name"], event["ts"], event.get("dur")) for event in json.loads(timeline([kernel]))["traceEvents"][1:]]
    [('Add[8]', 2.0, 1.0), ('k', 2.0, 1.0)]
    """
    streams: dict[Any, list[dict[str, Any]]] = {}
    for event in events:
        streams.setdefault(event.get("tid", 0), []).append({"pid": 0, **event})
    written: list[dict[str, Any]] = []
    for stream, found in streams.items():
        named = {"name": f"stream {stream}"}
        written.append({"ph": "M", "name": "thread_name", "pid": found[0]["pid"], "tid": stream, "args": named})
        ordered = sorted(found, key=_start)
        written += _scopes([event for event in ordered if event.get("cat") == "kernel"])
        written += ordered
    return json.dumps({"displayTimeUnit": "us", "traceEvents": written}, separators=(",", ":"))


def _scopes(kernels: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a slice for each scope, from its first kernel's start to its last one's end, while no other is between."""
    opened: list[dict[str, Any]] = []
    for kernel in kernels:
        names = _scope_names(kernel)
        same = next(
            (level for level, (slice_, name) in enumerate(zip(opened, names, strict=False)) if slice_["name"] != name),
            None,
        )
        del opened[len(names) if same is None else same :]
        end = _start(kernel) + float(kernel.get("dur", 0.0))
        for slice_ in opened:
            slice_["dur"] = max(slice_["dur"], end - slice_["ts"])
        for name in names[len(opened) :]:
            slice_ = {"ph": "X", "cat": "scope", "name": name, "pid": kernel["pid"], "tid": kernel.get("tid", 0)}
            slice_ |= {"ts": _start(kernel), "dur": end - _start(kernel)}
            opened.append(slice_)
            yield slice_


def _scope_names(kernel: dict[str, Any]) -> list[str]:
    stack = (kernel.get("args") or {}).get("call_stack") or []
    return [str(name) for name in stack[:-1] if name != _ROOT]


def _start(event: dict[str, Any]) -> float:
    return float(event.get("ts", 0.0))


def _documents(text: str) -> list[dict[str, Any]]:
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
