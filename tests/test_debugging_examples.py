"""The guide to debugging is typed as it stands: each of its commands, and all that it says comes out."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guide" / "debugging.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples" / "debugging"
BLOCK = re.compile(r"^```console( gpu)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "(Pdb) "
#: Of Triton's and flopwatch's own, and of the GPU's scheduling: they mean nothing, and differ between versions.
NAMES = re.compile(r"(?<=%)\w+|(?<=#loc)\d+|(?<=-)[0-9a-f]{6}(?=\.)|(?<=thread: \[)\d+")
SETTINGS = ("TRITON_INTERPRET", "TRITON_DEBUG", "TRITON_ALWAYS_COMPILE", "PYTHONBREAKPOINT")


#: Python that has imported what takes longest, 2 s of a program's 3, and becomes each program that it is asked for.
SERVER = """\
import json, os, runpy, socket, sys
import torch, torch.fx.experimental.symbolic_shapes
assert "triton" not in sys.modules  # which reads TRITON_INTERPRET when it is imported
server = socket.socket(fileno=int(sys.argv[1]))
while True:
    connection, _ = server.accept()
    if os.fork():
        connection.close()
        continue
    program = os.fork()
    if not program:
        break
    _, status = os.waitpid(program, 0)
    connection.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))
    os._exit(0)
_, files, _, _ = socket.recv_fds(connection, 1, 3)
arguments, environment, folder = json.load(connection.makefile())
for number, file in enumerate(files):
    os.dup2(file, number)
    os.close(file)
sys.stdin, sys.stdout, sys.stderr = (open(number, mode, encoding="utf-8") for number, mode in enumerate("rww"))
os.chdir(folder)
os.environ.clear()
os.environ.update(environment)
module = arguments[0] == "-m"
sys.argv = arguments[module:]
sys.path[0] = folder if module else os.path.dirname(os.path.abspath(arguments[0]))
if module:
    runpy._run_module_as_main(arguments[1])
else:
    runpy.run_path(arguments[0], run_name="__main__")
"""
#: What is started as Python: it has the server do what it is asked for, with its own files.
CLIENT = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.path.join(os.path.dirname(__file__), "socket"))
    socket.send_fds(server, [b"f"], [0, 1, 2])
    server.sendall(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(server.recv(1)[0])
"""


def _blocks(*, on_a_gpu: bool) -> list[str]:
    return [text for gpu, text in BLOCK.findall(PAGE) if bool(gpu) == on_a_gpu]


def _first_line(block: str) -> str:
    return block.partition("\n")[0].removeprefix("$ ")


each_block = pytest.mark.parametrize("block", _blocks(on_a_gpu=False), ids=_first_line)
each_block_on_a_gpu = pytest.mark.parametrize("block", _blocks(on_a_gpu=True), ids=_first_line)


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """A folder with the examples, where a reader types: an empty cache, nothing set."""

    place: Path
    environment: dict[str, str]

    def type(self, block: str) -> str:
        """Type each command of a block; return it as the page would show it."""
        shown = []
        for line in block.splitlines():
            if line.startswith("$ "):
                typed = self._in_a_terminal(line[2:], block) if PROMPT in block else self._run(line[2:])
                shown.append(f"{line}\n{typed}")
        return "".join(shown).replace(f"{self.place}/", "")

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _in_a_terminal(self, command: str, block: str) -> str:
        """Answer each of pdb's prompts with the next line that the block has there."""
        answers = [line.removeprefix(PROMPT) for line in block.splitlines() if line.startswith(PROMPT)]
        ours, theirs = os.openpty()
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, ours)
            process = subprocess.Popen(
                ["bash", "-c", f"exec env {command}"],
                cwd=self.place,
                env=self.environment,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            os.close(theirs)
            shown = ""
            for answer in answers:
                printed = _read(ours, until=PROMPT)
                assert printed.endswith(PROMPT), shown + printed
                shown += printed
                os.write(ours, f"{answer}\n".encode())
            shown += _read(ours, until=None)
            assert process.wait(timeout=60) == 0, shown
        return shown


def _read(terminal: int, *, until: str | None) -> str:
    """Read until a prompt, or the end; what a minute does not bring does not come."""
    read = b""
    end = time.monotonic() + 60
    while until is None or not read.endswith(until.encode()):
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        try:
            chunk = os.read(terminal, 4096) if ready else b""
        except OSError:  # what Linux says where nobody is left to write
            chunk = b""
        if not chunk:
            break
        read += chunk
    return read.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for PATH, with a Python that starts at once."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "client").write_text(CLIENT, encoding="utf-8")
    for name, command in (
        ("python", f'"{sys.executable}" -IS "{folder}/client"'),
        ("flopwatch", f'"{folder}/python" -m flopwatch'),
    ):
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        listening.listen()
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(listening.fileno())],
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
        )
    yield folder
    process.kill()
    process.wait()


@pytest.fixture
def desk(tmp_path: Path, programs: Path) -> Desk:
    place = tmp_path / "flopwatch"
    shutil.copytree(EXAMPLES, place / "examples" / "debugging", ignore=shutil.ignore_patterns("__pycache__"))
    return Desk(
        place=place,
        environment={
            **{name: value for name, value in os.environ.items() if name not in SETTINGS},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "TRITON_CACHE_DIR": str(tmp_path / "cache"),
            "LC_ALL": "C.UTF-8",
            "TERM": "dumb",  # readline, plainly
            "NO_COLOR": "1",
            "PYTHON_COLORS": "0",
            "COLUMNS": "200",
        },
    )


@each_block
def test_what_is_typed_prints_what_the_page_says(desk: Desk, block: str) -> None:
    desk.environment["CUDA_VISIBLE_DEVICES"] = ""
    assert NAMES.sub("", desk.type(block)) == NAMES.sub("", block)


@pytest.mark.gpu
@each_block_on_a_gpu
def test_what_is_typed_on_a_gpu_prints_what_the_page_says(desk: Desk, block: str) -> None:
    assert NAMES.sub("", desk.type(block)) == NAMES.sub("", block)


def test_the_page_runs_every_example() -> None:
    commands = re.findall(r"^\$ .*", PAGE, re.MULTILINE)
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        name for command in commands for name in re.findall(r"examples/debugging/(\w+\.py)", command)
    }


def test_the_operations_that_the_page_shows_are_those_of_the_kernel() -> None:
    (shown,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    source = (EXAMPLES / "vector_add.py").read_text(encoding="utf-8")
    assert all(line.strip() in source for line in shown.splitlines())
    assert set(re.findall(r"tl\.(\w+)\(", shown)) == {"static_print", "static_assert", "device_print", "device_assert"}


CLAIMS = """\
import json
import torch
import triton
import triton.language as tl
from flopwatch.static import pretend_gpu
from triton.compiler.errors import CompilationError


@triton.jit
def builtins_kernel(x_ptr):
    x = tl.load(x_ptr)
    tl.static_print(tl.arange(0, 64))
    print("x", x)
    assert x == x, "a number"


@triton.jit(debug=True)
def debugging_kernel(x_ptr):
    x = tl.load(x_ptr)
    tl.device_assert(x == x, "a number")


@triton.jit
def inner(x):
    tl.static_assert(x.dtype == tl.float16, "the inner one")
    return x


@triton.jit
def outer_kernel(x_ptr):
    tl.store(x_ptr, inner(tl.load(x_ptr)))


@triton.jit
def breaking_kernel(x_ptr):
    breakpoint()


def operations(kernel, **options):
    before = set(gpu.compiled)
    kernel[(1,)](torch.ones(1, device="cuda"), **options)
    (new,) = set(gpu.compiled) - before
    text = gpu.compiled[new].asm["ttir"]
    return [name for name in ("tt.print", "tt.assert") if name in text]


def error(kernel):
    try:
        operations(kernel)
    except CompilationError as caught:
        return caught


with pretend_gpu("h200") as gpu:
    found = {
        "builtins": operations(builtins_kernel),
        "builtins, debug": operations(builtins_kernel, debug=True),
        "decorated": operations(debugging_kernel),
        "inner first": "the inner one" in str(error(outer_kernel).__cause__),
        "breakpoint": str(error(breaking_kernel)).splitlines()[-1],
        "set_interpret_mode": hasattr(triton.backends.backends["nvidia"].driver, "set_interpret_mode"),
    }
print(json.dumps(found))
"""


def test_the_installed_triton_does_what_the_page_says_in_words(desk: Desk) -> None:
    (desk.place / "claims.py").write_text(CLAIMS, encoding="utf-8")
    *printed, found = desk.type("$ python claims.py").splitlines()
    assert "int32[constexpr[64]]" in printed
    assert json.loads(found) == {
        "builtins": ["tt.print"],
        "builtins, debug": ["tt.print", "tt.assert"],
        "decorated": ["tt.assert"],
        "inner first": True,
        "breakpoint": "NameError('breakpoint is not defined')",
        "set_interpret_mode": False,
    }


def test_a_breakpoint_in_an_interpreted_kernel_stops_there(desk: Desk) -> None:
    path = desk.place / "examples" / "debugging" / "stepping.py"
    text = path.read_text(encoding="utf-8")
    line = "    mask = offsets <= n_elements\n"
    assert text.count(line) == 1
    path.write_text(text.replace(line, f"    breakpoint()\n{line}"), encoding="utf-8")
    command = "$ TRITON_INTERPRET=1 python examples/debugging/stepping.py"
    shown = desk.type(
        f"{command}\n{PROMPT}print(offsets)\n{PROMPT}continue\n{PROMPT}print(offsets)\n{PROMPT}continue\n"
    )
    assert re.findall(r"^\[.*\]$", shown, re.MULTILINE) == ["[0 1 2 3 4 5 6 7]", "[ 8  9 10 11 12 13 14 15]"]
    assert shown.endswith("changed behind the output: 1\n")
