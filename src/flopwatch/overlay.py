"""Import the code under test from a chosen checkout, whatever else is installed.

Both sides of a comparison run the same suites and the same flopwatch; only the packages named in
``[tool.flopwatch] packages`` come from the side's own checkout. A finder at the head of ``sys.meta_path`` takes those
names, and nothing else, from there: an editable install or a stray PYTHONPATH cannot put the wrong code under test.

``python -m flopwatch.overlay SCRIPT [ARGS...]`` runs a program that way; the checkout is named by the environment
(`TREE_VARIABLE`, `SOURCE_VARIABLE`, `PACKAGES_VARIABLE`).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

TREE_VARIABLE = "FLOPWATCH_TREE"
SOURCE_VARIABLE = "FLOPWATCH_SOURCE"
PACKAGES_VARIABLE = "FLOPWATCH_PACKAGES"


class CheckoutFinder(importlib.abc.MetaPathFinder):
    """Find `packages` and everything below them under `source`, and nowhere else."""

    def __init__(self, source: Path, packages: Sequence[str]) -> None:
        self.source = source
        self.packages = tuple(packages)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's; the parent's own path is what we override
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the checkout's module of that name, or None for names that are not under test.

        Raises:
            ModuleNotFoundError: the name is under test and the checkout does not have it.
        """
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in self.packages):
            return None
        folder = self.source.joinpath(*fullname.split(".")[:-1])
        spec = importlib.machinery.PathFinder.find_spec(fullname, [str(folder)], target)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {fullname!r} in the checkout {self.source}", name=fullname)
        return spec


def install(source: Path, packages: Sequence[str]) -> CheckoutFinder:
    """Take `packages` from `source` from now on.

    Raises:
        UsageError: one of them was imported before, so that the code already loaded would be measured.
    """
    early = [name for name in packages if name in sys.modules]
    if early:
        raise UsageError(
            f"{', '.join(early)} imported before the checkout was chosen",
            why="the module already in memory would be measured instead of the checkout's",
            todo="start a fresh interpreter",
        )
    finder = CheckoutFinder(source, packages)
    sys.meta_path.insert(0, finder)
    importlib.invalidate_caches()
    return finder


def environment(tree: Path, source: str, packages: Sequence[str]) -> dict[str, str]:
    """Return the variables that tell a child process which checkout to use.

    >>> environment(Path("/tree"), "src", ["pkg.kernels", "pkg.ops"])["FLOPWATCH_PACKAGES"]
    'pkg.kernels,pkg.ops'
    """
    return {TREE_VARIABLE: str(tree), SOURCE_VARIABLE: source, PACKAGES_VARIABLE: ",".join(packages)}


def install_from(variables: Mapping[str, str]) -> CheckoutFinder | None:
    """Install the overlay that the environment names, if it names one."""
    tree = variables.get(TREE_VARIABLE)
    if tree is None:
        return None
    packages = [name for name in variables.get(PACKAGES_VARIABLE, "").split(",") if name]
    return install(Path(tree) / variables.get(SOURCE_VARIABLE, ""), packages)


def foreign_modules(finder: CheckoutFinder) -> list[str]:
    """Return the modules under test that were nevertheless loaded from elsewhere; empty is what must be."""
    root = str(finder.source.resolve()) + os.sep
    return sorted(
        name
        for name, module in sys.modules.items()
        if any(name == package or name.startswith(f"{package}.") for package in finder.packages)
        and (file := getattr(module, "__file__", None)) is not None
        and not str(Path(file).resolve()).startswith(root)
    )


def main() -> None:
    """Run ``sys.argv[1]`` as the main program, with the overlay of the environment installed."""
    install_from(os.environ)
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
