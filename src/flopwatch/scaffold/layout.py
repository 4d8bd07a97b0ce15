"""How a repository is laid out: where its packages are imported from, and which of its files may hold kernels."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from flopwatch import git
from flopwatch.errors import GitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flopwatch.config import Config

#: Folders whose Python is about the kernels, and not the kernels.
_OTHER = frozenset(
    [
        "asv_bench",
        "bench",
        "benchmark",
        "benchmarks",
        "build",
        "ci",
        "demo",
        "demos",
        "dist",
        "doc",
        "docs",
        "example",
        "examples",
        "experiments",
        "notebooks",
        "profiling",
        "scripts",
        "suites",
        "test",
        "tests",
        "third_party",
        "thirdparty",
        "tools",
        "tutorials",
        "vendor",
    ]
)
_NO_PACKAGES = frozenset({"setup.py", "noxfile.py", "conftest.py", "conf.py", "tasks.py", "fabfile.py"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Where things are.

    Attributes:
        source: the folder that packages are imported from, relative to the root; "" is the root.
        packages: the code under test: top-level packages or modules below `source`.
        main: the branch that changes are compared with.
        installable: whether pip can install the repository.
        url: its page on a forge; "" where the remote tells none.
    """

    source: str
    packages: tuple[str, ...]
    main: str = "main"
    installable: bool = False
    url: str = ""

    def module_of(self, path: str) -> str:
        """Return the name that a file is imported by.

        >>> Layout(source="src", packages=("mykernels",)).module_of("src/mykernels/ops/__init__.py")
        'mykernels.ops'
        """
        parts = PurePosixPath(path).relative_to(self.source).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def holds(self, path: str) -> bool:
        """Tell whether a file is part of the code under test."""
        if not PurePosixPath(path).is_relative_to(self.source):
            return False
        module = self.module_of(path)
        return any(module == package or module.startswith(f"{package}.") for package in self.packages)


def python_files(root: Path) -> tuple[str, ...]:
    """Return the Python files that git knows or would add and that may be part of a package, in their order."""
    listed = git.git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py", cwd=root)
    return tuple(sorted({path for path in listed.split("\0") if path and _may_be_package(path, root)}))


def _may_be_package(path: str, root: Path) -> bool:
    parts = PurePosixPath(path).parts
    folders = parts[:-1]
    name = parts[-1]
    if any(folder.lower() in _OTHER or folder.startswith(".") for folder in folders):
        return False
    if name in _NO_PACKAGES or name.startswith("test_") or name.endswith("_test.py"):
        return False
    return all(part.isidentifier() for part in (*folders[1:], name[:-3])) and (root / path).is_file()


def find_layout(root: Path, files: Sequence[str], kernel_files: Sequence[str], *, config: Config | None) -> Layout:
    """Find out where packages are.

    Args:
        root: the repository.
        files: its Python files.
        kernel_files: those with kernels; without any, all files count.
        config: its settings, where it has some; these count.

    Raises:
        UsageError: there is no package.
    """
    if config is not None:
        source, packages, main = config.source, config.packages, config.main
    else:
        source, packages = _packages(root, kernel_files or files)
        main = _main_branch(root)
    return Layout(
        source=source,
        packages=packages,
        main=main,
        installable=any((root / name).is_file() for name in ("setup.py", "setup.cfg")) or _has_project(root),
        url=_page(root),
    )


def _packages(root: Path, files: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return the folder that most files are imported from, and the top-level names of those."""
    tops = [_top(root, path) for path in files]
    if not tops:
        raise UsageError(
            "there is no Python package in this repository",
            why="no Python file was found outside of tests, docs, benchmarks and the like; git must know the files,"
            " or not ignore them",
            todo="write [tool.flopwatch] into pyproject.toml, with packages and source; then run flopwatch init again",
        )
    # Of two folders with as many, a source folder is meant for it, and then the first.
    counts = Counter(source for source, _ in tops)
    source = min(counts, key=lambda name: (-counts[name], name != "src", name))
    return source, tuple(sorted({package for where, package in tops if where == source}))


def _top(root: Path, path: str) -> tuple[str, str]:
    """Return the folder that a file's package is imported from, and the package's name.

    A package's folders have an ``__init__.py``; below ``src`` they need none.
    """
    file = PurePosixPath(path)
    if file.parts[0] == "src" and len(file.parts) > 1:
        return "src", file.parts[1].removesuffix(".py")
    folder = file.parent
    name = file.stem
    while folder.parts and (root / folder / "__init__.py").is_file():
        name, folder = folder.name, folder.parent
    return ("" if folder == PurePosixPath(".") else str(folder)), name


def _main_branch(root: Path) -> str:
    """Return the remote's branch, else main or master, else the one that is checked out."""
    with contextlib.suppress(GitError):
        return git.git("symbolic-ref", "--short", "refs/remotes/origin/HEAD", cwd=root).removeprefix("origin/")
    for name in ("main", "master"):
        with contextlib.suppress(GitError):
            git.resolve(name, cwd=root)
            return name
    with contextlib.suppress(GitError):
        return git.git("symbolic-ref", "--short", "HEAD", cwd=root)
    return "main"


def _has_project(root: Path) -> bool:
    import tomllib  # noqa: PLC0415 - of this function alone

    path = root / "pyproject.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
    return "project" in table or "build-system" in table


def _page(root: Path) -> str:
    """Return the page of the remote, as its clone URL tells it, without what may be a password in it."""
    try:
        remote = git.git("remote", "get-url", "origin", cwd=root)
    except GitError:
        return ""
    address = remote.removesuffix("/").removesuffix(".git")
    if address.startswith("git@"):
        host, _, path = address.removeprefix("git@").partition(":")
    elif "://" in address and not address.startswith("file:"):
        host, _, path = address.partition("://")[2].rpartition("@")[2].partition("/")
    else:
        return ""
    return f"https://{host}/{path}" if host and path else ""
