from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.kernels.calls import launched_again
from tests.kernels.on_stand_in import printed
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from flopwatch.kernels import flash_attention, launch, triton_matmul, vector_add
from flopwatch.kernels.launch import Launched, Launches, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY, _ADDRESSES = key_of(torch.zeros(2, 3), torch.zeros(2, 3))
#: What calls return lies as this does.
OUT = torch.zeros(3, 2, dtype=torch.float16)


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
    fields: dict[str, Any] = {
        "compiled": compiled(function),
        "grid": (5,),
        "pointers": 2,
        "numbers": (2, 3, 0.5),
    } | changed
    return Launched(**fields)


def given(launches: Launches) -> list[object]:
    """Return what the function of C was handed last in what is kept."""
    (kept,) = launches._kept.values()
    handed: list[object] = kept.compiled.run.given
    return handed


GRAPH = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from flopwatch.kernels import flash_attention, triton_matmul, triton_matmul_fp8, triton_matmul_fp32, vector_add

def backend(module, _inputs):
    print(*(node.target for node in module.graph.nodes if node.op == "call_function"))
    return module.forward

def layer(a, b, q, k, seq_lens, a8, scale):
    first = flash_attention(q, q, q, causal=True, sm_scale=0.5)
    return (
        vector_add(triton_matmul(a, b), a),
        first,
        flash_attention(q, k, k, out_dtype=torch.bfloat16),
        flash_attention(q, q, q, seq_lens=seq_lens),
        triton_matmul_fp8(a8, a8, scale, scale, out_dtype=torch.float16),
        triton_matmul_fp32(a.float(), b.float()),
    )

with FakeTensorMode():
    shapes = (64, 64), (2, 2, 64, 32), (2, 1, 48, 32)
    a, q, k = (torch.empty(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)
    seq_lens, scale = torch.empty(2, device="cuda", dtype=torch.int32), torch.empty((), device="cuda")
    a8 = torch.empty((64, 64), device="cuda", dtype=torch.float8_e4m3fn)
    for out in torch.compile(layer, backend=backend, fullgraph=True)(a, a, q, k, seq_lens, a8, scale):
        print(*out.shape, out.dtype, out.device)
"""

#: On a stand-in for a GPU: prints of each call that converts its inputs whether its second time was launched past
#: Triton's dispatch.
CONVERTED = """
import itertools
import torch
from benchmarks_host import stand_in
from flopwatch.kernels import flash_attention, triton_matmul
from flopwatch.kernels.launch import Launches

past, again = [], Launches.again
Launches.again = lambda *given: past.append(again(*given)) or past[-1]

def call(*given, **others):
    for _ in range(2):
        past.clear()
        given[0](*given[1:], **others)
    print(past[-1] is not None)

types = torch.float32, torch.bfloat16
with stand_in.stand_in_gpu():
    for dtype, out_dtype in itertools.product(types, (None, *types)):
        q, seq_lens = stand_in.tensor(2, 4, 64, 64, dtype=dtype), stand_in.tensor(2, dtype=torch.int32)
        call(flash_attention, q, q, q, out_dtype=out_dtype)
        call(flash_attention, q, q, q, seq_lens=seq_lens, out_dtype=out_dtype)
    a = stand_in.tensor(64, 64, dtype=torch.float32)
    call(triton_matmul, a, a)
"""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Triton's active driver, and nothing in its way, whatever other tests left behind."""
    active = SimpleNamespace(
        device=0,
        get_current_stream=lambda _device: 11,
        get_current_target=lambda: SimpleNamespace(backend="cuda"),
    )
    active.get_current_device = lambda: active.device
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
    kept.keep(KEY, launched(function), OUT)
    assert len(kept) == 1
    return kept


def test_what_was_launched_is_launched_again_on_the_current_stream(launches: Launches) -> None:
    out = launches.again(KEY, (1024,))

    assert out is not None
    assert (out.shape, out.stride(), out.dtype) == (OUT.shape, OUT.stride(), OUT.dtype)
    pointers = [1024, out.data_ptr()]
    assert given(launches) == [5, 1, 1, 11, 7, "packed", None, None, None, *pointers, 2, 3, 0.5, None]


def test_what_is_returned_lies_as_that_of_the_first_call_whatever_its_strides(
    launches: Launches, function: SimpleNamespace
) -> None:
    launches.keep(KEY, launched(function), OUT.T)

    out = launches.again(KEY, (1024,))

    assert out is not None
    assert (out.shape, out.stride()) == ((2, 3), (1, 2))


def test_triton_dispatches_what_is_to_be_written_elsewhere_than_at_a_multiple_of_16_bytes(
    launches: Launches, function: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = torch.zeros(16, dtype=torch.float16)
    monkeypatch.setattr(launch, "empty_on_gpu", lambda *_: base[1:7].view(3, 2))
    assert launches.again(KEY, (1024,)) is None
    assert given(launches) == []

    launches.forget()
    launches.keep(KEY, launched(function), base[1:7].view(3, 2))
    assert len(launches) == 0


def test_what_a_call_hands_over_may_be_arranged_for_the_kernel(launches: Launches, function: SimpleNamespace) -> None:
    launches.keep(KEY, launched(function, arrange=lambda stream, a, out: ((out, a + stream), None)), OUT)

    out = launches.again(KEY, (1024,))

    assert out is not None
    assert given(launches)[9:11] == [out.data_ptr(), 1035]


def test_what_was_arranged_lives_until_the_launch_is_made(launches: Launches, function: SimpleNamespace) -> None:
    workspace, kernel, lived = [torch.zeros(8)], compiled(function), list[bool]()
    alive = weakref.ref(workspace[0])
    kernel.run.launch = functools.partial(lambda *_given: lived.append(alive() is not None))
    arranged = launched(function, compiled=kernel, arrange=lambda _stream, a, out: ((a, out), workspace.pop()))
    launches.keep(KEY, arranged, OUT)

    launches.again(KEY, (1024,))

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
    "another device": lambda _patch, driver, _function: setattr(driver, "device", 1),
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
    assert launches.again(KEY, (1024,)) is not None

    DISTURBANCES[name](monkeypatch, driver, function)

    assert launches.again(KEY, (1024,)) is None


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Operators])
def test_triton_dispatches_under_a_mode_of_torch(launches: Launches, mode: type[Functions | Operators]) -> None:
    with mode():
        assert launches.again(KEY, (1024,)) is None
    assert launches.again(KEY, (1024,)) is not None


def test_torch_s_function_of_c_is_asked_for_the_device_where_triton_would_ask_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 3, raising=False)

    assert launch._shortest(torch.cuda.current_device)() == 3
    assert launch._shortest(lambda: 4)() == 4


def test_triton_dispatches_once_the_tuner_may_choose_otherwise(launches: Launches, function: SimpleNamespace) -> None:
    tuner = SimpleNamespace(cache={"key": "config"})
    launches.keep(KEY, launched(function, tuner=tuner), OUT)
    tuner.cache["other"] = "config"
    assert launches.again(KEY, (1024,)) is not None

    tuner.cache = dict(tuner.cache)
    assert launches.again(KEY, (1024,)) is None

    launches.keep(KEY, launched(function, tuner=tuner), OUT)
    assert launches.again(KEY, (1024,)) is not None


def test_nothing_is_kept_of_what_is_not_all_that_decides(driver: SimpleNamespace, function: SimpleNamespace) -> None:
    launches = Launches()

    launches.keep(None, launched(function), OUT)  # no plain tensors
    launches.keep(KEY, launched(function, pointers=1), OUT)  # not all arguments
    launches.keep(KEY, launched(function, compiled=None), OUT)  # interpreted
    launches.keep(KEY, launched(function, compiled=SimpleNamespace(**vars(compiled(function)) | {"run": print})), OUT)
    function.used_global_vals["SIZE"] = 3
    launches.keep(KEY, launched(function), OUT)
    function.used_global_vals.clear()
    driver.get_current_target = lambda: SimpleNamespace(backend="hip")
    launches.keep(KEY, launched(function), OUT)

    assert len(launches) == 0


def test_memory_does_not_grow_without_end(
    launches: Launches, function: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "CAPACITY", 10)
    for number in range(25):
        launches.keep((KEY, number), launched(function), OUT)

    assert 0 < len(launches) <= 10


def test_forgotten_launches_are_dispatched(launches: Launches) -> None:
    launches.forget()

    assert launches.again(KEY, (1024,)) is None


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

    keys = [key_of(*call)[0] for one in tensors for call in ((one, base), (base, one), (base, base, (), one))]

    assert keys[:3] == keys[6:9]
    assert len(set(keys)) == 3 * (len(tensors) - 1)
    assert key_of(torch.nn.Parameter(base[:256].view(16, 16)), base)[0] == keys[0]


def test_a_key_tells_apart_other_arguments_and_comes_with_where_the_tensors_lie() -> None:
    x, y = torch.zeros(4), torch.zeros(4)

    key, addresses = key_of(x, y, (True, None), x)

    assert key == key_of(y, x, (True, None), y)[0] != key_of(x, y, (False, None), x)[0]
    assert addresses == (x.data_ptr(), y.data_ptr(), x.data_ptr())


@pytest.mark.parametrize(
    "make",
    [lambda: torch.eye(2).to_sparse(), lambda: torch.nested.nested_tensor([torch.zeros(2)], layout=torch.strided)],
    ids=["sparse", "nested"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_tensor_without_strides_is_refused_as_ever(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()

    x = torch.zeros(2)
    for tensors in ((tensor, x), (x, tensor), (x, x, (), tensor)):
        assert key_of(*tensors) == (None, ())
    with pytest.raises(ValueError, match="x must be a CUDA tensor"):
        vector_add(tensor, tensor)


def test_what_a_transformation_wraps_is_left_to_triton() -> None:
    keys: list[object] = []

    def note(x: torch.Tensor) -> torch.Tensor:
        keys.append(key_of(x, x)[0])
        return x + 1

    torch.vmap(note)(torch.zeros(2, 3))

    assert keys == [None]


def test_devices_without_a_number_are_told_apart() -> None:
    x, y = torch.zeros(2), torch.zeros(2, device="meta")

    assert len({key_of(*tensors)[0] for tensors in ((x, x), (x, y), (y, x), (x, x, (), x), (x, x, (), y))}) == 5


def test_a_kernel_is_not_unloaded_while_it_is_kept(launches: Launches, function: SimpleNamespace) -> None:
    unloaded: list[bool] = []
    kernel = CompiledKernel.__new__(CompiledKernel)
    kernel.module, kernel._run, kernel.function, kernel.packed_metadata = None, Launcher(), 7, "packed"
    kernel.src = SimpleNamespace(fn=function)
    weakref.finalize(kernel, unloaded.append, True)  # noqa: FBT003 - an element
    launches.keep("key", launched(function, compiled=kernel), OUT)

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

    nodes, *outputs = printed.splitlines()
    assert [node.removeprefix("flopwatch.").removesuffix(".default") for node in nodes.split()] == [
        "flash_attention",
        "triton_matmul",
        "vector_add",
        "flash_attention",
        "flash_attention",
        "triton_matmul_fp8",
        "triton_matmul",  # of `triton_matmul_fp32`, whose conversions are methods
    ]
    assert outputs == [
        "64 64 torch.bfloat16 cuda:0",
        "2 2 64 32 torch.float16 cuda:0",
        "2 2 64 32 torch.bfloat16 cuda:0",
        "2 2 64 32 torch.float16 cuda:0",
        "64 64 torch.float16 cuda:0",
        "64 64 torch.float32 cuda:0",
    ]


def test_calls_that_convert_their_inputs_are_launched_again() -> None:
    assert printed(CONVERTED) == ["True"] * 13


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
    """Calls that launch on a GPU: the plain kernels, what Hopper has beside them, and one of copies made first."""
    shapes = (128, 128), (1024, 1024), (2560, 2560), (320, 4099), (4099, 2049), (2, 4, 256, 64), (4, 16, 1024, 64)
    a, short, large, odd, odd_b, q, padded = (
        torch.randn(shape, device="cuda", dtype=torch.float16) for shape in shapes
    )
    seq_lens = torch.tensor([1024, 700, 300, 0], dtype=torch.int32, device="cuda")
    yield [
        lambda: triton_matmul(a, a),
        lambda: triton_matmul(short, short),
        lambda: triton_matmul(large, large),
        lambda: triton_matmul(odd, odd_b, 64, 128, 64),
        lambda: vector_add(a, a),
        lambda: flash_attention(q, q, q, causal=True),
        lambda: flash_attention(padded, padded, padded, causal=True),
        lambda: flash_attention(padded, padded, padded, seq_lens=seq_lens),
    ]
    torch.cuda.synchronize()


@pytest.mark.gpu
def test_launches_that_were_kept_give_the_same_bits(
    eager: list[Callable[[], torch.Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    again = launched_again(monkeypatch)
    monkeypatch.setattr(launch, "_RUN", JITFunction.run)  # whatever other tests left behind
    monkeypatch.setattr(launch, "_TUNED_RUN", Autotuner.run)
    counts = []
    for call in eager:
        first = call()
        torch.empty_like(first).fill_(float("nan"))  # what the next call is likely to be given
        again.clear()
        assert torch.equal(first, call())
        counts.append(len(again))
    assert counts == [1, 1, 1, 3, 1, 1, 1, 1], "320x2049x4099 in given blocks, by way of copies"


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


class Chained:
    """Launches of which KEY's are of copies."""

    def __init__(self, *, cuts: bool = True) -> None:
        self.launches = Launches()
        self.copies, self.product, self.cut = (self.launched(pointers) for pointers in (2, 3, 2))
        self.memory = torch.zeros(64, dtype=torch.float16)
        self.launches.keep("product", self.product, OUT)
        self.launches.keep_of_copies(
            KEY,
            (replace(self.copies, arrange=lambda _stream, a, b, memory: ((a + b, memory), None)), self.memory),
            "product",
            (self.cut, OUT[:, :1]) if cuts else None,
            second_begins=32,
        )

    @staticmethod
    def launched(pointers: int) -> Launched:
        """Return a launch of a kernel of so many pointers, three numbers and one constant."""
        params = [SimpleNamespace(is_constexpr=place == pointers + 3) for place in range(pointers + 4)]
        return launched(SimpleNamespace(used_global_vals={}, params=params, pre_run_hooks=[]), pointers=pointers)

    def again(self) -> torch.Tensor | None:
        """Launch again what a call with KEY launched."""
        return self.launches.again_of_copies(KEY, (1024, 2048))

    def handed(self) -> list[list[int]]:
        """Return the pointers that each of the three was handed last."""
        return [each.compiled.run.given[9 : 9 + each.pointers] for each in (self.copies, self.product, self.cut)]


@pytest.mark.usefixtures("driver")
def test_what_was_computed_of_copies_is_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    chained, made = Chained(), list[torch.Tensor]()

    def noted(*asked: Any) -> torch.Tensor:  # noqa: ANN401 - as torch's
        made.append(torch.empty_strided(asked[0], asked[1], dtype=asked[2]))
        return made[-1]

    monkeypatch.setattr(launch, "empty_on_gpu", noted)

    out = chained.again()

    assert [(tuple(each.shape), each.stride(), each.dtype) for each in made] == [
        (tuple(each.shape), each.stride(), each.dtype) for each in (chained.memory, OUT, OUT[:, :1])
    ]
    memory, product, last = (each.data_ptr() for each in made)
    assert out is made[-1]
    assert chained.handed() == [[1024 + 2048, memory], [memory, memory + 32, product], [product, last]]


@pytest.mark.usefixtures("driver")
def test_what_there_is_nothing_to_cut_off_is_returned_as_it_is() -> None:
    chained = Chained(cuts=False)

    out = chained.again()

    assert out is not None
    assert out.shape == OUT.shape
    assert chained.handed()[2] == []


def no_copies(chained: Chained) -> bool:
    """Tell whether nothing is launched."""
    return chained.again() is None and chained.handed() == [[], [], []]


@pytest.mark.parametrize("name", DISTURBANCES)
def test_triton_dispatches_copies_where_it_may_have_more_to_do(
    driver: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for launched_one in ("copies", "product"):  # what cuts is the kernel that copies
        chained = Chained()
        with monkeypatch.context() as patch:
            function = getattr(chained, launched_one).compiled.src.fn
            DISTURBANCES[name](patch, driver, function)
            assert no_copies(chained)
        driver.device = 0


def test_triton_dispatches_copies_of_what_is_kept_no_more_or_for_another_driver(
    driver: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    chained = Chained()
    assert chained.launches.again_of_copies("another", (1024, 2048)) is None
    chained.launches._kept.clear()
    assert no_copies(chained)

    chained = Chained()
    monkeypatch.setattr(launch, "active_driver", SimpleNamespace(active=SimpleNamespace(**vars(driver))))
    chained.launches.keep("product", chained.product, OUT)  # by itself, for that driver
    assert no_copies(chained)

    chained = Chained()
    chained.launches.forget()
    assert no_copies(chained)


def test_no_copies_are_kept_without_a_key_or_where_kernels_are_interpreted(driver: SimpleNamespace) -> None:
    chained, kept = Chained(), Launches()
    copies, product, cut = (chained.copies, chained.memory), "product", (chained.cut, OUT)
    interpreted = replace(chained.cut, compiled=None)
    for key, made, of_copies, last in (
        (None, copies, product, cut),
        (KEY, (interpreted, chained.memory), product, cut),
        (KEY, copies, None, cut),
        (KEY, copies, product, (interpreted, OUT)),
    ):
        kept.keep_of_copies(key, made, of_copies, last, second_begins=0)
    driver.get_current_target = lambda: SimpleNamespace(backend="hip")
    kept.keep_of_copies(KEY, copies, product, cut, second_begins=0)

    assert not kept._chains


@pytest.mark.usefixtures("driver")
def test_of_more_copies_than_there_is_room_for_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "CAPACITY", 2)
    chained, kept = Chained(), Launches()
    for name in "abc":
        kept.keep_of_copies(name, (chained.copies, chained.memory), "product", None, second_begins=0)

    assert list(kept._chains) == ["c"]
