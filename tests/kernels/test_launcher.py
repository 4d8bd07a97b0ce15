"""Launchers that are built while their kernels are compiled: what Triton is asked for, and what it keeps."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from triton import knobs
from triton.runtime.driver import driver

from flopwatch.kernels import launcher
from flopwatch.kernels.launcher import built_beside

from . import on_stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIGNATURE = {"x": "tensordesc<fp16[64, 64]>", "flags": "*i32", "y": "tensordesc<fp16[64, 64]>", "BLOCK": "constexpr"}
#: What is compiled of four tensor maps, with a cache of its own; printed is each that a C compiler was begun for, and
#: each stage of the compilation.
REAL = """
import os, tempfile
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
import torch
from triton import knobs
from triton.runtime.driver import driver
from benchmarks_host import stand_in
from flopwatch.kernels import vector_add
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, prepare
from triton.runtime import build

def built(*arguments, **options):
    print("built", flush=True)
    return one(*arguments, **options)

with stand_in.stand_in_gpu():
    q = stand_in.tensor(2 * 512 * 64).half().reshape(1, 2, 512, 64).as_subclass(stand_in.StandInTensor)
    x = stand_in.tensor(1024)
    vector_add(x, x)  # the start of Triton
    one, build._build = build._build, built
    knobs.compilation.listener = lambda **_: print("compiled", flush=True)
    (config,) = [each for each in HOPPER_ATTENTION[64] if each.name == "128x128 s2 pp"]
    prepare(q, q, q, q, config, causal=False).launch()
    knobs.compilation.listener = None
    assert knobs.runtime.jit_cache_hook is None
    import triton.backends.nvidia.driver as nvidia
    print(hasattr(nvidia, "make_launcher"))
"""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, Any]]]:
    """What launchers are made of, with a driver whose launchers are compiled one by one."""
    found: list[tuple[Any, Any]] = []

    class OneByOne:
        """As Triton 3.6 has it."""

        def __init__(self, source: object, metadata: object) -> None:
            found.append((source, metadata))
            if len(found) > 1:
                raise RuntimeError("no C compiler")

    module = ModuleType("of_launchers")
    module.make_launcher = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    OneByOne.__module__ = module.__name__
    active = SimpleNamespace(launcher_cls=OneByOne, get_current_target=lambda: SimpleNamespace(backend="cuda"))
    monkeypatch.setattr(type(driver), "active", property(lambda _: active))
    monkeypatch.setattr(launcher, "_begun", set())
    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook, knobs.runtime.interpret = None, False
        yield found


def compile_with(hook: Callable[..., object] | None, signature: dict[str, str]) -> object:
    """Tell a hook what Triton tells it of a compilation, and wait for what it began."""
    assert hook is not None
    answer = hook(
        key="",
        repr="",
        fn=SimpleNamespace(jit_function="the kernel"),
        compile={"signature": signature, "constants": {(3,): 64}},
        is_manual_warmup=False,
        already_compiled=False,
    )
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(10)
    return answer


def test_the_launcher_of_what_is_about_to_be_compiled_is_built_once(made: list[tuple[Any, Any]]) -> None:
    with built_beside():
        assert compile_with(knobs.runtime.jit_cache_hook, SIGNATURE) is None
        assert compile_with(knobs.runtime.jit_cache_hook, dict(SIGNATURE)) is None

    ((source, metadata),) = made
    assert (source.fn, source.signature, source.constants) == ("the kernel", SIGNATURE, {(3,): 64})
    assert len(metadata.tensordesc_meta) == 2
    assert None not in metadata.tensordesc_meta


def test_what_cannot_be_built_is_left_to_triton(made: list[tuple[Any, Any]], capfd: pytest.CaptureFixture[str]) -> None:
    with built_beside():
        for signature in (SIGNATURE, {"x": "*fp16"}):
            compile_with(knobs.runtime.jit_cache_hook, signature)

    assert len(made) == 2
    assert capfd.readouterr() == ("", "")


def test_a_hook_that_was_there_is_asked_and_there_again_afterwards(made: list[tuple[Any, Any]]) -> None:
    told: list[object] = []

    def hook(**of_it: object) -> bool:
        told.append(of_it["compile"])
        return True

    knobs.runtime.jit_cache_hook = hook
    with built_beside():
        assert compile_with(knobs.runtime.jit_cache_hook, SIGNATURE) is True

    assert len(told) == len(made) == 1
    assert knobs.runtime.jit_cache_hook is hook


def test_the_last_of_several_threads_takes_the_hook_away(made: list[tuple[Any, Any]]) -> None:
    inside, leave = threading.Barrier(2), threading.Event()

    def other() -> None:
        with built_beside():
            inside.wait(10)
            leave.wait(10)

    thread = threading.Thread(target=other, daemon=True)
    with built_beside():
        thread.start()
        inside.wait(10)
    compile_with(knobs.runtime.jit_cache_hook, SIGNATURE)
    leave.set()
    thread.join(10)

    assert len(made) == 1
    assert knobs.runtime.jit_cache_hook is None


def test_a_hook_that_came_meanwhile_stays(made: list[tuple[Any, Any]]) -> None:
    def hook(**_: object) -> None: ...

    with built_beside():
        knobs.runtime.jit_cache_hook = hook

    assert knobs.runtime.jit_cache_hook is hook
    assert not made


@pytest.mark.parametrize(("has_source", "backend"), [(False, "cuda"), (True, "hip")])
def test_one_launcher_for_all_kernels_and_those_of_amd_are_left_alone(
    made: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch, has_source: bool, backend: str
) -> None:
    monkeypatch.setattr(driver.active, "get_current_target", lambda: SimpleNamespace(backend=backend))
    if not has_source:
        monkeypatch.delattr(sys.modules["of_launchers"], "make_launcher")

    with built_beside():
        assert knobs.runtime.jit_cache_hook is None
    assert not made


def test_where_kernels_are_interpreted_no_driver_is_asked(
    made: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(driver), "active", property(lambda _: pytest.fail("asked")))
    knobs.runtime.interpret = True

    with built_beside():
        assert knobs.runtime.jit_cache_hook is None
    assert not made


def test_triton_finds_the_launcher_built_once_the_kernel_is_compiled() -> None:
    *order, is_built = on_stand_in.printed(REAL)

    assert order == (["built", "compiled"] if is_built == "True" else ["compiled"])
