from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from flopwatch import overlay
from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def package(tree: Path, marker: str) -> Path:
    folder = tree / "src" / "probed"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f"MARKER = {marker!r}\n", encoding="utf-8")
    (folder / "inner.py").write_text(f"MARKER = {marker!r}\n", encoding="utf-8")
    return tree


def run(script: str, tree: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script with `tree` under test and another copy of the package first on PYTHONPATH."""
    program = tree.parent / "program.py"
    program.write_text(script, encoding="utf-8")
    paths = [str(path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        **overlay.environment(tree, "src", ["probed"]),
    }
    return subprocess.run(
        [sys.executable, "-m", "flopwatch.overlay", str(program), "argument"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_checkout_wins_over_whatever_is_on_the_path(tmp_path: Path) -> None:
    tree, other = package(tmp_path / "tree", "checkout"), package(tmp_path / "other", "installed")
    script = "import sys, probed, probed.inner; print(probed.MARKER, probed.inner.MARKER, sys.argv[1:])"
    assert run(script, tree, other / "src").stdout == "checkout checkout ['argument']\n"


def test_a_module_missing_in_the_checkout_is_missing(tmp_path: Path) -> None:
    tree, other = package(tmp_path / "tree", "checkout"), package(tmp_path / "other", "installed")
    (tree / "src" / "probed" / "inner.py").unlink()
    done = run("import probed.inner", tree, other / "src")
    assert "ModuleNotFoundError: No module named 'probed.inner' in the checkout" in done.stderr


def test_only_the_named_packages_come_from_the_checkout(tmp_path: Path) -> None:
    tree = package(tmp_path / "tree", "checkout")
    (tree / "src" / "json.py").write_text("raise AssertionError", encoding="utf-8")
    assert run("import json; print(json.dumps(1))", tree, tmp_path).stdout == "1\n"


def test_a_package_imported_too_early_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pytest imported before"):
        overlay.install(tmp_path, ["pytest"])


def test_a_module_that_slipped_in_from_elsewhere_is_found(tmp_path: Path) -> None:
    finder = overlay.CheckoutFinder(tmp_path, ["pytest"])
    assert "pytest" in overlay.foreign_modules(finder)


def test_without_variables_nothing_is_installed() -> None:
    assert overlay.install_from({}) is None
