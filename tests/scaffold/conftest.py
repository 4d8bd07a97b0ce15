"""Little repositories of strangers."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
ADD_KERNEL = """\
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


"""
ADD = f"""{HEAD}{ADD_KERNEL}\
def add(x: torch.Tensor, y: torch.Tensor):
    out = torch.empty_like(x)
    n_elements = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n_elements, meta["BLOCK"]),)](x, y, out, n_elements, BLOCK=256)
    return out
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stranger:
    """A repository that flopwatch has never seen."""

    root: Path

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        return subprocess.check_output(["git", *identity, *arguments], cwd=self.root, text=True)

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def edit(self, path: str, old: str, new: str) -> None:
        """Change a file; the edit must apply, or the test would test nothing."""
        text = (self.root / path).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (self.root / path).write_text(text.replace(old, new), encoding="utf-8")

    def contents(self) -> dict[str, bytes]:
        """Return every file but git's own."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(self.root).parts[:1]
        }


@pytest.fixture
def stranger(tmp_path: Path) -> Callable[[Mapping[str, str]], Stranger]:
    """Make a repository of files, with one commit on main."""

    def make(files: Mapping[str, str]) -> Stranger:
        repository = Stranger(root=tmp_path / "stranger")
        for path, text in files.items():
            place = repository.root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        repository.git("init", "-q", "-b", "main")
        repository.commit("kernels")
        return repository

    return make
