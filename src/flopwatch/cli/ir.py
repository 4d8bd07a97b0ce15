"""``flopwatch ir``: what the compiler had of a case's kernels at each level, and how that differs from a commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.device_option import add_device
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import argparse

    from flopwatch.cli.verb import Verbs
    from flopwatch.explain.ir import IrResult, KernelIr


def add_ir(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    ir = add_verb(
        verbs,
        "ir",
        _run,
        summary="write what the compiler had of a case's kernels: TTIR, TTGIR, LLVM IR, PTX, machine code",
        description="Compile the kernels that CASE launches for a GPU that need not be there, and write what Triton's\n"
        "compiler had of each at every level, a file each; or how that differs from another commit.",
        examples=(
            "flopwatch ir 'Matmul[4096x4096x4096,float16,flopwatch]' --out ir",
            "flopwatch ir Attention --level ttgir,sass --device b200 --out ir",
            "flopwatch ir Matmul --level ttgir --diff main",
        ),
        exit_codes={
            ExitCode.OK: "written, whether or not anything differs",
            ExitCode.UNDECIDED: "no such case, nothing could be compiled, or interrupted",
        },
    )
    ir.add_argument("case", metavar="CASE", help="cases whose name has this in it")
    ir.add_argument(
        "--level", type=_levels, default=(), metavar="LEVELS", help="ttir, ttgir, llir, ptx and sass, or some of them"
    )
    add_device(ir, "GPU to compile for")
    ir.add_argument("--out", type=Path, metavar="DIR", help="where the files go; made if it is not there")
    ir.add_argument("--diff", metavar="BASE", help="compare the working tree with this commit; printed without --out")
    ir.add_argument("--all", action="store_true", help="configurations that an autotuner only tries, too")


def _levels(text: str) -> tuple[str, ...]:
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.explain.ir import IrOptions, run_ir  # noqa: PLC0415 - as above

    if arguments.out is None and arguments.diff is None:
        raise UsageError(
            "there is nowhere to write to",
            why="the levels of one kernel have thousands of lines",
            todo="name --out DIR",
        )
    root = git.repository_root(arguments.repository)
    options = IrOptions(
        select=arguments.case,
        levels=arguments.level,
        device=arguments.device,
        base=arguments.diff,
        everything=arguments.all,
    )
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)  # now, not after a minute of compiling
    with Progress(Console(stderr=True)) as progress:
        result = run_ir(options, root, observer=progress)
    _write(result, arguments.out)
    return ExitCode.OK


def _write(result: IrResult, out: Path | None) -> None:
    from rich.text import Text  # noqa: PLC0415 - so that --help answers at once

    from flopwatch.cli.console import report_console  # noqa: PLC0415 - as above
    from flopwatch.report.foreign import safe  # noqa: PLC0415 - as above

    console = report_console()
    for kernel in result.kernels:
        told = f"{kernel.kernel} [{kernel.config}] {kernel.level}"
        if out is not None and kernel.text:
            path = out / f"{kernel.name}.{kernel.level}"
            path.write_text(kernel.text, encoding="utf-8")
            told = f"{told} -> {path}"
        if result.base:
            told = f"{told}: {_changed(kernel)}"
        if out is not None and kernel.diff:
            path = out / f"{kernel.name}.{kernel.level}.diff"
            path.write_text(kernel.diff, encoding="utf-8")
            told = f"{told} -> {path}"
        console.print(safe(told), soft_wrap=True)
        if out is None and kernel.diff:
            for line in kernel.diff.splitlines():
                style, rest = _STYLES.get(line[:1], ""), line[1:]
                indented = safe(rest, style, indent=len(rest) - len(rest.lstrip()))
                console.print(Text(line[:1], style) + indented, soft_wrap=True)
    for failure in result.failures:
        console.print(safe(f"not compiled: {failure}", "yellow"), soft_wrap=True)


_STYLES = {"-": "red", "+": "green", "@": "cyan"}


def _changed(kernel: KernelIr) -> str:
    """Count the lines that differ."""
    lines = kernel.diff.splitlines()[2:]
    if not lines:
        return "the same"
    removed, added = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    return f"{removed} {'line' if removed == 1 else 'lines'} of base, {added} of head"
