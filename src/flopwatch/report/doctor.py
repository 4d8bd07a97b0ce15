"""What the doctor found, in a terminal: whether flopwatch can measure here, then each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flopwatch.doctor import Severity
from flopwatch.report.foreign import safe
from flopwatch.report.wording import slowdown
from flopwatch.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from flopwatch.doctor import DoctorReport
    from flopwatch.measure.machine import Gpu
    from flopwatch.stats.noise import NoiseFloor

_STYLES = {Severity.OK: "green", Severity.WARN: "yellow", Severity.FAIL: "red"}


def print_doctor(report: DoctorReport, console: Console) -> None:
    """Print a report."""
    console.print(f"[bold]{escape(headline(report))}[/bold]", soft_wrap=True)
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    lines = [f"{versions}; {machine.cpu_model}, {machine.cpu_count} cores"]
    if machine.gpu is not None:
        lines.insert(0, _gpu(machine.gpu))
    for line in lines:
        console.print(escape(line), style="dim", soft_wrap=True)
    for finding in report.findings:
        style = _STYLES[finding.severity]
        severity = f"{finding.severity.value:<4}"
        console.print(Text.assemble((severity, style), "  ", safe(finding.what)), soft_wrap=True)
        for label, text in (("why:", finding.why), ("do: ", finding.todo)):
            if text:
                console.print(Text.assemble(f"      {label} ", safe(text)), soft_wrap=True)
    if report.noise:
        _print_noise(report.noise, console)


def headline(report: DoctorReport) -> str:
    """Say in one sentence what flopwatch can do here."""
    failed = [finding for finding in report.findings if finding.severity is Severity.FAIL]
    warned = sum(finding.severity is Severity.WARN for finding in report.findings)
    if failed:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        return f"Unfit: {failed[0].what}{more}."
    warnings = f"{warned or 'no'} warning{'' if warned == 1 else 's'}"
    if report.machine.gpu is None:
        return f"Fit for the static gate and small numbers, not for time: there is no GPU; {warnings}."
    return f"Fit to measure on {report.machine.gpu.name}; {warnings}."


def _gpu(gpu: Gpu) -> str:
    parts = [
        f"{gpu.name} ({gpu.uuid})",
        gpu.total_memory_bytes and format_bytes(gpu.total_memory_bytes),
        gpu.max_sm_clock_mhz and f"{gpu.max_sm_clock_mhz} MHz",
        gpu.power_limit_w and f"{gpu.power_limit_w:g} W",
        None if gpu.ecc is None else f"ECC {'on' if gpu.ecc else 'off'}",
        gpu.driver and f"driver {gpu.driver}",
    ]
    return ", ".join(str(part) for part in parts if part)


def _print_noise(noise: Sequence[NoiseFloor], console: Console) -> None:
    table = Table(title="Noise floor: identical code in pairs", title_justify="left")
    table.add_column("case", overflow="fold")
    for column in ("time", "pairs", "error of a pair", "a gate finds"):
        table.add_column(column, justify="right")
    for floor in noise:
        table.add_row(
            safe(floor.case),
            format_seconds(floor.seconds),
            str(floor.pairs),
            Text(f"{floor.deviation * 100:.2f} %", "yellow" if floor.excessive else ""),
            slowdown(floor.detectable),
        )
    console.print(table)
