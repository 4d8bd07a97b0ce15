"""The steps of a run: which cases, which tools, and a process for each tool."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch import __version__
from flopwatch.config import load_config
from flopwatch.errors import MachineError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.static import select_cases
from flopwatch.measure.client import Code, Mode, Worker
from flopwatch.measure.nvml import present_gpus
from flopwatch.report.wording import count
from flopwatch.sanitize import llvm
from flopwatch.sanitize.looking import Looking
from flopwatch.sanitize.result import CaseReport, Sanitized
from flopwatch.sanitize.tools import LLVM, NVIDIA, Tool, compute_sanitizer_version, find_compute_sanitizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.config import Config
    from flopwatch.measure.protocol import DeclaredCase, Hello

WORKING_TREE = "working tree"


@dataclass(frozen=True, kw_only=True, slots=True)
class SanitizeOptions:
    """What the user asked for.

    Attributes:
        select: only cases whose name has one of these in it; all where empty.
        device: "gpu", "cpu", or "" for a GPU where there is one.
        tools: who looks; empty takes all of compute-sanitizer's on an NVIDIA GPU; without one the guarded interpreter,
            and what is installed of LLVM's.
        full: at the sizes that the suites declare, at which other kernels may be launched than at small ones.
    """

    select: tuple[str, ...] = ()
    device: str = ""
    tools: tuple[Tool, ...] = ()
    full: bool = False


def run_sanitize(
    options: SanitizeOptions, root: Path, *, config: Config | None = None, observer: Observer | None = None
) -> Sanitized:
    """Run every selected case of the working tree once under each tool.

    Args:
        options: which cases, where, and who looks.
        root: the repository.
        config: in place of the repository's own.
        observer: is told how far this is.

    Raises:
        UsageError: a tool cannot look there.
        MachineError: a GPU or a tool is not there.
        FlopwatchError: there is no such case.
    """
    start = time.monotonic()
    observer = observer or Observer()
    config = config or load_config(root)
    tools = choose_tools(options)
    versions = {tool.value: _version(tool) for tool in tools}
    code = Code.of(root, config)
    observer.step("looking for cases")
    with Worker(Mode.STATIC, code) as worker:
        hello = worker.hello
    chosen = _chosen(hello, options.select)
    cases = list(dict.fromkeys(entry.case if options.full else entry.small for entry in chosen))
    what = f"{count(len(cases), 'case')} of {'full' if options.full else 'small'} size"
    reports: list[CaseReport] = []
    with tempfile.TemporaryDirectory(prefix="flopwatch-") as folder:
        for tool in tools:
            observer.step(f"{tool.value}: {what}")
            reports += Looking(tool, code, Path(folder)).at(cases, observer)
    return Sanitized(
        head=WORKING_TREE,
        gpu=hello.gpu if any(tool.needs_gpu for tool in tools) else None,
        tools=versions,
        versions=hello.versions,
        selected=len(chosen),
        full=options.full,
        reports=tuple(_placed(report, root) for report in reports),
        seconds=time.monotonic() - start,
    )


def choose_tools(options: SanitizeOptions) -> tuple[Tool, ...]:
    """Return who looks.

    Raises:
        UsageError: one needs a GPU and the CPU was asked for, or the other way round.
        MachineError: there is no GPU where one is needed.
    """
    wanted = dict.fromkeys(options.tools)
    wrong = [tool.value for tool in wanted if options.device and tool.needs_gpu != (options.device == "gpu")]
    if wrong:
        where = "needs a GPU" if options.device == "cpu" else "runs without a GPU"
        raise UsageError(f"{wrong[0]} {where}", todo=f"leave out --on {options.device}, or name another --tool")
    there = has_gpu()
    if not there and (any(tool in NVIDIA for tool in wanted) or (options.device == "gpu" and not wanted)):
        raise MachineError(
            "there is no NVIDIA GPU",
            why="compute-sanitizer looks at kernels that run on one",
            todo="look without one: flopwatch sanitize --on cpu",
        )
    if wanted:
        return tuple(wanted)
    if there and options.device != "cpu":
        return NVIDIA
    fitting = (tool for tool in LLVM if not (options.device and tool.needs_gpu))
    return (Tool.INTERPRETER, *filter(_is_installed, fitting))


def _is_installed(tool: Tool) -> bool:
    try:
        _version(tool)
    except MachineError:
        return False
    return True


def has_gpu() -> bool:
    """Tell whether there is an NVIDIA GPU."""
    try:
        return bool(present_gpus())
    except MachineError:
        return False


def _version(tool: Tool) -> str:
    """Return a tool's version.

    Raises:
        MachineError: it is not installed.
    """
    if tool in NVIDIA:
        return compute_sanitizer_version(find_compute_sanitizer())
    if tool is Tool.TRITON_VIZ:
        if importlib.util.find_spec("triton_viz") is None:
            raise MachineError("triton-viz is not installed", todo="pip install 'flopwatch[viz]'")
        return importlib.metadata.version("triton-viz")
    if tool in LLVM:
        llvm.environment(tool, os.environ)
        llvm.prefix(tool)
        return ""
    return __version__


def _chosen(hello: Hello, select: Sequence[str]) -> list[DeclaredCase]:
    found = [entry for text in (select or ("",)) for entry in select_cases(hello, text)]
    return list({entry.case: entry for entry in found}.values())


def _placed(report: CaseReport, root: Path) -> CaseReport:
    """Name files from the top of the repository, where they lie in it."""
    tops = {f"{root}/", f"{root.resolve()}/"}
    findings = []
    for finding in report.findings:
        what = finding.what
        for top in tops:
            what = what.replace(top, "")
        findings.append(replace(finding, file=_from_top(finding.file, root), what=what))
    return replace(report, findings=tuple(findings))


def _from_top(file: str, root: Path) -> str:
    with contextlib.suppress(ValueError, OSError):
        return Path(os.path.realpath(file)).relative_to(root.resolve()).as_posix() if file else ""
    return file
