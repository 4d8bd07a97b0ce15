from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
import triton

from flopwatch.static import compile_once, pretend_gpu
from flopwatch.static.compile_once import CompileOnce, held, let_go

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Says whether it has to compile each of some kernels, and does so when it is told to, or fails to.
BY_HAND = """\
import sys
from flopwatch.static.compile_once import CompileOnce

for key in sys.argv[1:]:
    manager = CompileOnce(key)
    print("asks", flush=True)
    print("found" if manager.get_group("kernel.json") else "compiles", flush=True)
    if sys.stdin.readline() == "done\\n":
        manager.put_group("kernel.json", {"kernel.json": manager.put("{}", "kernel.json", binary=False)})
"""
#: Launches a kernel; says when Triton compiles it, which waits for a line, and when it is done, well or not.
BY_TRITON = """\
import contextlib, os, sys
import torch, triton
import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend
from flopwatch.static import pretend_gpu
from flopwatch.static.compile_once import held

@triton.jit
def fill(x_ptr):
    tl.store(x_ptr + tl.arange(0, 128), 1.0)

def waiting(*arguments, make_cubin=CUDABackend.make_cubin):
    os.write(1, b"compiles\\n")  # what the compiler prints is caught
    if sys.stdin.readline() == "fails\\n":
        raise RuntimeError("planted")
    return make_cubin(*arguments)

CUDABackend.make_cubin = waiting
print("asks", flush=True)
with pretend_gpu("h200", tensors="meta") as recorder:
    with contextlib.suppress(RuntimeError):
        fill[(1,)](torch.empty(128, device="cuda"))
    print("holds" if held() >= 0 else "failed" if recorder.failures else "done", flush=True)
    sys.stdin.readline()
"""
NOTHING_S, SOON_S = 0.5, 60.0


class Compiling:
    """A process that runs one of them; it has come to its first kernel, or soon will."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, program: str, *keys: str) -> None:
        (folder / "program.py").write_text(program, encoding="utf-8")
        self._process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, str(folder / "program.py"), *keys],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
                | {"TRITON_CACHE_DIR": str(folder / "cache")},
                bufsize=0,
            )
        )
        stack.callback(self.kill)
        assert self.says() == "asks"

    def kill(self) -> None:
        self._process.kill()

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    def says(self, *, within_s: float = SOON_S) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], within_s)
        return self._process.stdout.readline().decode().strip() if ready else ""


@pytest.mark.parametrize(
    ("end", "then"),
    [
        (lambda first: first.tell("done"), "found"),
        (lambda first: first.tell("fails"), "compiles"),
        (lambda first: first.kill(), "compiles"),
    ],
    ids=["done", "fails", "killed"],
)
def test_who_comes_second_waits_for_the_first(end: Callable[[Compiling], None], then: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        first = Compiling(tmp_path, stack, BY_HAND, "ONE", "OTHER")
        assert first.says() == "compiles"
        second = Compiling(tmp_path, stack, BY_HAND, "ONE")
        assert second.says(within_s=NOTHING_S) == ""
        end(first)
        assert second.says() == then


def test_another_kernel_is_compiled_meanwhile(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        first = Compiling(tmp_path, stack, BY_HAND, "ONE")
        assert first.says() == "compiles"
        second = Compiling(tmp_path, stack, BY_HAND, "OTHER")
        assert second.says() == "compiles"


@pytest.mark.parametrize(("end", "told", "then"), [("done", "done", "done"), ("fails", "failed", "compiles")])
def test_triton_compiles_a_kernel_once_or_again_where_that_failed(
    end: str, told: str, then: str, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        first = Compiling(tmp_path, stack, BY_TRITON)
        assert first.says() == "compiles"
        second = Compiling(tmp_path, stack, BY_TRITON)
        assert second.says(within_s=NOTHING_S) == ""
        first.tell(end)
        assert first.says() == told  # and goes on to pretend
        assert second.says() == then


def test_nobody_waits_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compile_once, "MOST_WAIT_S", NOTHING_S)
    with contextlib.ExitStack() as stack:
        first = Compiling(tmp_path, stack, BY_HAND, "ONE")
        assert first.says() == "compiles"
        assert CompileOnce("ONE").get_group("kernel.json") is None
        let_go()


def test_a_file_system_without_locks_lets_everybody_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def fail(_file: int, _operation: int) -> None:
        raise OSError("No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    assert CompileOnce("KEY").get_group("kernel.json") is None
    let_go()


def test_each_thread_holds_what_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert CompileOnce("ONE").get_group("kernel.json") is None
    found: list[object] = []

    def other() -> None:
        found.extend([held(), CompileOnce("OTHER").get_group("kernel.json"), held() >= 0])
        let_go()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [-1, None, True]
    assert held() >= 0
    let_go()


def test_a_pretence_that_ends_holds_nothing_and_leaves_a_chosen_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with pretend_gpu("h200", tensors="meta"):
        assert triton.knobs.cache.manager_class is CompileOnce
        assert CompileOnce("KEY").get_group("kernel.json") is None
        assert held() >= 0
    assert held() == -1
    assert triton.knobs.cache.manager_class is None

    class Chosen(CompileOnce):
        pass

    with triton.knobs.cache.scope():
        triton.knobs.cache.manager_class = Chosen
        with pretend_gpu("h200", tensors="meta"):
            assert triton.knobs.cache.manager_class is Chosen
