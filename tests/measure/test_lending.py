from __future__ import annotations

import base64
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
import torch
from tests.measure.conftest import write_code

from flopwatch.measure import process
from flopwatch.measure.client import Mode, Nursery, Worker
from flopwatch.measure.inputs import copy_inputs
from flopwatch.measure.lending import borrow, lend, open_lent
from flopwatch.measure.pair import sample_pair
from flopwatch.measure.protocol import Method, Plan, Refusal
from flopwatch.model import Case

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flopwatch.measure.client import Code

SUITE = '''\
"""Products whose inputs can and cannot be shared."""

import random

import torch
from flopwatch import Suite


class Product(Suite):
    """out = 2 * x."""

    params = (["plain", "strided", "in place", "at random", "large"],)
    param_names = ("kind",)

    def inputs(self, kind, *, seed):
        if kind == "large":
            return torch.empty(1 << 33, dtype=torch.uint8, device="cuda").fill_(seed), kind
        if kind == "at random":
            seed = random.SystemRandom().randrange(1 << 30)
        x = torch.randn(2048, 2048, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
        return x.T[::2] if kind == "strided" else x, kind

    def run(self, x, kind):
        return x.mul_(2) if kind == "in place" else x[:1] * 2 if kind == "large" else x * 2

    def reference(self, x, kind):
        return x.double() * 2

    def flops(self, kind):
        return 1 << 22

    def bytes_moved(self, kind):
        return 8 << 22
'''


X = torch.arange(6.0).view(2, 3)


def test_one_set_is_borrowed_tensor_by_tensor() -> None:
    scale = torch.tensor(2.0)
    borrowed = borrow([X, scale], (X.clone(), 3.0, "text", scale.clone()), 1)

    assert borrowed is not None
    ((x, *others, last),) = borrowed
    assert torch.equal(x, X)
    assert others == [3.0, "text"]
    assert torch.equal(last, scale)


def test_many_sets_are_borrowed_in_one_piece() -> None:
    own = (X, X.T[::2], "text")
    memory, _ = copy_inputs(own, 3)
    borrowed = borrow([memory], own, 3)

    assert borrowed is not None
    assert len(borrowed) == 3
    for inputs in borrowed:
        assert all(map(torch.equal, inputs[:2], own[:2]))
        assert inputs[1].stride() == own[1].stride()
    assert len({inputs[0].data_ptr() for inputs in borrowed}) == 3
    assert len({inputs[0].untyped_storage().data_ptr() for inputs in borrowed}) == 1


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize(
    "own",
    [
        (torch.arange(6, dtype=torch.float64).view(2, 3), 3.0),
        (torch.arange(1.0, 7.0).view(2, 3), 3.0),
        (torch.full((2, 3), float("nan")), 3.0),
        (torch.arange(600.0).view(2, 300), 3.0),
        (X, X),
        (None, 3.0),
    ],
    ids=["dtype", "values", "nan", "size", "number", "kind"],
)
def test_what_differs_is_not_borrowed(own: tuple[object, ...], number: int) -> None:
    lent = X if number == 1 else copy_inputs((X, 3.0), number)[0]

    assert borrow([lent], own, number) is None


def test_a_tensor_of_another_shape_is_not_borrowed_in_its_place() -> None:
    assert borrow([X], (X.view(3, 2),), 1) is None


def refuse(*_: object) -> None:
    raise RuntimeError("pidfd_getfd: Operation not permitted")


def test_where_memory_cannot_be_opened_nothing_is_borrowed() -> None:
    def words(rebuild: object) -> str:
        return base64.b64encode(pickle.dumps([(rebuild, (X,))])).decode()

    assert open_lent(words(refuse)) is None
    assert torch.equal((open_lent(words(torch.clone)) or [])[0], X)


def test_where_memory_cannot_be_shared_nothing_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu:
        is_cuda = True

    monkeypatch.setattr("flopwatch.measure.lending.reduce_tensor", refuse)
    assert lend((), cast("torch.Tensor", OnGpu())) == ""


def test_what_is_not_on_the_gpu_is_not_lent() -> None:
    assert lend((X, 3.0)) == lend((3.0,)) == ""


def test_another_interpreter_is_lent_nothing(weather: Code, tmp_path: Path) -> None:
    """Nobody is asked: there is no such interpreter."""
    with Worker(Mode.GPU, weather) as ours, Worker(Mode.GPU, replace(weather, python=tmp_path / "python")) as theirs:
        assert ours.lend(product("plain"), theirs) == ""
        assert ours.pid is None


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Worker, Worker]]:
    """Two processes on one GPU."""
    code = write_code(tmp_path_factory.mktemp("lending"), kernels='"""Nothing."""\n', suite=SUITE)
    with (
        Nursery(code) as nursery,
        Worker(Mode.GPU, code, nursery=nursery) as one,
        Worker(Mode.GPU, code, nursery=nursery) as two,
    ):
        yield one, two


def product(kind: str) -> Case:
    return Case(suite="Product", values=(kind, "flopwatch"))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "borrowed"), [("plain", True), ("strided", True), ("in place", False), ("at random", False)]
)
def test_a_process_runs_on_the_memory_of_another(pair: tuple[Worker, Worker], kind: str, borrowed: bool) -> None:
    sample = sample_pair(pair, product(kind))

    assert sample.borrowed is borrowed
    assert abs(sample.log_ratio) < 0.05


@pytest.mark.gpu
def test_all_memory_is_given_back_time_and_again(pair: tuple[Worker, Worker]) -> None:
    """8 GiB each time would not fit a tenth of them."""
    owner, borrower = pair
    plan = Plan(method=Method.GRAPH, calls=1, input_sets=1)
    for _ in range(200):
        borrower.release(product("large"))
        owner.prepare(product("large"), plan)
        assert borrower.prepare(product("large"), plan, lent=owner.lend(product("large"), borrower)).borrowed
    borrower.release(product("large"))
    owner.release(product("large"))


@pytest.mark.gpu
def test_a_side_that_writes_to_its_inputs_gets_its_own(tmp_path: Path) -> None:
    """Head was changed to work in place; the inputs of both are alike."""
    base = write_code(tmp_path / "base", kernels='"""Nothing."""\n', suite=SUITE)
    in_place = SUITE.replace('x.mul_(2) if kind == "in place"', 'x.mul_(2) if kind == "plain"')
    head = write_code(tmp_path / "head", kernels='"""Nothing."""\n', suite=in_place)
    with Worker(Mode.GPU, base) as owner, Worker(Mode.GPU, head) as borrower:
        plan = owner.prepare(product("plain")).plan
        refused = borrower.prepare(product("plain"), plan, lent=owner.lend(product("plain"), borrower))
        sample = sample_pair((owner, borrower), product("plain"))

    assert refused.refusal is Refusal.WRITTEN
    assert not sample.borrowed


@pytest.mark.gpu
def test_nothing_stays_in_the_shared_memory_of_the_system(pair: tuple[Worker, Worker]) -> None:
    owner, borrower = pair
    plan = owner.prepare(product("plain")).plan
    assert borrower.prepare(product("plain"), plan, lent=owner.lend(product("plain"), borrower)).borrowed
    assert owner.pid is not None
    lent = {*process.SHARED_MEMORY.glob(f"torch_{owner.pid}_*")}
    assert lent
    borrower.close()
    owner.close()

    assert not lent & {*process.SHARED_MEMORY.iterdir()}


def test_only_the_memory_of_that_process_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SHARED_MEMORY", tmp_path)
    for name in ("torch_1258_20_197", "cuda.shm.0.4ea.1", "torch_12580_20_197", "cuda.shm.0.4eb.1", "sem.mp-1258"):
        (tmp_path / name).touch()
    process.forget_lent(1258)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cuda.shm.0.4eb.1",
        "sem.mp-1258",
        "torch_12580_20_197",
    ]
