from __future__ import annotations

from typing import Literal

import pytest
import torch

from flopwatch.errors import UsageError
from flopwatch.static import pretend_gpu

CUDA = torch.device("cuda", 0)
KINDS = pytest.mark.parametrize("kind", ["meta", "cpu"])
Kind = Literal["meta", "cpu"]


@KINDS
def test_every_factory_makes_tensors_on_the_device(kind: Kind) -> None:
    with pretend_gpu("h200", tensors=kind):
        generator = torch.Generator(device="cuda")
        made = [
            torch.randn(2, 3, device="cuda", generator=generator),
            torch.randint(0, 3, (2, 3), device="cuda:0", generator=generator),
            torch.empty(2, 3, device=torch.device("cuda")),
            torch.full((2, 3), 1.0, device="cuda"),
            torch.arange(3, device="cuda"),
            torch.tensor([1, 2], device="cuda"),
            torch.zeros(2).to("cuda"),
            torch.zeros(2).to(device="cuda", dtype=torch.float16),
            torch.zeros(2).to(0),
            torch.zeros(2).cuda(),
            torch.zeros(2).to(torch.ones(1, device="cuda")),
        ]
        made += [made[0].new_empty(4), torch.empty_like(made[0]), made[0].T, made[0] @ made[0].T, made[0].half()]
        assert [(tensor.device, tensor.is_cuda, tensor.is_cpu, tensor.get_device()) for tensor in made] == [
            (CUDA, True, False, 0)
        ] * len(made)


@KINDS
def test_tensors_of_the_host_say_so(kind: Kind) -> None:
    with pretend_gpu("h200", tensors=kind):
        host = torch.randn(2, 3)
        for tensor in (host, host.T, host + 1, torch.zeros(2, device="cpu"), host[1:], host.to(torch.float16)):
            assert tensor.device == torch.device("cpu")
            assert not tensor.is_cuda


def test_values_move_between_host_and_device_as_copies() -> None:
    with pretend_gpu("h200", tensors="cpu"):
        host = torch.zeros(2)
        on_gpu = host.cuda()
        on_gpu += 1
        back = on_gpu.cpu()
        on_gpu += 1
        assert (host.tolist(), back.tolist(), on_gpu.tolist()) == ([0, 0], [1, 1], [2, 2])
        assert not back.is_cuda
        assert not on_gpu.to("cpu").is_cuda
        assert on_gpu.cuda() is on_gpu


def test_generators_are_deterministic_by_seed() -> None:
    def draw(seed: int) -> list[float]:
        with pretend_gpu("h200", tensors="cpu"):
            generator = torch.Generator(device="cuda").manual_seed(seed)
            assert generator.device == CUDA
            assert isinstance(generator, torch.Generator)
            values: list[float] = torch.randn(4, device="cuda", generator=generator).tolist()
            return values

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_generators_made_elsewhere_are_generators_inside() -> None:
    with pretend_gpu("h200"):
        assert isinstance(torch.default_generator, torch.Generator)


def test_seeding_the_device_makes_draws_deterministic() -> None:
    with pretend_gpu("h200", tensors="cpu"):
        torch.cuda.manual_seed(3)
        first = torch.randn(4, device="cuda")
        torch.cuda.manual_seed_all(3)
        assert torch.equal(first, torch.randn(4, device="cuda"))


def test_gradients_are_on_the_device() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(_context: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(_context: object, gradient: torch.Tensor) -> torch.Tensor:
            assert gradient.is_cuda
            return 2 * torch.ones(gradient.shape, device="cuda")

    with pretend_gpu("h200", tensors="cpu"):
        x = torch.ones(3, device="cuda", requires_grad=True)
        Double.apply(x).sum().backward()  # type: ignore[no-untyped-call] # torch's
        assert x.grad is not None
        assert x.grad.is_cuda
        assert x.grad.tolist() == [2, 2, 2]


def test_addresses_of_meta_tensors_are_aligned_apart_and_aware_of_views() -> None:
    with pretend_gpu("h200", tensors="meta"):
        a, b = (torch.empty(8, 8, device="cuda", dtype=torch.float16) for _ in range(2))
        assert a.data_ptr() % 256 == 0
        assert b.data_ptr() >= a.data_ptr() + 8 * 8 * 2
        assert a[:, 1:].data_ptr() == a.data_ptr() + 2
        assert a.view(64).data_ptr() == a.data_ptr()


@pytest.mark.parametrize(
    "read",
    [
        torch.Tensor.item,
        torch.Tensor.tolist,
        torch.Tensor.cpu,
        torch.Tensor.numpy,
        bool,
        float,
        lambda tensor: tensor.to("cpu"),
        lambda tensor: torch.equal(tensor, tensor),
    ],
)
def test_values_of_meta_tensors_are_never_invented(read: object) -> None:
    assert callable(read)
    with pretend_gpu("h200", tensors="meta"):
        tensor = torch.ones(1, device="cuda")
        with pytest.raises(UsageError, match="tensors="):
            read(tensor)


def test_values_of_host_tensors_can_be_read_beside_meta_tensors() -> None:
    with pretend_gpu("h200", tensors="meta"):
        assert torch.tensor([3]).item() == 3
