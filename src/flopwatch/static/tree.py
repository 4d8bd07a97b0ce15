"""The code under test as it lies in a checkout, without what changes nothing: comments, docstrings and line numbers."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)


def tree_identity(source: Path, packages: Sequence[str]) -> str:
    """Hash everything that the packages under test consist of, names relative to `source`.

    Python files count by their syntax, so that comments, docstrings, formatting and line numbers do not; a file that
    does not parse, and any other file, counts by its bytes. Two checkouts with the same identity run every case alike:
    nothing needs to be compiled to know it. Both must be hashed by the same Python, for syntax trees change.

    Code that reads its own text, such as ``inspect.getsource`` or ``__doc__``, can tell apart what this cannot. Triton
    hashes the text of kernels for its cache, and compiles both texts to the same code.

    Args:
        source: the folder that holds the packages.
        packages: their dotted names.
    """
    digest = hashlib.sha256()
    for package in sorted(packages):
        for path in package_files(source, package):
            content = path.read_bytes()
            digest.update(repr((package, path.relative_to(source).as_posix(), _meaning(path, content))).encode())
    return digest.hexdigest()[:16]


def package_files(source: Path, package: str) -> Iterator[Path]:
    """Yield every file of a package, or of a module that is one file or one library, sorted; no compiled caches."""
    place = source.joinpath(*package.split("."))
    found = [path for path in place.parent.glob(f"{place.name}.*") if path.is_file()]
    for folder, folders, names in os.walk(place):
        folders[:] = [name for name in folders if name != "__pycache__"]
        # Links that lead nowhere are left by editors while a file is open.
        found += [path for name in names if (path := Path(folder, name)).exists()]
        # A link to a folder is followed once, for links may go in circles.
        links = [Path(folder, name) for name in folders if Path(folder, name).is_symlink()]
        found += [path for link in links for path in link.rglob("*") if path.is_file()]
    yield from sorted(found)


def _meaning(path: Path, content: bytes) -> str:
    if path.suffix == ".py":
        try:
            return ast.dump(_without_strings(ast.parse(content)))
        except (SyntaxError, ValueError, RecursionError):
            pass
    return hashlib.sha256(content).hexdigest()


def _without_strings(tree: ast.Module) -> ast.Module:
    """Take out every statement that is only a string: docstrings, and what documents attributes."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(node, field, [statement for statement in statements if not _is_string(statement)])
    return tree


def _is_string(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def import_effects(content: bytes) -> str:
    """Return what importing a module does beside giving names to things, as text.

    ``torch.backends.cudnn.benchmark = True`` in any module under test changes what every case runs, though no function
    refers to it. So does loading a package from elsewhere, of which the names are told.

    >>> import_effects(b"import torch; LIMIT = 3")
    "['torch']"
    >>> import_effects(b"torch.set_num_threads(1)")[:20]
    '[] Expr(value=Call(f'
    """
    tree = _without_strings(ast.parse(content))
    effects = [ast.dump(statement) for statement in tree.body if not _only_defines(statement)]
    return " ".join([str(sorted(_foreign_imports(tree))), *effects])


def package_roots(packages: Sequence[str]) -> dict[str, Path]:
    """Return, for each package that is loaded, the folder from which its dotted name leads to it."""
    roots = {}
    for package in packages:
        module = sys.modules.get(package)
        places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None)]
        if places[0]:
            roots[package] = Path(places[0]).parents[package.count(".")]
    return roots


def loaded_effects(packages: Sequence[str]) -> list[str]:
    """Return what loading the modules under test did beside defining, and the files that they may read.

    Files other than Python's count whole: which of them a module reads, and when, is not known.
    """
    effects = []
    for package, root in package_roots(packages).items():
        for path in package_files(root, package):
            name = path.relative_to(root).as_posix()
            if path.suffix != ".py":
                effects.append(f"{name} {_file_hash(path)}")
            elif name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") in sys.modules:
                effects.append(f"{name} {_file_effects(path)}")
    return effects


@functools.cache  # a worker's checkout does not change while it lives
def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@functools.cache
def _file_effects(path: Path) -> str:
    return import_effects(path.read_bytes())


def _only_defines(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=targets):
            return all(_is_name(target) for target in targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return _is_name(target)
        case ast.If() | ast.Try():
            handlers = statement.handlers if isinstance(statement, ast.Try) else []
            blocks = [statement.body, statement.orelse, getattr(statement, "finalbody", [])]
            blocks += [handler.body for handler in handlers]
            return all(_only_defines(inner) for block in blocks for inner in block)
    return isinstance(statement, _DEFINING)


def _is_name(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(_is_name(element) for element in target.elts)
    return isinstance(target, ast.Name)


def _foreign_imports(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    return {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
