from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = "import triton\n{}\n@triton.jit\ndef kernel(x, n: triton.language.constexpr):\n    {}\n"
PROGRAM = """\
import importlib, sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "ignored":
    from flopwatch.measure.tuning import ignore_line_numbers
    ignore_line_numbers()
print(*(importlib.import_module(name).kernel.cache_key for name in ("plain", "moved", "edited")), sep="\\n")
"""


def keys(folder: Path, how: str) -> list[str]:
    # In a child, because this process may interpret kernels, which then have no key.
    (folder / "plain.py").write_text(KERNEL.format("", "pass"), encoding="utf-8")
    (folder / "moved.py").write_text(KERNEL.format("# a comment\n", "pass"), encoding="utf-8")
    (folder / "edited.py").write_text(KERNEL.format("", "x + n"), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", PROGRAM, str(folder), how]
    return subprocess.check_output(command, env=environment, text=True).split()


def test_a_comment_above_a_kernel_does_not_change_its_key(tmp_path: Path) -> None:
    plain, moved, edited = keys(tmp_path, "ignored")
    assert plain == moved
    assert plain != edited


def test_it_would_change_it_otherwise(tmp_path: Path) -> None:
    plain, moved, _ = keys(tmp_path, "kept")
    assert plain != moved
