from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.checkout import checkout
from flopwatch.config import Config

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

CONFIG = Config(packages=("toykernels",), source="src")


def test_a_commit_is_checked_out_whole(toy: ToyRepository) -> None:
    commit = toy.git("rev-parse", "HEAD").strip()
    toy.edit("mask=mask) * factor", "mask=mask) * factor  ")
    with checkout(commit, CONFIG, root=toy.root) as tree:
        assert "mask=mask) * factor, mask" in (tree / "src/toykernels/__init__.py").read_text(encoding="utf-8")
        assert (tree / "pyproject.toml").exists()
    assert not tree.exists()


def test_the_working_tree_is_copied_as_it_is_with_what_git_does_not_know(toy: ToyRepository) -> None:
    toy.edit("mask=mask) * factor", "mask=mask) * factor  ")
    extension = toy.kernel.with_name("compiled.so")
    extension.write_bytes(b"\x7fELF")
    with checkout(None, CONFIG, root=toy.root) as tree:
        toy.kernel.write_text("edited meanwhile", encoding="utf-8")
        assert "mask=mask) * factor  ," in (tree / "src/toykernels/__init__.py").read_text(encoding="utf-8")
        assert (tree / "src/toykernels/compiled.so").exists()
        assert (tree / "benchmarks/scale.py").exists()
    assert not tree.exists()


def test_a_package_that_is_a_single_module_is_copied_too(toy: ToyRepository) -> None:
    (toy.root / "src" / "single.py").write_text("X = 1\n", encoding="utf-8")
    with checkout(None, Config(packages=("single",), source="src"), root=toy.root) as tree:
        assert (tree / "src/single.py").exists()


@pytest.mark.parametrize("commit", ["HEAD", None])
def test_names_do_not_tell_the_sides_apart(toy: ToyRepository, commit: str | None) -> None:
    with checkout("HEAD", CONFIG, root=toy.root) as one, checkout(commit, CONFIG, root=toy.root) as other:
        assert one != other
        assert len(str(one)) == len(str(other))
        assert not {"base", "head"} & {one.name, other.name}
