from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import triton
from triton.backends.nvidia.compiler import get_ptxas_version
from triton.runtime import cache
from triton.runtime.cache import FileCacheManager

from flopwatch.measure import compiler
from flopwatch.measure.compiler import ptxas_for, toolchain_of
from flopwatch.static import find_device
from flopwatch.static.session import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

H200 = find_device("h200")
#: Compiles a kernel where a GPU is pretended, then as for one that is there, and prints whether that was compiled anew.
PROGRAM = """\
import sys
import torch, triton
import triton.language as tl
from triton.runtime.driver import driver
from flopwatch.measure.compiler import reuse_compiled
from flopwatch.static import find_device, pretend_gpu
from flopwatch.static.driver import PretendedDriver
{}
@triton.jit
def fill(x_ptr, n, value: tl.constexpr):
    at = tl.arange(0, 128)
    tl.store(x_ptr + at, value, mask=at < n)


device = find_device(sys.argv[1])
with pretend_gpu(device.key, tensors="meta"):
    fill[(1,)](torch.empty(128, device="cuda"), 128, 1.0)
if "reuse" in sys.argv:
    reuse_compiled(device)
driver._active = PretendedDriver(find_device("h200"))
triton.knobs.compilation.listener = lambda *, cache_hit, **_: print("kept" if cache_hit else "compiled anew")
kernel = fill.warmup(torch.float32, 128, 1.0, grid=(1,))
assert kernel.asm["cubin"]
"""


def outcome(folder: Path, *arguments: str, above: str = "") -> str:
    # In a child, because this process may interpret kernels.
    (folder / "program.py").write_text(PROGRAM.format(above), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder / "cache")
    command = [sys.executable, str(folder / "program.py"), *arguments]
    return subprocess.check_output(command, env=environment, text=True).strip()


def test_a_gpu_gets_what_was_compiled_for_it_without_one(tmp_path: Path) -> None:
    assert outcome(tmp_path, "h200", "reuse") == "kept"


def test_without_a_word_it_is_compiled_anew(tmp_path: Path) -> None:
    assert outcome(tmp_path, "h200") == "compiled anew"


def test_what_was_compiled_for_another_architecture_is_not_taken(tmp_path: Path) -> None:
    assert outcome(tmp_path, "a100", "reuse") == "compiled anew"


@pytest.fixture
def _own_cache(tmp_path: Path) -> Iterator[None]:
    """Let Triton have a cache of its own, and the manager that it has by default."""
    with triton.knobs.cache.scope():  # what a monkeypatch gives back no longer follows the environment
        triton.knobs.cache.dir = str(tmp_path)
        triton.knobs.cache.manager_class = None
        yield


def put(contents: dict[str, str]) -> None:
    """Keep a kernel as one that was compiled for a pretended H200."""
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = cache_folder(H200)
        manager = FileCacheManager("key")
        manager.put_group("k.json", {name: manager.put(text, name) for name, text in contents.items()})


@pytest.mark.usefixtures("_own_cache")
def test_what_did_not_fit_the_pretended_device_is_not_taken() -> None:
    compiler.reuse_compiled(H200)
    put({"k.json": "{}", "k.cubin": ""})
    assert cache.knobs.cache.manager_class("key").get_group("k.json") is None

    put({"k.json": "{}", "k.cubin": "code"})
    found = cache.knobs.cache.manager_class("key").get_group("k.json")
    assert found is not None
    assert sorted(found) == ["k.cubin", "k.json"]


@pytest.mark.usefixtures("_own_cache")
def test_the_cache_of_the_gpu_comes_first_and_nothing_is_written_into_the_other(tmp_path: Path) -> None:
    put({"k.json": "{}", "k.cubin": "code"})
    compiler.reuse_compiled(H200)
    own = cache.knobs.cache.manager_class("key")
    own.put_group("k.json", {"k.json": own.put("{}", "k.json")})

    assert own.get_group("k.json") == {"k.json": str(tmp_path / "key" / "k.json")}
    assert cache.knobs.cache.manager_class("other").get_group("k.json") is None
    assert [path.name for path in tmp_path.glob("flopwatch-*/*")] == ["key"]


@pytest.mark.usefixtures("_own_cache")
def test_a_cache_that_the_user_chose_stays() -> None:
    class Remote(FileCacheManager):  # type: ignore[misc] # triton has no types
        pass

    triton.knobs.cache.manager_class = Remote
    compiler.reuse_compiled(H200)

    assert triton.knobs.cache.manager_class is Remote


def test_what_every_key_has_in_it_is_known_beforehand_whatever_the_gpu() -> None:
    for name in ("h200", "mi300x"):
        compiler.get_ready(find_device(name))

    assert cache.triton_key.cache_info().currsize == 1


def test_what_cannot_be_known_beforehand_is_left_to_the_first_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise OSError("libtriton.so is gone")

    monkeypatch.setattr(cache, "triton_key", fail)

    compiler.get_ready(H200)


@pytest.mark.parametrize("name", ["a100", "h200", "b200"])
def test_the_assembler_is_the_one_that_triton_runs_for_the_device(name: str) -> None:
    device = find_device(name)
    versions = toolchain_of(device)

    assert f"V{versions['ptxas']}" in get_ptxas_version(device.arch)


def test_there_is_no_assembler_of_what_is_not_nvidias_nor_where_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ptxas_for(find_device("mi300x")) is None

    def fail(_arch: int) -> None:
        raise RuntimeError("Cannot find ptxas")

    monkeypatch.setattr("triton.backends.nvidia.compiler.get_ptxas", fail)
    assert ptxas_for(H200) is None
