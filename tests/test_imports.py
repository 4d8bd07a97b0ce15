from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(flopwatch.__file__).parent.parent

#: Lowest first. A module may import from its own layer and from those below; the longest name decides.
LAYERS = (
    ("errors", "units", "model", "config", "pattern", "pyproject", "selection", "waivers"),
    # Inputs are made of a suite and torch alone: the benchmark tools count their bytes as measuring does.
    ("overlay", "git", "checkout", "suite", "study.declaration", "poison", "measure.inputs", ""),
    ("kernels", "utils", "static"),
    ("measure",),
    ("stats", "report.wording"),
    ("verdict",),
    ("gate", "doctor", "compare", "bisect", "history", "scaffold", "survey"),
    ("study", "tune", "profile", "explain", "sanitize"),
    ("report", "tune.report"),
    ("asv", "record", "cli", "__main__"),
)
LAYER_OF = {f"flopwatch.{name}".rstrip("."): index for index, names in enumerate(LAYERS) for name in names}

#: What must load fast, or where torch may be missing or broken: nothing that these load may load torch.
LIGHT = (
    "__main__",
    "bisect",
    "checkout",
    "cli",
    "compare",
    "config",
    "doctor",
    "errors",
    "explain",
    "gate",
    "git",
    "history",
    "measure.client",
    "measure.fitness",
    "measure.machine",
    "measure.noise",
    "measure.nvml",
    "measure.pair",
    "measure.process",
    "measure.protocol",
    "measure.rivals",
    "model",
    "overlay",
    "pattern",
    "profile.counters",
    "profile.hatchet",
    "profile.request",
    "profile.result",
    "profile.roofline",
    "profile.run",
    "profile.timeline",
    "pyproject",
    "record",
    "report",
    "sanitize.compute_sanitizer",
    "sanitize.findings",
    "sanitize.job",
    "sanitize.llvm",
    "sanitize.looking",
    "sanitize.result",
    "sanitize.run",
    "sanitize.tools",
    "scaffold",
    "stats",
    "study",
    "suite",
    "survey",
    "tune",
    "units",
    "verdict",
    "waivers",
)
HEAVY = {"torch", "triton"}


class Imports(ast.NodeVisitor):
    """What one module imports: `anywhere`, and `at_once` when it is itself imported."""

    def __init__(self, name: str, *, is_package: bool) -> None:
        self.package = name if is_package else name.rpartition(".")[0]
        self.anywhere: set[str] = set()
        self.at_once: set[str] = set()
        self._deferred = 0

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self._deferred += 1
        self.generic_visit(node)
        self._deferred -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast calls
    visit_Lambda = visit_FunctionDef  # noqa: N815 - likewise

    def visit_If(self, node: ast.If) -> None:
        typing_only = ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        self._deferred += typing_only
        for child in node.body:
            self.visit(child)
        self._deferred -= typing_only
        for child in node.orelse:
            self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            parent = self.package.rsplit(".", node.level - 1)[0]
            module = f"{parent}.{module}".rstrip(".")
        for alias in node.names:
            self._add(f"{module}.{alias.name}")

    def _add(self, name: str) -> None:
        self.anywhere.add(name)
        if not self._deferred:
            self.at_once.add(name)


def modules(source: Path) -> dict[str, Imports]:
    """Read every module under `source`; the names it imports are narrowed to modules where they are such."""
    found: dict[str, Imports] = {}
    for path in sorted((source / "flopwatch").rglob("*.py")):
        is_package = path.stem == "__init__"
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Imports(name, is_package=is_package)
        found[name].visit(ast.parse(path.read_text(encoding="utf-8")))
    for imports in found.values():
        imports.anywhere = {_module(name, found) for name in imports.anywhere}
        imports.at_once = {_module(name, found) for name in imports.at_once}
    return found


def _module(name: str, known: dict[str, Imports]) -> str:
    """Return the module that `from module import name` loads: the name itself, or the module that has it."""
    return name if name in known or not name.startswith("flopwatch.") else name.rpartition(".")[0]


def layer(module: str) -> int:
    parts = module.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 1, -1))
    return next((LAYER_OF[prefix] for prefix in prefixes if prefix in LAYER_OF), LAYER_OF.get(module, -1))


def upward(found: dict[str, Imports]) -> list[str]:
    return sorted(
        f"{module} imports {name}"
        for module, imports in found.items()
        for name in imports.anywhere
        if name.split(".")[0] == "flopwatch" and layer(name) > layer(module)
    )


def path_to_heavy(start: str, found: dict[str, Imports]) -> list[str]:
    """Return how importing `start` comes to load torch or triton; empty where it does not."""
    queue, seen = [[start]], {start}
    for path in queue:
        for name in _loads(path[-1], found):
            if name.split(".")[0] in HEAVY:
                return [*path, name]
            if name in found and name not in seen:
                seen.add(name)
                queue.append([*path, name])
    return []


def _loads(module: str, found: dict[str, Imports]) -> Iterator[str]:
    """Yield what importing a module loads: its packages first, then what it imports at once."""
    parts = module.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts)))
    yield from sorted(found[module].at_once)


def plant(folder: Path, files: dict[str, str]) -> dict[str, Imports]:
    """Write a small flopwatch and read its imports."""
    for name, text in {"__init__.py": "", **files}.items():
        path = folder / "flopwatch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return modules(folder)


@pytest.fixture(scope="module")
def found() -> dict[str, Imports]:
    return modules(SOURCE)


def test_every_module_has_a_layer(found: dict[str, Imports]) -> None:
    assert [module for module in found if layer(module) < 0] == []


def test_imports_point_one_way(found: dict[str, Imports]) -> None:
    assert upward(found) == []


@pytest.mark.parametrize("name", LIGHT)
def test_loads_neither_torch_nor_triton(name: str, found: dict[str, Imports]) -> None:
    start = [module for module in found if module == f"flopwatch.{name}" or module.startswith(f"flopwatch.{name}.")]

    assert start != []
    assert [path for module in start if (path := path_to_heavy(module, found))] == []


def test_the_graph_has_the_imports_that_are_there(found: dict[str, Imports]) -> None:
    assert "flopwatch.suite" in found["flopwatch"].at_once
    assert "torch" in found["flopwatch.suite"].anywhere - found["flopwatch.suite"].at_once
    assert "flopwatch.git" in found["flopwatch.gate.run"].at_once
    assert path_to_heavy("flopwatch.utils.gpu", found)


@pytest.mark.parametrize(
    "text",
    [
        "from flopwatch.gate import run_gate",
        "from flopwatch import gate",
        "import flopwatch.gate",
        "from . import gate",
        "def late():\n    from flopwatch.gate import run_gate",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from flopwatch.gate import GateResult",
    ],
)
def test_an_upward_import_is_caught(text: str, tmp_path: Path) -> None:
    found = plant(tmp_path, {"stats.py": text, "gate.py": ""})

    assert upward(found) == ["flopwatch.stats imports flopwatch.gate"]


def test_a_relative_import_from_a_package_is_resolved(tmp_path: Path) -> None:
    found = plant(tmp_path, {"measure/__init__.py": "from ..gate import run_gate", "gate.py": ""})

    assert upward(found) == ["flopwatch.measure imports flopwatch.gate"]


def test_torch_behind_another_module_is_caught(tmp_path: Path) -> None:
    found = plant(
        tmp_path,
        {
            "cli.py": "from flopwatch.static.devices import X",
            "static/devices.py": "",
            "static/__init__.py": "import torch",
        },
    )

    assert path_to_heavy("flopwatch.cli", found) == [
        "flopwatch.cli",
        "flopwatch.static.devices",
        "flopwatch.static",
        "torch",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "def late():\n    import torch",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
    ],
)
def test_torch_that_waits_is_no_load(text: str, tmp_path: Path) -> None:
    assert path_to_heavy("flopwatch.cli", plant(tmp_path, {"cli.py": text})) == []


def test_torch_in_the_other_branch_of_a_typing_test_is_a_load(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nelse:\n    import triton"

    assert path_to_heavy("flopwatch.cli", plant(tmp_path, {"cli.py": text})) == ["flopwatch.cli", "triton"]
