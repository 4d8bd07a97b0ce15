from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.measure.conftest import write_code

from flopwatch.errors import BrokenImportError, SuiteError, UsageError
from flopwatch.measure.client import CaseFailed, Code, Mode, Nursery, Worker
from flopwatch.measure.protocol import Method, Op, Plan, Request
from flopwatch.measure.session import HISTORY_SAMPLES, Session, failure_of, serve
from flopwatch.model import Case, Choice, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAIR = Case(suite="Weather", values=("fair", "flopwatch"))
SUITE = '''\
"""A suite that needs nothing."""

import torch
from flopwatch import Suite


class Weather(Suite):
    """out = x + 1."""

    params = (["fair"],)
    param_names = ("weather",)
    small = {"weather": "small"}
    max_diff_eps = 2.0

    def inputs(self, weather, *, seed):
        return (torch.full((4,), float(seed)),)

    def run(self, x):
        return x + 1

    def reference(self, x):
        return x.double() + 1

    def flops(self, weather):
        return 4

    def bytes_moved(self, weather):
        return 32
'''
#: A kernel of two configurations, and what breaks the GPU's context or its memory.
GPU_KERNELS = '''\
"""What can happen on a GPU."""

import torch
import triton
import triton.language as tl

kept = []


@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


@triton.jit
def stray_kernel(x, distance, BLOCK: tl.constexpr):
    tl.store(x + distance + tl.arange(0, BLOCK), 1.0)


def fair(x):
    out = torch.empty_like(x)
    double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def synchronises(x):
    torch.cuda.synchronize()
    return fair(x)


def leaks(x):
    kept.append(torch.empty(1, dtype=torch.uint8, device="cuda"))
    return fair(x)


def strays(x):
    stray_kernel[(1,)](x, 1 << 44, BLOCK=256)
    torch.cuda.synchronize()
    return x


def runs_out_of_memory(x):
    return torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
'''
#: What modules ask of the GPU while they are imported: as Triton's tutorials do, and to choose tiles by the chip.
ASKING_KERNELS = '''\
"""A kernel whose block depends on the GPU."""

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
MULTIPROCESSORS = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)["multiprocessor_count"]
IS_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
BLOCK = 1024 if IS_HOPPER and MULTIPROCESSORS == 132 else 64


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


def fair(x):
    assert (BLOCK, x.device) == (1024, DEVICE)
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    return out
'''
#: A kernel whose inputs are made by another one, which is tuned.
PREPARING_KERNELS = '''\
"""A kernel, and what prepares its inputs."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def fill_kernel(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, offsets.to(tl.float32), mask=offsets < n)


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


def filled(n):
    x = torch.empty(n, device="cuda")
    fill_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n)
    return x


def fair(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
'''
GPU_SUITE = '''\
"""The suite of what can happen on a GPU."""

import torch
import toykernels
from flopwatch import Suite


class Weather(Suite):
    """out = 2 * x."""

    params = (["fair"],)
    param_names = ("weather",)

    def inputs(self, weather, *, seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        return torch.randn(1 << 20, device="cuda", generator=generator), weather

    def run(self, x, weather):
        return getattr(toykernels, weather)(x)

    def reference(self, x, weather):
        return x.double() * 2

    def flops(self, weather):
        return 1 << 20

    def bytes_moved(self, weather):
        return 8 << 20
'''


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session in this process, which has a suite that imports and one that does not."""
    folder = tmp_path_factory.mktemp("session") / "session_suites"
    folder.mkdir()
    (folder / "weather.py").write_text(SUITE, encoding="utf-8")
    (folder / "bad.py").write_text("raise LookupError('no licence')\n", encoding="utf-8")
    path, modules = list(sys.path), set(sys.modules)
    yield Session(Mode.INTERPRET, folder, "h200")
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("session_suites"):
            del sys.modules[name]


def served(session: Session, *requests: Request | bytes) -> list[dict[str, Any]]:
    lines = [request if isinstance(request, bytes) else to_json(request) for request in requests]
    replies = io.BytesIO()
    serve(session, iter(lines), replies)
    return [json.loads(line) for line in replies.getvalue().splitlines()]


def test_hello_declares_the_cases_and_names_what_could_not_be_imported(session: Session) -> None:
    hello = session.hello()

    assert [(entry.case, entry.small.id, entry.own, entry.max_diff_eps) for entry in hello.declared] == [
        (FAIR, "Weather[small,flopwatch]", True, 2.0)
    ]
    assert hello.import_failures == {"session_suites.bad": "LookupError: no licence"}


def test_hello_has_the_versions_of_the_whole_toolchain(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    versions = session.hello().versions
    assert set(versions) == {"python", "torch", "triton", "cuda", "ptxas"}
    assert versions["cuda"] == "13.0"
    monkeypatch.setattr(torch.version, "cuda", None)  # a torch for the CPU
    assert "cuda" not in session.hello().versions


def test_a_suite_that_is_not_there_is_an_error_that_names_what_could_not_be_imported(session: Session) -> None:
    with pytest.raises(BrokenImportError, match=r"no suite 'Snow'; session_suites\.bad: LookupError: no licence"):
        session.suite(Case(suite="Snow", values=("flopwatch",)))


def test_what_is_not_there_to_be_imported_is_another_error_than_what_raises(session: Session) -> None:
    session.discovery.failures["session_suites.bad"] = ImportError("cannot import name 'snow'")
    with pytest.raises(SuiteError, match="cannot import name 'snow'") as raised:
        session.suite(Case(suite="Snow", values=("flopwatch",)))
    assert raised.type is SuiteError


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(op="dance", case=FAIR), "no such request: 'dance'"),
        (Request(op=Op.NUMBERS.word), "request 'numbers' names no case"),
        (Request(op=Op.VISIT.word, case=FAIR, samples=3), r"Weather\[fair,flopwatch\] was not prepared"),
    ],
)
def test_what_cannot_be_answered_is_said(session: Session, request_: Request, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        session.answer(request_)


def test_the_seed_makes_the_inputs(session: Session) -> None:
    first, second, again = (session.answer(Request(op=Op.NUMBERS.word, case=FAIR, seed=seed)) for seed in (0, 1, 0))

    assert first == again
    assert first != second


def test_each_request_has_one_answer_and_a_failure_stops_nothing(session: Session) -> None:
    replies = served(
        session,
        Request(op=Op.NUMBERS.word, case=FAIR),
        b"no JSON",
        Request(op="dance", case=FAIR),
        Request(op=Op.NUMBERS.word, case=FAIR),
    )

    assert [None if reply["failure"] is None else reply["failure"]["kind"] for reply in replies] == [
        None,
        "DecodeError",
        "UsageError",
        None,
    ]
    assert replies[0]["value"] == replies[3]["value"]
    assert not any(reply["last"] for reply in replies)


def complain(message: str) -> None:
    raise ArithmeticError(message)


def test_a_failure_keeps_the_end_of_a_long_traceback_and_the_start_of_a_long_message() -> None:
    try:
        complain("a" * 5000 + "b" * 5000)
    except ArithmeticError as error:
        failure = failure_of(error)

    assert (failure.kind, failure.message) == ("ArithmeticError", "a" * 2000)
    assert failure.traceback == "a" * 2999 + "b" * 5000 + "\n"


def test_an_exception_without_words_is_called_by_its_name() -> None:
    assert failure_of(MemoryError()).message == "MemoryError"


def test_a_failure_can_be_written_whatever_its_message_holds() -> None:
    assert failure_of(OSError("no file 'caf\udce9'")).message == "no file 'caf\\udce9'"


@pytest.mark.parametrize("mode", [Mode.STATIC, Mode.INTERPRET])
def test_what_asks_for_the_gpu_at_import_is_answered_where_there_is_none(mode: Mode, tmp_path: Path) -> None:
    suite = GPU_SUITE.replace("torch.randn(1 << 20, device", "torch.randn(1 << 10, device")
    with Worker(mode, write_code(tmp_path, kernels=ASKING_KERNELS, suite=suite)) as worker:
        assert worker.hello.import_failures == {}
        if mode is Mode.STATIC:
            (facts,) = worker.facts(FAIR)
            assert facts.config == "BLOCK=1024,num_stages=3,num_warps=4"
        else:
            assert worker.numbers(FAIR).max_diff == 0


PREPARING_SUITE = GPU_SUITE.replace(
    'torch.randn(1 << 20, device="cuda", generator=generator)', "toykernels.filled(1 << 20)"
).replace("getattr(toykernels, weather)(x)", "toykernels.fair(x)")


def test_what_inputs_launch_is_none_of_the_case_s_kernels(tmp_path: Path) -> None:
    kernels = PREPARING_KERNELS.replace('"BLOCK": 512', '"BLOCK": 1 << 21')  # more than Triton takes: a trial fails
    with Worker(Mode.STATIC, write_code(tmp_path, kernels=kernels, suite=PREPARING_SUITE)) as worker:
        compiled = worker.compile(FAIR)
        worker.keep(FAIR)
        gathered = worker.gather().cases[0]
        (own,) = compiled.facts
        fill = ("fill_kernel", "*fp32:16,i32:16", "BLOCK=256,num_stages=3,num_warps=4")
        texts = worker.ir(FAIR, [fill, (own.kernel, own.variant, own.config)], ["ttir"])
    for found in (compiled, gathered):
        assert [fact.kernel for fact in found.facts] == ["double_kernel"]
        assert [launch.kernel for launch in found.traffic] == ["double_kernel"]
    assert [text.kernel for text in texts] == ["double_kernel"]


def test_what_inputs_launch_is_of_the_case_s_identity(tmp_path: Path) -> None:
    identities = []
    for name, factor in (("one", ""), ("two", " * 2"), ("again", "")):
        kernels = PREPARING_KERNELS.replace("offsets.to(tl.float32)", f"offsets.to(tl.float32){factor}")
        with Worker(Mode.STATIC, write_code(tmp_path / name, kernels=kernels, suite=PREPARING_SUITE)) as worker:
            identities.append(worker.compile(FAIR).identity)
    one, two, again = identities
    assert one is not None
    assert one.fingerprint
    assert one == again
    assert one != two


def test_inputs_whose_kernel_does_not_compile_are_no_fact_of_the_case(tmp_path: Path) -> None:
    kernels = PREPARING_KERNELS.replace("offsets.to(tl.float32)", "tl.dot(offsets, offsets)")
    code = write_code(tmp_path, kernels=kernels, suite=PREPARING_SUITE)
    with Worker(Mode.STATIC, code) as worker, pytest.raises(CaseFailed):
        worker.compile(FAIR)


@pytest.fixture(scope="module")
def gpu_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Code, Nursery]]:
    """What can happen on a GPU, and its nursery."""
    code = write_code(tmp_path_factory.mktemp("gpu"), kernels=GPU_KERNELS, suite=GPU_SUITE)
    with Nursery(code) as nursery:
        yield code, nursery


@pytest.fixture
def gpu_worker(gpu_side: tuple[Code, Nursery]) -> Iterator[Worker]:
    """A fresh process that has the GPU."""
    code, nursery = gpu_side
    with Worker(Mode.GPU, code, nursery=nursery) as worker:
        yield worker


def case(weather: str) -> Case:
    return Case(suite="Weather", values=(weather, "flopwatch"))


@pytest.mark.gpu
def test_a_forked_worker_measures_on_the_gpu(gpu_worker: Worker) -> None:
    prepared = gpu_worker.prepare(FAIR)
    seconds = gpu_worker.visit(FAIR, 5)
    launches = gpu_worker.launch(FAIR, 12)
    timing = gpu_worker.time(FAIR)
    memory = gpu_worker.memory(FAIR)

    assert prepared.plan.method is Method.GRAPH
    assert [choice.kernel for choice in prepared.choices] == ["double_kernel"]
    assert (len(seconds), len(launches), len(timing.seconds)) == (5, 12, HISTORY_SAMPLES)
    assert all(1e-6 < value < 1e-3 for value in (*seconds, *timing.seconds))  # 8 MiB at 4.8 TB/s: 1.7 us or more
    assert all(1e-6 < value < 1e-2 for value in launches)
    assert timing.method == "graph"
    assert (memory.peak_bytes, memory.growth_bytes) == (4 << 20, 0)
    assert gpu_worker.numbers(FAIR).max_diff == 0


@pytest.mark.gpu
def test_a_pin_is_honoured_by_every_request_that_takes_one(gpu_worker: Worker) -> None:
    chosen = gpu_worker.tune(FAIR)[0]
    (other,) = set(chosen.timings_us) - {chosen.config}
    pin = Choice(kernel="double_kernel", config=other)

    assert len(chosen.timings_us) == 2
    assert [choice.config for choice in gpu_worker.tune(FAIR, [pin])] == [other]
    plan = Plan(method=Method.GRAPH, calls=8, input_sets=4)
    assert [choice.config for choice in gpu_worker.prepare(FAIR, plan, [pin]).choices] == [other]
    assert [choice.config for choice in gpu_worker.tune(FAIR)] == [chosen.config]


@pytest.mark.gpu
def test_what_is_released_is_no_longer_prepared(gpu_worker: Worker) -> None:
    gpu_worker.prepare(case("synchronises"))
    gpu_worker.release(case("synchronises"))
    with pytest.raises(CaseFailed, match="was not prepared"):
        gpu_worker.visit(case("synchronises"), 1)


@pytest.mark.gpu
def test_a_leak_of_one_byte_a_call_is_seen(gpu_worker: Worker) -> None:
    assert gpu_worker.memory(case("leaks")).growth_bytes == 1.0


@pytest.mark.gpu
def test_an_illegal_address_ends_the_process_and_the_next_one_is_healthy(gpu_worker: Worker) -> None:
    assert gpu_worker.numbers(FAIR).max_diff == 0
    with pytest.raises(CaseFailed, match="illegal memory access"):
        gpu_worker.numbers(case("strays"))
    assert gpu_worker.pid is None
    assert gpu_worker.numbers(FAIR).max_diff == 0


@pytest.mark.gpu
def test_memory_that_the_gpu_does_not_have_is_a_result_and_the_process_goes_on(gpu_worker: Worker) -> None:
    assert gpu_worker.numbers(FAIR).max_diff == 0
    pid = gpu_worker.pid
    for ask in (gpu_worker.numbers, gpu_worker.prepare, gpu_worker.memory):
        with pytest.raises(CaseFailed) as caught:
            ask(case("runs_out_of_memory"))
        assert caught.value.failure.kind == "OutOfMemoryError"
    assert gpu_worker.numbers(FAIR).max_diff == 0
    assert gpu_worker.pid == pid
