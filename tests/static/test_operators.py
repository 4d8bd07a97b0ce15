from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from flopwatch.static import pretend_gpu
from flopwatch.static.watch import watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What it returns says where it ran.
ON_GPU, ON_HOST = 2.0, 3.0

OPERATORS = """
import torch, triton, triton.language as tl
from flopwatch.static import pretend_gpu

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def launch(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, device=x.device)
    assert out.is_cuda, out.device
    double[(1,)](x, out, x.numel(), BLOCK=128)
    return out

@torch.library.custom_op("operators::anywhere", mutates_args=())
def anywhere(x: torch.Tensor) -> torch.Tensor:
    return launch(x)

anywhere.register_fake(torch.empty_like)
anywhere.register_autograd(lambda context, gradient: anywhere(gradient))

@torch.library.custom_op("operators::on_cuda", mutates_args=(), device_types="cuda")
def on_cuda(x: torch.Tensor, *, unused: int = 1) -> torch.Tensor:
    return launch(x)

@torch.library.custom_op("operators::in_place", mutates_args={"x"})
def in_place(x: torch.Tensor) -> None:
    double[(1,)](x, x, x.numel(), BLOCK=128)

@torch.library.triton_op("operators::wrapped", mutates_args=())
def wrapped(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, device=x.device)
    torch.library.wrap_triton(double)[(1,)](x, out, x.numel(), BLOCK=128)
    return out

library = torch.library.Library("operators", "FRAGMENT")
for name, key in (("defined", "CUDA"), ("composed", "CompositeImplicitAutograd")):
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, launch, key)
library._register_fake("defined", torch.empty_like)

calls = {
    "anywhere": anywhere,
    "backward": lambda x: anywhere(x.requires_grad_()).sum().backward(),
    "on_cuda": lambda x: on_cuda(x, unused=2),
    "in_place": in_place,
    "wrapped": wrapped,
    "defined": torch.ops.operators.defined,
    "defined.default": torch.ops.operators.defined.default,
    "composed": torch.ops.operators.composed,
}
for name, call in calls.items():
    for _ in range(2):
        with pretend_gpu("h200") as recorder:
            call(torch.ones(100, device="cuda"))
        print(name, [launch.kernel for launch in recorder.launches])
"""


def test_registered_operators_launch_their_kernels(child: Callable[..., str]) -> None:
    lines = child(OPERATORS).splitlines()
    assert lines == [
        line
        for name in (
            "anywhere",
            "backward",
            "on_cuda",
            "in_place",
            "wrapped",
            "defined",
            "defined.default",
            "composed",
        )
        for line in [f"{name} {['double'] * (2 if name == 'backward' else 1)}"] * 2
    ]


@pytest.fixture
def where() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """An operator with code for a GPU and for the host, and what it says while nothing is pretended."""
    library = torch.library.Library("test_operators", "FRAGMENT")
    library.define("where(Tensor x) -> Tensor")
    library.impl("where", lambda x: torch.full(x.shape, ON_GPU, device="cuda"), "CUDA")
    library.impl("where", lambda x: torch.full(x.shape, ON_HOST), "CPU")
    yield torch.ops.test_operators.where
    library._destroy()


def test_an_operator_runs_its_code_for_the_device_of_its_arguments(
    where: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    with pretend_gpu("h200", tensors="cpu"):
        on_gpu, on_host = where(torch.zeros(2, device="cuda")), where(torch.zeros(2))
        assert (on_gpu.tolist(), on_gpu.is_cuda) == ([ON_GPU] * 2, True)
        assert (on_host.tolist(), on_host.is_cuda) == ([ON_HOST] * 2, False)
    assert where(torch.zeros(2)).tolist() == [ON_HOST] * 2


def test_an_operator_without_code_for_the_device_is_left_to_torch() -> None:
    library = torch.library.Library("test_operators_none", "FRAGMENT")
    library.define("shapes(Tensor x) -> Tensor")
    library.impl("shapes", lambda x: x.new_empty(3), "Meta")
    with pretend_gpu("h200", tensors="meta"):
        assert torch.ops.test_operators_none.shapes(torch.zeros(2, device="cuda")).shape == (3,)
    library._destroy()


@pytest.mark.parametrize("kind", ["meta", "cpu"])
def test_what_an_operator_asks_of_torch_is_watched(kind: str, where: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert kind in {"meta", "cpu"}
    with pretend_gpu("h200", tensors="meta" if kind == "meta" else "cpu"), watched(["somewhere"]) as watch:
        where(torch.zeros(2, device="cuda"))
    assert [call.partition("(")[0] for call in watch.torch_calls] == ["zeros", "where", "full"]


def test_what_only_asks_something_of_a_tensor_is_no_work() -> None:
    with pretend_gpu("h200", tensors="meta"), watched(["somewhere"]) as watch:
        x = torch.zeros(2, 2, device="cuda")
        if x.stride(0) == 2 and x.is_contiguous() and x.shape == (2, 2):
            x[0] = x.clone()[1]
            x.add_(1).max(dim=0)
    assert watch.torch_work == ["zeros", "clone", "__getitem__", "__setitem__", "add_", "max"]
    assert len(watch.torch_calls) > len(watch.torch_work)


def test_what_a_backward_pass_asks_of_torch_is_watched() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(_context: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(_context: object, gradient: torch.Tensor) -> torch.Tensor:
            return gradient.erfinv()

    with pretend_gpu("h200"), watched(["somewhere"]) as watch:
        x = torch.ones(3, device="cuda", requires_grad=True)
        Twice.apply(x).sum().backward()  # type: ignore[no-untyped-call] # torch's
    assert any(call.startswith("erfinv(") for call in watch.torch_calls)
