from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from flopwatch.kernels import flash_attention, launch, triton_matmul, vector_add
from flopwatch.kernels.launch import Launched, Launches, tensors_key

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

KEY = tensors_key(torch.zeros(2, 3))


class Launcher:
    """Stands for Triton's."""

    global_scratch_size = profile_scratch_size = 0

    def __init__(self) -> None:
        self.given: list[object] = []
        self.launch = self.note

    def note(self, *arguments: object) -> None:
        self.given[:] = arguments

    def __call__(self, *arguments: object) -> None:
        self.launch(*arguments)


def compiled(function: object) -> SimpleNamespace:
    """Return what stands for a compiled kernel of the function."""
    return SimpleNamespace(run=Launcher(), function=7, packed_metadata="packed", src=SimpleNamespace(fn=function))


def launched(function: object, **changed: Any) -> Launched:  # noqa: ANN401 - of any field
    """Return a launch of a kernel of two pointers, three numbers and one constant."""
    given: dict[str, Any] = {
        "compiled": compiled(function),
        "grid": (5,),
        "pointers": 2,
        "numbers": (2, 3, 0.5),
    } | changed
    return Launched(**given)


GRAPH = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from flopwatch.kernels import flash_attention, triton_matmul, vector_add

def backend(module, _inputs):
    print(*(node.target for node in module.graph.nodes if node.op == "call_function"))
    return module.forward

def layer(a, b, q, k):
    first = flash_attention(q, q, q, causal=True, sm_scale=0.5)
    return vector_add(triton_matmul(a, b), a), first, flash_attention(q, k, k, out_dtype=torch.bfloat16)

with FakeTensorMode():
    shapes = (64, 64), (2, 2, 64, 32), (2, 1, 48, 32)
    a, q, k = (torch.empty(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)
    for out in torch.compile(layer, backend=backend, fullgraph=True)(a, a, q, k):
        print(*out.shape, out.dtype, out.device)
"""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Triton's active driver, and nothing in its way, whatever other tests left behind."""
    active = SimpleNamespace(
        get_current_device=lambda: 0,
        get_current_stream=lambda _device: 11,
        get_current_target=lambda: SimpleNamespace(backend="cuda"),
    )
    monkeypatch.setattr(launch, "active_driver", SimpleNamespace(active=active))
    monkeypatch.setattr(launch, "_RUN", JITFunction.run)
    monkeypatch.setattr(launch, "_TUNED_RUN", Autotuner.run)
    return active


@pytest.fixture
def function() -> SimpleNamespace:
    """A kernel of two pointers, three numbers and one constant."""
    params = [SimpleNamespace(is_constexpr=place == 5) for place in range(6)]
    return SimpleNamespace(used_global_vals={}, params=params, pre_run_hooks=[])


@pytest.fixture
def launches(driver: SimpleNamespace, function: SimpleNamespace) -> Launches:  # noqa: ARG001 - is active
    kept = Launches()
    kept.keep(KEY, launched(function))
    assert len(kept) == 1
    return kept


def test_what_was_launched_is_launched_again_on_the_current_stream(launches: Launches) -> None:
    again = launches.find(KEY)
    assert again is not None

    again(1024, 2048)

    assert again.compiled.run.given == [5, 1, 1, 11, 7, "packed", None, None, None, 1024, 2048, 2, 3, 0.5, None]


def test_what_a_call_hands_over_may_be_arranged_for_the_kernel(launches: Launches, function: SimpleNamespace) -> None:
    launches.keep(KEY, launched(function, arrange=lambda stream, a: ((a, a + stream), None)))
    again = launches.find(KEY)
    assert again is not None

    again(1024)

    assert again.compiled.run.given[9:11] == [1024, 1035]


def test_what_was_arranged_lives_until_the_launch_is_made(launches: Launches, function: SimpleNamespace) -> None:
    workspace, kernel, lived = [torch.zeros(8)], compiled(function), list[bool]()
    alive = weakref.ref(workspace[0])
    kernel.run.launch = functools.partial(lambda *_given: lived.append(alive() is not None))
    launches.keep(KEY, launched(function, compiled=kernel, arrange=lambda _stream, a: ((a, a), workspace.pop())))
    again = launches.find(KEY)
    assert again is not None

    again(1024)

    assert (lived, alive()) == ([True], None)


def hook(*_arguments: object) -> None:
    """Stand for a profiler's."""


def hooked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(getattr(knobs.runtime, name), "calls", [hook])


DISTURBANCES: dict[str, Callable[[pytest.MonkeyPatch, SimpleNamespace, SimpleNamespace], object]] = {
    "a hook before launches": lambda patch, _driver, _function: hooked(patch, "launch_enter_hook"),
    "a hook after launches": lambda patch, _driver, _function: hooked(patch, "launch_exit_hook"),
    "a hook that is no chain": lambda patch, _driver, _function: patch.setattr(
        knobs.runtime, "launch_enter_hook", hook
    ),
    "a debugging mode": lambda patch, _driver, _function: patch.setattr(knobs.runtime, "debug", True),
    "an instrumentation": lambda patch, _driver, _function: patch.setattr(
        knobs.compilation, "instrumentation_mode", "x"
    ),
    "a hook of the kernel": lambda _patch, _driver, function: function.pre_run_hooks.append(hook),
    "another dispatch": lambda patch, _driver, _function: patch.setattr(JITFunction, "run", hook),
    "another tuner": lambda patch, _driver, _function: patch.setattr(Autotuner, "run", hook),
    "another device": lambda _patch, driver, _function: setattr(driver, "get_current_device", lambda: 1),
    "another driver": lambda patch, driver, _function: patch.setattr(
        launch, "active_driver", SimpleNamespace(active=SimpleNamespace(**vars(driver)))
    ),
}


@pytest.mark.parametrize("name", DISTURBANCES)
def test_triton_dispatches_where_it_may_have_more_to_do(
    launches: Launches,
    driver: SimpleNamespace,
    function: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    assert launches.find(KEY) is not None

    DISTURBANCES[name](monkeypatch, driver, function)

    assert launches.find(KEY) is None


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Operators])
def test_triton_dispatches_under_a_mode_of_torch(launches: Launches, mode: type[Functions | Operators]) -> None:
    with mode():
        assert launches.find(KEY) is None
    assert launches.find(KEY) is not None


def test_triton_dispatches_once_the_tuner_may_choose_otherwise(launches: Launches, function: SimpleNamespace) -> None:
    tuner = SimpleNamespace(cache={"key": "config"})
    launches.keep(KEY, launched(function, tuner=tuner))
    tuner.cache["other"] = "config"
    assert launches.find(KEY) is not None

    tuner.cache = dict(tuner.cache)
    assert launches.find(KEY) is None

    launches.keep(KEY, launched(function, tuner=tuner))
    assert launches.find(KEY) is not None


def test_nothing_is_kept_of_what_is_not_all_that_decides(driver: SimpleNamespace, function: SimpleNamespace) -> None:
    launches = Launches()

    launches.keep(None, launched(function))  # no plain tensors
    launches.keep(KEY, launched(function, pointers=1))  # not all arguments
    launches.keep(KEY, launched(function, compiled=None))  # interpreted
    launches.keep(KEY, launched(function, compiled=SimpleNamespace(**vars(compiled(function)) | {"run": print})))
    function.used_global_vals["SIZE"] = 3
    launches.keep(KEY, launched(function))
    function.used_global_vals.clear()
    driver.get_current_target = lambda: SimpleNamespace(backend="hip")
    launches.keep(KEY, launched(function))

    assert len(launches) == 0


def test_memory_does_not_grow_without_end(
    launches: Launches, function: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "CAPACITY", 10)
    for number in range(25):
        launches.keep((KEY, number), launched(function))

    assert 0 < len(launches) <= 10


def test_forgotten_launches_are_dispatched(launches: Launches) -> None:
    launches.forget()

    assert launches.find(KEY) is None


def test_a_key_tells_apart_what_triton_tells_apart() -> None:
    base = torch.zeros(4096, dtype=torch.float16)
    tensors = [
        base[:256].view(16, 16),
        base[:256].view(16, 16).T.contiguous().T,
        base[8:264].view(16, 16),
        base[1:257].view(16, 16),
        base[:512:2].view(16, 16),
        base[:256].view(16, 16).bfloat16(),
        base[:272].view(17, 16),
    ]
    assert tensors[0].data_ptr() % 16 == tensors[2].data_ptr() % 16 == 0

    keys = [tensors_key(tensor) for tensor in tensors]

    assert keys[0] == keys[2]
    assert len(set(keys)) == len(tensors) - 1
    assert tensors_key(torch.nn.Parameter(base[:256].view(16, 16))) == keys[0]


@pytest.mark.parametrize(
    "make",
    [lambda: torch.eye(2).to_sparse(), lambda: torch.nested.nested_tensor([torch.zeros(2)], layout=torch.strided)],
    ids=["sparse", "nested"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_tensor_without_strides_is_refused_as_ever(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()

    assert tensors_key(tensor) is None
    with pytest.raises(ValueError, match="x must be a CUDA tensor"):
        vector_add(tensor, tensor)


def test_what_a_transformation_wraps_is_left_to_triton() -> None:
    keys: list[object] = []

    def note(x: torch.Tensor) -> torch.Tensor:
        keys.append(tensors_key(x))
        return x + 1

    torch.vmap(note)(torch.zeros(2, 3))

    assert keys == [None]


def test_devices_without_a_number_are_told_apart() -> None:
    assert tensors_key(torch.zeros(2)) != tensors_key(torch.zeros(2, device="meta"))


def test_a_kernel_is_not_unloaded_while_it_is_kept(launches: Launches, function: SimpleNamespace) -> None:
    unloaded: list[bool] = []
    kernel = CompiledKernel.__new__(CompiledKernel)
    kernel.module, kernel._run, kernel.function, kernel.packed_metadata = None, Launcher(), 7, "packed"
    kernel.src = SimpleNamespace(fn=function)
    weakref.finalize(kernel, unloaded.append, True)  # noqa: FBT003 - an element
    launches.keep("key", launched(function, compiled=kernel))

    del kernel
    assert not unloaded
    launches.forget()
    assert unloaded


def test_a_method_that_was_replaced_is_not_taken_for_tritons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Heuristics.run
    assert launch._own(Heuristics) is own
    for replacement in (hook, functools.wraps(own)(lambda *_: None), functools.partialmethod(own), print):
        monkeypatch.setattr(Heuristics, "run", replacement)
        assert launch._own(Heuristics) is not Heuristics.run


def test_tritons_own_method_is_found_below_what_says_that_it_wraps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Heuristics.run
    monkeypatch.setattr(Heuristics, "run", functools.wraps(own)(lambda *_: None))

    assert launch._own(Heuristics) is own


def test_a_compiled_graph_has_one_node_for_each_call() -> None:
    printed = subprocess.check_output([sys.executable, "-c", GRAPH], text=True)

    assert printed.splitlines() == [
        " ".join(
            f"flopwatch.{name}.default"
            for name in ("flash_attention", "triton_matmul", "vector_add", "flash_attention")
        ),
        "64 64 torch.bfloat16 cuda:0",
        "2 2 64 32 torch.float16 cuda:0",
        "2 2 64 32 torch.bfloat16 cuda:0",
    ]


@pytest.mark.parametrize("call", [vector_add, triton_matmul, flash_attention])
def test_a_call_while_something_is_compiled_comes_to_an_end(
    monkeypatch: pytest.MonkeyPatch, call: Callable[..., torch.Tensor]
) -> None:
    # By another thread, or by the compiler itself, which computes constants: torch's flag is everybody's.
    importlib.import_module("torch._dynamo")  # it remembers what it finds in the flag's place
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    tensors = [torch.zeros(2, 16, 16) if call is flash_attention else torch.zeros(2, 2)] * 3

    with pytest.raises(ValueError, match="must be a CUDA tensor"):
        call(*(tensors if call is flash_attention else tensors[:2]))


@pytest.fixture
def eager() -> Iterator[list[Callable[[], torch.Tensor]]]:
    """Calls that launch on a GPU."""
    a, q = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((256, 256), (2, 4, 256, 64)))
    yield [lambda: triton_matmul(a, a), lambda: vector_add(a, a), lambda: flash_attention(q, q, q, causal=True)]
    torch.cuda.synchronize()


@pytest.mark.gpu
def test_launches_that_were_kept_give_the_same_bits(
    eager: list[Callable[[], torch.Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    again: list[Hashable] = []
    find = Launches.find

    def noted_find(launches: Launches, key: Hashable) -> launch.Launch | None:
        found = find(launches, key)
        again.extend([key] * (found is not None))
        return found

    monkeypatch.setattr(Launches, "find", noted_find)
    monkeypatch.setattr(launch, "_RUN", JITFunction.run)  # whatever other tests left behind
    monkeypatch.setattr(launch, "_TUNED_RUN", Autotuner.run)
    for call in eager:
        first = call()
        torch.empty_like(first).fill_(float("nan"))  # what the next call is likely to be given
        again.clear()
        assert torch.equal(first, call())
        assert len(again) == 1


@pytest.mark.gpu
def test_launches_that_were_kept_are_captured(eager: list[Callable[[], torch.Tensor]]) -> None:
    for call in eager:
        expected = call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(expected, out)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_compiled_functions_give_the_same_bits(eager: list[Callable[[], torch.Tensor]]) -> None:
    for call in eager:
        assert torch.equal(call(), torch.compile(call, fullgraph=True)())
