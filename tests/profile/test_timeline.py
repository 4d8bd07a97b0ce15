from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flopwatch.errors import UsageError
from flopwatch.profile.timeline import read_events, timeline

PATH = Path("timeline.chrome_trace")


def kernel(name: str, start: float, length: float, *scopes: str, stream: int = 7) -> dict[str, Any]:
    """Return a kernel as Triton's TraceData.cpp writes it."""
    stack = ["ROOT", *scopes, name]
    return {
        "name": name,
        "cat": "kernel",
        "ph": "X",
        "ts": start,
        "dur": length,
        "tid": stream,
        "args": {"call_stack": stack},
    }


def lines(*streams: list[dict[str, Any]]) -> str:
    return "".join(json.dumps({"displayTimeUnit": "us", "traceEvents": events}) + "\n" for events in streams)


def slices(text: str, category: str = "scope") -> list[tuple[str, float, float]]:
    events = json.loads(text)["traceEvents"]
    return [(event["name"], event["ts"], event["dur"]) for event in events if event.get("cat") == category]


def test_a_line_for_each_stream_becomes_one_object() -> None:
    text = lines([kernel("a", 0.0, 1.0)], [kernel("b", 0.5, 1.0, stream=9)])
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    merged = json.loads(timeline(read_events(text, PATH)))
    assert ["stream 7", "stream 9"] == [
        event["args"]["name"] for event in merged["traceEvents"] if event["name"] == "thread_name"
    ]
    assert {0} == {event["pid"] for event in merged["traceEvents"]}


def test_scopes_reach_from_their_first_kernel_to_the_end_of_their_last() -> None:
    events = [
        kernel("k2", 3.0, 1.0, "outer", "inner"),
        kernel("k1", 1.0, 1.0, "outer", "inner"),
        kernel("k3", 6.0, 2.0, "outer"),
        kernel("k4", 9.0, 1.0, "other"),
        kernel("k5", 11.0, 1.0, "outer"),
    ]
    assert [("outer", 1.0, 7.0), ("inner", 1.0, 3.0), ("other", 9.0, 1.0), ("outer", 11.0, 1.0)] == slices(
        timeline(events)
    )


def test_streams_have_scopes_of_their_own() -> None:
    events = [kernel("a", 0.0, 2.0, "s"), kernel("b", 1.0, 4.0, "s", stream=9)]
    assert [("s", 0.0, 2.0), ("s", 1.0, 4.0)] == slices(timeline(events))


def test_kernels_are_kept_as_they_are() -> None:
    events = [kernel("a", 0.0, 2.0), kernel("b", 2.5, 4.0, "s")]
    assert [("a", 0.0, 2.0), ("b", 2.5, 4.0)] == slices(timeline(events), "kernel")


def test_what_the_installed_proton_writes_is_read(recorded: Path) -> None:
    path = recorded / "timeline.chrome_trace"
    events = read_events(path.read_text(encoding="utf-8"), path)
    merged = json.loads(timeline(events))["traceEvents"]
    # No kernel runs here. Since Triton 3.9 a scope with metrics is an event by itself.
    assert {event["name"].partition(":")[0] for event in merged if event["ph"] == "X"} <= {
        "Matmul[8192x8192x8192,float16,flopwatch]"
    }


@pytest.mark.parametrize("text", ["[1]", "{}", '{"traceEvents": [1]}', '{"traceEvents": 1}', "{", "[" * 100_000])
def test_what_is_no_timeline_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no timeline"):
        read_events(text, PATH)


def test_an_empty_file_has_no_events() -> None:
    assert [] == read_events("", PATH)
