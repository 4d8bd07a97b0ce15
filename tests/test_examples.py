from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from flopwatch import Suite
from flopwatch.static import pretend_gpu

EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
PARTS = {"inputs", "run", "reference", "flops", "bytes_moved"}
each_example = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def _imported(path: Path) -> set[str]:
    """Return the modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                names.add(module)
    return names


def _project(path: Path) -> str:
    """Return the package whose kernels the suites are of."""
    (name,) = {module.partition(".")[0] for module in _imported(path)} - {"torch", "flopwatch"}
    return name


def _is_installed(module: str) -> bool:
    """Tell whether a module is there; another project may have its package's name, as `flopwatch-names` has one's."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _table() -> dict[str, str]:
    """Return the file of each row of the README's table, and its setting `packages`."""
    rows = re.findall(r"^\| \[(\S+\.py)\]\(\1\) .*\| `(\w+)` \| `\"\S*\"` \|$", _readme(), re.MULTILINE)
    return dict(rows)


def _readme() -> str:
    return (EXAMPLES / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_every_example_with_the_package_that_it_imports() -> None:
    assert _table() == {path.name: _project(path) for path in FILES}


@each_example
def test_an_example_declares_whole_suites(path: Path) -> None:
    classes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    whole = [node for node in classes if [ast.unparse(base) for base in node.bases] == ["Suite"]]
    assert whole
    for node in whole:
        assert {item.name for item in node.body if isinstance(item, ast.FunctionDef)} == PARTS


@pytest.mark.filterwarnings("ignore")  # they are the projects' own
@each_example
def test_the_suites_of_an_example_make_inputs_where_its_project_is_installed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = _project(path)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # FlagGems cannot be imported with it
    with pretend_gpu("h200", tensors="cpu"):  # some look for a GPU when they are imported
        installed = all(map(_is_installed, _imported(path)))
    if not installed:
        pytest.skip(f"{project} is not installed; examples/README.md says where it is from")
    name = f"flopwatch_example_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    with pretend_gpu("h200", tensors="cpu"):
        spec.loader.exec_module(module)
        found = [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Suite) and value is not Suite
        ]
        assert found
        for suite in (value() for value in found):
            chosen = [
                suite.small.get(name, known[0]) for name, known in zip(suite.param_names, suite.params, strict=True)
            ]
            values = chosen[:-1]  # without the provider
            assert suite.inputs(*values, seed=0)
            assert suite.flops(*values) > 0
            assert suite.bytes_moved(*values) > 0
