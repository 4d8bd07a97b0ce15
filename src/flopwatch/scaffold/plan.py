"""From a repository to the files to write: each step is a function of what those before it found."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from flopwatch import git
from flopwatch.errors import GitError
from flopwatch.scaffold.files import Action, PlannedFile, plan_file
from flopwatch.scaffold.kernels import Kernel, Launcher, find_launchers, read_module
from flopwatch.scaffold.layout import Layout, find_layout, python_files
from flopwatch.scaffold.requirement import requirement
from flopwatch.scaffold.settings import read_settings, settings_block, with_settings
from flopwatch.scaffold.suite_text import suite_module, template_module
from flopwatch.scaffold.trial import Outcome, find_suite
from flopwatch.scaffold.workflows import HOSTED, plan_workflows, template, workflow_todo

if TYPE_CHECKING:
    from collections.abc import Callable

    from flopwatch.config import Config

#: Where suites go if `benchmarks` has programs that are none: the gate imports all that is in the folder.
_OWN_FOLDER = "flopwatch_suites"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaffold:
    """What was found, and what is to be written.

    Attributes:
        root: the repository.
        layout: where its packages are.
        kernels: those of the code under test.
        launchers: the functions that launch them.
        outcome: what became of the first suite; None where there are suites already.
        files: what becomes of each file.
        todo: what is left to somebody.
    """

    root: Path
    layout: Layout
    kernels: tuple[Kernel, ...]
    launchers: tuple[Launcher, ...]
    outcome: Outcome | None
    files: tuple[PlannedFile, ...]
    todo: tuple[str, ...]


def plan_scaffold(folder: Path, *, gpu_runner: str = "", observe: Callable[[str], None] = lambda _: None) -> Scaffold:
    """Look at the repository that holds `folder`, and plan what to write; nothing is written.

    Args:
        folder: in the repository.
        gpu_runner: the label of a self-hosted runner with a GPU, for workflows that run on it; "" for none.
        observe: is told what is being done.

    Raises:
        FlopwatchError: there is no repository or package, or its settings are wrong.
    """
    root = _root(folder)
    config = read_settings(root)
    observe("reading the sources")
    paths = python_files(root)
    modules = {path: module for path in paths if (module := read_module(path, (root / path).read_bytes()))}
    with_kernels = [path for path, module in modules.items() if module.kernels]
    layout = find_layout(root, paths, with_kernels, config=config)
    modules = {path: module for path, module in modules.items() if layout.holds(path)}
    kernels = tuple(kernel for module in modules.values() for kernel in module.kernels)
    launchers = find_launchers(tuple(modules.values()))
    benchmarks = config.benchmarks if config else _benchmarks_folder(root)
    suites = _suites(root / benchmarks)
    outcome = None
    if not suites:
        observe("trying to call the kernels, which takes half a minute or so")
        outcome = find_suite(launchers, modules, {kernel.name: kernel for kernel in kernels}, layout, root=root)
    suite = (
        _suite_files(root, benchmarks, outcome, layout, kernels)
        if outcome
        else [
            PlannedFile(path=f"{benchmarks}/{name}", action=Action.KEEP, why="it has to do with flopwatch")
            for name in suites
        ]
    )
    files = (
        *suite,
        _settings_file(root, layout, benchmarks, config),
        *_machinery(root, layout, benchmarks, gpu_runner),
    )
    return Scaffold(
        root=root,
        layout=layout,
        kernels=kernels,
        launchers=launchers,
        outcome=outcome,
        files=files,
        todo=(*_todo(root, layout, files, outcome, launchers), *workflow_todo(files, layout, gpu_runner)),
    )


def _root(folder: Path) -> Path:
    try:
        return git.repository_root(folder)
    except GitError as error:
        if "no git repository" not in error.what:
            raise
        todo = "git init, commit your kernels, and run flopwatch init again; nothing was written"
        raise GitError(error.what, why=error.why, todo=todo) from None


def _benchmarks_folder(root: Path) -> str:
    """Return asv's folder where it is in use, else `benchmarks`, unless that has programs of another kind."""
    if (root / "asv.conf.json").is_file():
        return _asv_folder(root, "benchmark_dir", default="benchmarks")
    folder = root / "benchmarks"
    if not _has_modules(folder) or _suites(folder):
        return "benchmarks"
    return _OWN_FOLDER


def _asv_folder(root: Path, key: str, *, default: str) -> str:
    """Return a folder that asv.conf.json, which may have comments, names."""
    text = (root / "asv.conf.json").read_text(encoding="utf-8", errors="replace")
    named = re.search(rf'^\s*"{key}"\s*:\s*"([\w./-]+)"', text, re.MULTILINE)
    return str(PurePosixPath(named[1])) if named else default


def _has_modules(folder: Path) -> bool:
    """Tell whether a folder has Python files that do something."""
    return any(path.stat().st_size for path in folder.glob("*.py"))


def _suites(folder: Path) -> tuple[str, ...]:
    """Return the files of a folder that have to do with flopwatch."""
    return tuple(
        path.name
        for path in sorted(folder.glob("*.py"))
        if path.name != "__init__.py" and b"flopwatch" in path.read_bytes()
    )


def _suite_files(
    root: Path, benchmarks: str, outcome: Outcome, layout: Layout, kernels: tuple[Kernel, ...]
) -> list[PlannedFile]:
    launcher = outcome.launcher
    name = (launcher.name.strip("_") if launcher else "") or "first"
    if outcome.plan is not None:
        text = suite_module(outcome.plan)
    elif launcher is not None:
        text = template_module(outcome.reasons, module=layout.module_of(launcher.path), function=launcher.name)
    else:
        text = template_module([_no_launcher(kernels)], module=layout.packages[0])
    package = f"{benchmarks}/__init__.py"
    files = [plan_file(root, f"{benchmarks}/{name}.py", text, by_hand=text)]
    if not (root / package).exists():
        files.insert(0, plan_file(root, package, '"""The suites: one declaration a kernel, by `flopwatch`."""\n'))
    return files


def _no_launcher(kernels: tuple[Kernel, ...]) -> str:
    if not kernels:
        return "no function with @triton.jit was found in the packages"
    places = ", ".join(f"{kernel.name} ({kernel.path}:{kernel.line})" for kernel in kernels[:5])
    return f"no Python function of the packages launches a kernel; there are {places}"


def _settings_file(root: Path, layout: Layout, benchmarks: str, config: Config | None) -> PlannedFile:
    path = root / "pyproject.toml"
    if config is not None:
        return PlannedFile(path="pyproject.toml", action=Action.KEEP, why="it has [tool.flopwatch]")
    block = settings_block(layout, benchmarks)
    if not path.exists():
        return PlannedFile(path="pyproject.toml", action=Action.CREATE, data=block.encode(), text=block)
    data = with_settings(path.read_bytes(), block)
    return PlannedFile(path="pyproject.toml", action=Action.APPEND, data=data, text=block)


def _machinery(root: Path, layout: Layout, benchmarks: str, gpu_runner: str) -> list[PlannedFile]:
    """Plan what is the same for all repositories but for names."""
    install = (["--editable", "."] if layout.installable else []) + [requirement("history")]
    noxfile = template("noxfile.py.txt").replace("@REQUIREMENTS@", ", ".join(map(json.dumps, install)))
    sessions = noxfile[noxfile.index("@nox.session") :]
    history = _asv_settings(root, layout, benchmarks)
    wanted = {key: history[key] for key in ("environment_type", "launch_method", "plugins")}
    results, pages = str(history["results_dir"]), str(history["html_dir"])
    if (root / "asv.conf.json").is_file():  # where it names none, asv's own
        results, pages = (_asv_folder(root, f"{name}_dir", default=name) for name in ("results", "html"))
    ignored = template("gitignore")
    return [
        plan_file(root, "asv.conf.json", _json(history), by_hand=_json(wanted), known_by="flopwatch.asv.plugin"),
        plan_file(root, "noxfile.py", noxfile, by_hand=sessions),
        *plan_workflows(root, layout, suites=benchmarks, results=results, pages=pages, gpu_runner=gpu_runner),
        plan_file(root, ".gitignore", ignored, by_hand=".asv/\n.flopwatch/\n", known_by=".flopwatch"),
    ]


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _asv_settings(root: Path, layout: Layout, benchmarks: str) -> dict[str, object]:
    page = {"project_url": layout.url, "show_commit_url": f"{layout.url}/commit/"} if layout.url else {}
    return {
        "version": 1,
        "project": root.name,
        **page,
        "repo": ".",
        "branches": [layout.main],
        "environment_type": "shared",
        "launch_method": "forkserver",
        "plugins": [".flopwatch.asv.plugin"],
        "benchmark_dir": benchmarks,
        "env_dir": ".asv/env",
        "results_dir": ".asv/results",
        "html_dir": ".asv/html",
        # A faster kernel often uses more registers: these are shown, and never listed as regressions.
        "regressions_first_commits": {r".*\.track_(registers|shared_memory|idle_warp_slots)\b.*": None},
        "regressions_thresholds": {".*": 0.01, r".*\.track_(max_diff|max_diff_eps)\b.*": 1.0},
    }


def _todo(
    root: Path,
    layout: Layout,
    files: tuple[PlannedFile, ...],
    outcome: Outcome | None,
    launchers: tuple[Launcher, ...],
) -> list[str]:
    """Say what is left to somebody, in the order in which to do it."""
    todo = []
    suite = next((file.path for file in files if file.path.endswith(".py") and "Suite" in file.text), "the suite")
    if outcome is not None and outcome.plan is None:
        todo.append(f"Fill in {suite}: it is a template; the reasons are in it.")
    elif outcome is not None and outcome.plan is not None and outcome.plan.formula is None:
        todo.append(
            f"Write the reference in {suite}, in float64, and the FLOPs: the kernel runs, but none of the formulas that"
            " flopwatch knows is what it computes. Until then its numbers cannot be judged."
        )
    elif outcome is not None:
        todo.append(f"Look through {suite}, and give it the sizes that matter to you.")
    if not layout.installable:
        todo.append(f"pip cannot install this repository: add what the kernels import to noxfile.py and {HOSTED}.")
    created = {file.path for file in files if file.action is Action.CREATE}
    if "pyproject.toml" in created and (root / "setup.py").is_file():
        todo.append(
            "There is a pyproject.toml now, so pip builds setup.py in isolation; if setup.py imports torch, install"
            " with --no-build-isolation, or name it in [build-system] requires."
        )
    written = [file.path for file in files if file.action is not Action.KEEP]
    if written:
        todo.append(f"git add {' '.join(written)} && git commit -m 'Watch the kernels with flopwatch'")
        todo.append("flopwatch gate HEAD HEAD    # the same code on both sides: nothing may come out")
    first = outcome.launcher if outcome else None
    others = [launcher for launcher in launchers if launcher != first] if outcome else []
    if others:
        named = ", ".join(f"{launcher.name} ({launcher.path}:{launcher.line})" for launcher in others[:8])
        more = f" and {len(others) - 8} more" if others[8:] else ""
        todo.append(f"Declare suites of the other launch functions: {named}{more}.")
    return todo
