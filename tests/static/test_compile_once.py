from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import triton

from flopwatch.static import pretend_gpu
from flopwatch.static.compile_once import CompileOnce

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Says whether it has to compile a kernel, does so when it is told to, or fails to, and says it again of another.
PROGRAM = """\
import sys
from flopwatch.static.compile_once import CompileOnce

for key in ("ONE", "OTHER"):
    manager = CompileOnce(key)
    print("asks for", key, flush=True)
    print("found" if manager.get_group("kernel.json") else "compiles", key, flush=True)
    if sys.stdin.readline() == "done\\n":
        manager.put_group("kernel.json", {"kernel.json": manager.put("{}", "kernel.json", binary=False)})
"""
NOTHING_S, SOON_S = 0.5, 60.0


class Compiling:
    """A process that runs it."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"TRITON_CACHE_DIR": str(folder)},
                bufsize=0,
            )
        )
        stack.callback(self.kill)
        assert self.says() == "asks for ONE"

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
        (lambda first: first.tell("done"), "found ONE"),
        (lambda first: first.tell("fails"), "compiles ONE"),
        (lambda first: first.kill(), "compiles ONE"),
    ],
    ids=["done", "fails", "killed"],
)
def test_who_comes_second_waits_for_the_first(end: Callable[[Compiling], None], then: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        first = Compiling(tmp_path, stack)
        assert first.says() == "compiles ONE"
        second = Compiling(tmp_path, stack)
        assert second.says(within_s=NOTHING_S) == ""
        end(first)
        assert second.says() == then


def test_another_kernel_is_compiled_meanwhile(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        first = Compiling(tmp_path, stack)
        assert first.says() == "compiles ONE"
        first.tell("done")
        assert [first.says(), first.says()] == ["asks for OTHER", "compiles OTHER"]
        second = Compiling(tmp_path, stack)
        assert second.says() == "found ONE"


def test_where_nothing_can_be_locked_everybody_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def fail(_file: int, _operation: int) -> None:
        raise OSError("No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    managers = [CompileOnce("KEY"), CompileOnce("KEY")]

    assert [manager.get_group("kernel.json") for manager in managers] == [None, None]


def test_a_pretence_that_ends_holds_nothing_and_leaves_a_chosen_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with pretend_gpu("h200", tensors="meta"):
        assert triton.knobs.cache.manager_class is CompileOnce
        assert CompileOnce("KEY").get_group("kernel.json") is None
        assert CompileOnce._held >= 0
    assert CompileOnce._held == -1
    assert triton.knobs.cache.manager_class is None

    class Chosen(CompileOnce):
        pass

    with triton.knobs.cache.scope():
        triton.knobs.cache.manager_class = Chosen
        with pretend_gpu("h200", tensors="meta"):
            assert triton.knobs.cache.manager_class is Chosen
