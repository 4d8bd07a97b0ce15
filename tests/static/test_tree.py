from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol

import pytest

from flopwatch.static.tree import import_effects, package_files, tree_identity

if TYPE_CHECKING:
    from pathlib import Path

    class Toy(Protocol):
        @property
        def root(self) -> Path: ...
        @property
        def kernel(self) -> Path: ...
        def edit(self, old: str, new: str) -> None: ...


def identity(toy: Toy) -> str:
    return tree_identity(toy.root / "src", ["toykernels"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    mask = offsets < n\n", "    # Not full.\n\n    mask = offsets < n  # n\n"),
        ('"""A kernel of somebody else\'s."""', '"""Mine."""'),
        ('"""A kernel of somebody else\'s."""\n', ""),
        ("def scale(x, factor):\n", 'def scale(x, factor):\n    """Scale."""\n'),
        ("def scale(x, factor):\n", "def scale(\n    x,\n    factor,\n):\n"),
    ],
)
def test_what_changes_nothing_leaves_the_tree_the_same(old: str, new: str, toy: Toy) -> None:
    before = identity(toy)
    toy.edit(old, new)
    assert before == identity(toy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mask=mask) * factor", "mask=mask) + factor"),
        ("num_warps=4", "num_warps=8"),
        ("num_warps=4", "num_warps=4.0"),
        ("def scale(x, factor)", "def scale(x, factor=2.0)"),
        ("def scale(", "def unrelated():\n    pass\n\n\ndef scale("),
        ("import torch\n", "import torch\n\nDOC = 'a text that is used'\n"),
    ],
)
def test_code_that_differs_makes_another_tree(old: str, new: str, toy: Toy) -> None:
    before = identity(toy)
    toy.edit(old, new)
    assert before != identity(toy)


def test_the_folder_of_a_checkout_does_not_matter(toy: Toy, tmp_path: Path) -> None:
    shutil.copytree(toy.root, tmp_path / "elsewhere")
    assert identity(toy) == tree_identity(tmp_path / "elsewhere" / "src", ["toykernels"])


def test_compiled_caches_and_other_packages_do_not_count(toy: Toy) -> None:
    before = identity(toy)
    for folder in (toy.kernel.parent / "__pycache__", toy.root / "src" / "toykernels_old"):
        folder.mkdir()
        (folder / "x.py").write_text("1")
    assert before == identity(toy)


@pytest.mark.parametrize(("name", "content"), [("table.json", b"{ }"), ("broken.py", b"def"), ("zero.py", b"a\0")])
def test_other_files_count_by_their_bytes(name: str, content: bytes, toy: Toy) -> None:
    path = toy.kernel.parent / name
    seen = {identity(toy)}
    for bytes_of_it in (content, content + b"\n"):
        path.write_bytes(bytes_of_it)
        seen.add(identity(toy))
    path.rename(path.with_name(f"other_{name}"))
    seen.add(identity(toy))
    assert len(seen) == 4


def test_modules_of_one_file_libraries_and_linked_folders_count(tmp_path: Path) -> None:
    for name in ("kernels.py", "kernels.cpython-311.so", "kernelsmith.py", "outside/deep.cu", "kernels/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "kernels" / "linked").symlink_to(tmp_path / "outside")
    found = [path.relative_to(tmp_path).as_posix() for path in package_files(tmp_path, "kernels")]
    assert found == ["kernels/a.py", "kernels/linked/deep.cu", "kernels.cpython-311.so", "kernels.py"]


@pytest.mark.parametrize(
    "text",
    [
        "torch.set_num_threads(1)",
        "torch.backends.cudnn.benchmark = True",
        "REGISTRY['x'] = 1",
        "a, torch.x = 1, 2",
        "if True:\n    torch.set_num_threads(1)",
        "try:\n    import y\nexcept ImportError:\n    patch()",
        "with switched():\n    X = 1",
        "for name in NAMES:\n    X = name",
        "del sys.path[0]",
        "def late():\n    import other",
    ],
)
def test_what_an_import_does_is_an_effect(text: str) -> None:
    assert import_effects(b"") != import_effects(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        '"""Documented."""',
        "X = 3\n'what X is'",
        "a, (b, c) = 1, (2, 3)",
        "X: int = compute()",
        "import math",
        "from . import near",
        "def f():\n    torch.set_num_threads(1)",
        "class C:\n    x = 1",
        "try:\n    X = 1\nexcept ImportError:\n    X = 2",
        "if X:\n    Y = 1\nelse:\n    def f(): pass",
    ],
)
def test_what_only_defines_is_no_effect(text: str) -> None:
    assert import_effects(b"") == import_effects(text.encode())


def test_a_link_that_leads_nowhere_is_left_out(toy: Toy) -> None:
    before = identity(toy)
    toy.kernel.with_name(".#open-in-an-editor.py").symlink_to("nobody@nowhere.1:2")
    assert identity(toy) == before
