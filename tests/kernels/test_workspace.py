"""Who has which workspace: streams, launches and captures."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.kernels import workspace
from flopwatch.kernels.stream_k import Schedule
from flopwatch.kernels.workspace import Workspace, in_workspace, workspace_for

if TYPE_CHECKING:
    from collections.abc import Callable

FEW, MANY = (Schedule(programs=programs, shared=1) for programs in (2, 5))


@pytest.fixture
def device(cuda: str, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Forget what other tests have."""
    for name in ("_workspaces", "_reserved", "_taken", "_captured"):
        monkeypatch.setattr(workspace, name, {})
    return torch.empty(0, device=cuda).device


@pytest.fixture
def capture(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Workspace]:
    """Ask for a workspace as a capture of that number does, after a call that was not captured."""
    workspace_for(FEW, 64, device=device)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    def ask(number: int | None, stream: int = 7, schedule: Schedule = FEW) -> Workspace:
        monkeypatch.setattr(workspace, "_capture_of", lambda _stream: number)
        return workspace_for(schedule, 64, device=device, stream=stream)

    return ask


def are_apart(first: torch.Tensor, second: torch.Tensor) -> bool:
    begins, ends = zip(*((each.data_ptr(), each.data_ptr() + each.nbytes) for each in (first, second)), strict=True)
    return bool(max(begins) >= min(ends))


def test_a_stream_keeps_its_workspace_until_it_is_too_small(device: torch.device) -> None:
    first, again, larger, smaller = (workspace_for(schedule, 64, device=device) for schedule in (FEW, FEW, MANY, FEW))

    assert again is first
    assert larger is smaller is not first


def test_what_two_products_need_in_turns_is_kept_for_both(device: torch.device) -> None:
    """One has more parts, the other more flags."""
    needs = [(Schedule(programs=5, shared=1), 64, 1), (Schedule(programs=2, shared=1), 8, 8)]
    for need in needs:
        workspace_for(*need, device=device)

    first, second = (workspace_for(*need, device=device) for need in needs)

    assert first is second


def test_the_default_stream_is_never_asked_whether_it_is_captured(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can capture it."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", None)

    assert workspace_for(FEW, 64, device=device, stream=0) is workspace_for(FEW, 64, device=device, stream=0)


@pytest.mark.gpu
def test_the_default_stream_cannot_be_captured() -> None:
    assert torch.cuda.default_stream().cuda_stream == 0
    with pytest.raises(RuntimeError, match="default stream"):
        torch.cuda.CUDAGraph().capture_begin()


def test_a_launch_has_its_workspace_though_a_larger_one_takes_its_place(device: torch.device) -> None:
    pointers, held = in_workspace(FEW, 64, device=device)(0, 1, 2, 3)
    workspace_for(MANY, 64, device=device, stream=0)

    assert isinstance(held, Workspace)
    assert pointers == (1, 2, 3, held.parts.data_ptr(), held.flags.data_ptr())


def test_the_calls_of_a_capture_share_flags_which_it_need_not_zero(
    capture: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = capture(1)
    monkeypatch.setattr(torch, "zeros", None)  # a launch of the graph, at each replay

    then = capture(1)

    assert then.flags.data_ptr() == first.flags.data_ptr()
    assert first.flags.count_nonzero() == 0
    assert are_apart(first.parts, then.parts)


def test_the_streams_of_a_capture_have_flags_far_apart(capture: Callable[..., Workspace]) -> None:
    places = sorted(capture(1, stream).flags.data_ptr() for stream in range(1, workspace._ROWS + 1))

    assert min(after - before for before, after in pairwise(places)) == 4 * workspace._RESERVED_FLAGS


def test_no_capture_stream_or_larger_product_shares_flags(capture: Callable[..., Workspace]) -> None:
    found = [capture(1), capture(2), capture(2, stream=8), capture(2, stream=8, schedule=MANY)]

    assert found[-1].flags.numel() == MANY.programs
    assert all(are_apart(a.flags, b.flags) for place, a in enumerate(found) for b in found[:place])


def test_a_capture_whose_number_is_not_known_zeroes_its_own_flags(capture: Callable[..., Workspace]) -> None:
    first, second = capture(None), capture(None)

    assert are_apart(first.flags, second.flags)
    assert first.flags.count_nonzero() == 0


def test_captures_beyond_what_is_reserved_zero_their_own_flags(
    capture: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "_RESERVED_FLAGS", FEW.programs)
    found = [capture(number) for number in range(workspace._ROWS + 2)]

    reserved = next(iter(workspace._reserved.values()))
    assert [are_apart(each.flags, reserved) for each in found] == [False] * workspace._ROWS + [True] * 2
    assert all(each.flags.count_nonzero() == 0 for each in found)


def test_a_capture_before_any_call_zeroes_its_own_flags(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(workspace, "_capture_of", lambda _stream: 1)

    found = workspace_for(FEW, 64, device=device, stream=7)

    assert not workspace._reserved
    assert found.flags.count_nonzero() == 0


#: Two graphs of one product on streams of their own, replayed side by side; each has one kernel a call, and no other.
GRAPHS = """
import torch
from flopwatch.kernels.thin_matmul import CANDIDATES, thin_matmul
config = next(config for config in CANDIDATES if config.splits > 1)
a, b = (torch.randn(16, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
b = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
expected = thin_matmul(a, b, config)
graphs = []
for _ in range(2):
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=stream):
        results = [thin_matmul(a, b, config) for _ in range(8)]
    graph.instantiate()
    graphs.append((stream, graph, results))
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CUDA]) as profiled:
    graphs[0][1].replay()
    torch.cuda.synchronize()
print(*sorted({event.key for event in profiled.key_averages() if event.device_time_total}))
for _, _, results in graphs:
    for result in results:
        result.fill_(float("nan"))
torch.cuda.synchronize()
for _ in range(50):
    for stream, graph, _ in graphs:
        with torch.cuda.stream(stream):
            graph.replay()
torch.cuda.synchronize()
print(all(torch.equal(result, expected) for _, _, results in graphs for result in results))
"""


@pytest.mark.gpu
def test_on_a_gpu_graphs_zero_nothing_and_run_side_by_side() -> None:
    kernels, equal = subprocess.check_output([sys.executable, "-c", GRAPHS], text=True).splitlines()[-2:]
    assert kernels.split() == ["thin_matmul_kernel"]
    assert equal == "True"
