"""Launchers that are built while their kernels are compiled: what is built, and what Triton keeps of it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import triton
from triton import knobs
from triton.runtime import build
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from flopwatch.kernels import launcher
from flopwatch.kernels.launcher import build_beside
from flopwatch.kernels.tuner import Tuner

from . import on_stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIGNATURE = {"x": "tensordesc<fp16[64, 64]>", "flags": "*i32", "y": "tensordesc<fp16[64, 64]>", "BLOCK": "constexpr"}
#: What is compiled of four tensor maps, with a cache of its own; printed is when a C compiler builds something, when
#: the kernel is compiled, and whether this Triton has a launcher for each kernel.
REAL = """
import os
os.environ["TRITON_CACHE_DIR"] = sys.argv[1]
import triton.backends.nvidia.driver as nvidia
from triton import knobs
from triton.runtime import build
from benchmarks_host import stand_in
from flopwatch.kernels import vector_add
from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, prepare

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
    print(hasattr(nvidia, "make_launcher"))
"""


class OneByOne:
    """Stands for Triton's launcher."""


class Kernel(JITFunction):  # type: ignore[misc] # Triton ships no types
    """A kernel whose hook is asked as Triton 3.6 does."""

    def _call_hook(
        self, hook: Callable[[object], object] | None, key: object, signature: object, *others: object
    ) -> object:
        assert (key, others) == ("key", ("others",))
        return None if hook is None else hook(signature)


def add_one(x_ptr):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - Triton types it
    """Do nothing: it is not compiled."""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """What the C compiler is given, with a Triton whose launchers are built one by one, and an empty cache."""
    given: list[str] = []

    def compile_c(_name: str, source: str, folder: str, *options: object) -> str:
        given.append(Path(source).read_text(encoding="utf-8"))
        if "broken" in given[-1]:
            raise RuntimeError("no C compiler")
        assert options == (["libraries"], ["headers"], ["libcuda.so.1"], [])
        library = Path(folder, "built.so")
        library.write_bytes(b"a library")
        return str(library)

    backend = SimpleNamespace(
        CudaLauncher=OneByOne,
        make_launcher=lambda _, signature, maps: f"{signature} {len(maps)}, of maps {None not in maps}",
        library_dirs=lambda: ["libraries"],
        include_dirs=["headers"],
        libraries=["libcuda.so.1"],
    )
    monkeypatch.setattr(launcher, "nvidia", backend)
    monkeypatch.setattr(launcher, "_begun", set())
    monkeypatch.setattr(build, "_build", compile_c)
    monkeypatch.setattr(type(driver), "active", property(lambda _: SimpleNamespace(launcher_cls=OneByOne)))
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path)
        yield given


def begin(kernel: Any, signature: dict[str, str], hook: object = None) -> object:  # noqa: ANN401 - Triton's
    """Have a kernel ask its hooks as it does before it is compiled, and wait for what that began."""
    before = set(threading.enumerate())
    answer = kernel._call_hook(hook, "key", signature, "others")
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    return answer


def test_the_launcher_of_what_is_about_to_be_compiled_is_built_once(built: list[str], tmp_path: Path) -> None:
    kernel = Kernel(add_one)
    for _ in range(2):
        build_beside(kernel)
        assert begin(kernel, dict(SIGNATURE)) is None

    assert built == [f"{SIGNATURE} 2, of maps True"]
    (kept,) = tmp_path.rglob("__triton_launcher*.so")
    assert kept.read_bytes() == b"a library"


def test_what_is_there_already_is_not_built_again(built: list[str]) -> None:
    for _ in range(2):  # as of two processes
        launcher._begun.clear()
        kernel = Kernel(add_one)
        build_beside(kernel)
        begin(kernel, SIGNATURE)

    assert len(built) == 1


def test_what_cannot_be_built_is_left_to_triton(
    built: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kernel = Kernel(add_one)
    build_beside(kernel)
    begin(kernel, {"broken": "*fp16"})
    monkeypatch.setattr(threading, "Thread", None)
    begin(kernel, {"x": "*fp16"})

    assert len(built) == 1
    assert not list(tmp_path.rglob("*.so"))
    assert capfd.readouterr() == ("", "")


def test_a_hook_that_triton_has_is_asked(built: list[str]) -> None:
    kernel = Kernel(add_one)
    build_beside(kernel)

    assert begin(kernel, SIGNATURE, lambda signature: signature == SIGNATURE) is True
    assert len(built) == 1


def test_launchers_of_another_driver_are_left_alone(built: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(driver), "active", property(lambda _: SimpleNamespace(launcher_cls=object)))
    kernel = Kernel(add_one)
    build_beside(kernel)
    begin(kernel, SIGNATURE)

    assert not built


def test_one_launcher_for_all_kernels_is_left_alone(built: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "nvidia", SimpleNamespace(CudaLauncher=OneByOne))
    kernel = Kernel(add_one)
    build_beside(kernel)
    begin(kernel, SIGNATURE)

    assert not built


@pytest.mark.usefixtures("built")
def test_kernels_that_are_interpreted_have_none() -> None:
    interpreted = SimpleNamespace()
    build_beside(interpreted)

    assert not vars(interpreted)


def test_what_is_tuned_has_its_launchers_built_too(built: list[str]) -> None:
    kernel = Kernel(add_one)
    Tuner(triton.heuristics({})(kernel), [triton.Config({})], key=[])
    begin(kernel, SIGNATURE)

    assert len(built) == 1


def test_triton_finds_the_launcher_built_once_the_kernel_is_compiled(tmp_path: Path) -> None:
    *order, is_built = on_stand_in.printed(REAL.replace("sys.argv[1]", repr(str(tmp_path))))

    assert order == (["built", "compiled"] if is_built == "True" else ["compiled"])
