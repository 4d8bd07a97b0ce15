"""The gate's result in a terminal: the verdict in a sentence, what changed, then the tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from flopwatch.model import Mark
from flopwatch.static.comparison import Severity
from flopwatch.units import format_bytes, format_change, format_interval, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from flopwatch.gate import GateResult
    from flopwatch.model import KernelFacts
    from flopwatch.verdict import CaseVerdict, Side

#: Notes beyond this many are counted, not listed; failures and warnings are always listed.
MAX_CHANGES = 12
_STYLES = {Mark.SLOWER: "red", Mark.BROKEN: "red", Mark.FASTER: "green", Mark.SAME: "", Mark.UNSURE: "yellow"}
_SEVERITY_STYLES = {Severity.FAIL: "red", Severity.WARN: "yellow", Severity.NOTE: ""}


def print_gate(result: GateResult, console: Console) -> None:
    """Print a gate's result."""
    console.print(f"[bold]{escape(headline(result))}[/bold]")
    console.print(escape(_provenance(result)), style="dim")
    _print_facts(result, console)
    _print_numbers(result, console)
    if result.gpu is None:
        console.print(
            "Not measured: time and memory, and numbers at full size. That needs a GPU; this machine has none."
        )
    else:
        _print_times(result, console)
    for reason, cases in _grouped((verdict.reason, verdict.case.id) for verdict in result.verdicts if verdict.reason):
        console.print(f"{escape(_several(cases))}: {escape(reason)}", soft_wrap=True)
    for line in reproduce(result):
        console.print(f"Reproduce: [cyan]{escape(line)}[/cyan]", soft_wrap=True)


def headline(result: GateResult) -> str:
    """Say the verdict in one sentence."""
    marks = Counter(verdict.mark for verdict in result.verdicts if verdict.mark)
    broken_code = sum(change.severity is Severity.FAIL for change in result.fact_changes)
    skipped = sum(not verdict.compared and verdict.mark is None for verdict in result.verdicts)
    wrong = sum(verdict.compared and verdict.mark is None and bool(verdict.reason) for verdict in result.verdicts)
    rest = (f"; {_count(skipped, 'case')} not compared" if skipped else "") + (
        f"; {_count(wrong, 'case')} wrong on both sides" if wrong else ""
    )
    parts = []
    if marks[Mark.BROKEN]:
        parts.append(f"{_count(marks[Mark.BROKEN], 'case')} broken")
    if broken_code:
        parts.append(f"{_count(broken_code, 'kernel configuration')} no longer compiled")
    if marks[Mark.SLOWER]:
        worst = max((v for v in result.verdicts if v.mark is Mark.SLOWER and v.effect), key=_log_ratio)
        change = format_change(_log_ratio(worst))
        parts.append(f"{_count(marks[Mark.SLOWER], 'case')} slower (worst: {worst.case.id}, {change})")
    if parts:
        return f"Regressed: {'; '.join(parts)}{rest}."
    if skipped == len(result.verdicts):
        return "Undecided: no case could be compared."
    if result.newly_uncovered:
        return (
            f"Undecided: {_count(len(result.newly_uncovered), 'case')} could be compiled on base and not on head{rest}."
        )
    if marks[Mark.UNSURE]:
        return (
            f"Undecided: {_count(marks[Mark.UNSURE], 'case')} unsure, {marks[Mark.SAME]} the same, none slower{rest}."
        )
    if result.gpu is None:
        warnings = sum(change.severity is Severity.WARN for change in result.fact_changes)
        warned = _count(warnings, "static warning") if warnings else "no static warning"
        return f"Nothing broke; {warned}{rest}."
    return f"Nothing got slower: {marks[Mark.SAME]} the same, {marks[Mark.FASTER]} faster{rest}."


def reproduce(result: GateResult) -> list[str]:
    """Return the command lines that repeat what went wrong, one a case."""
    head = "" if result.head == "working tree" else f" {result.head[:12]}"
    bad = [verdict.case.id for verdict in result.verdicts if verdict.mark in (Mark.SLOWER, Mark.BROKEN, Mark.UNSURE)]
    return [f"flopwatch gate {result.base[:12]}{head} -k '{case}'" for case in bad]


def _provenance(result: GateResult) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    where = f"measured on {result.gpu}" if result.gpu else "no GPU"
    head = result.head if result.head == "working tree" else result.head[:12]
    return f"{result.base[:12]} -> {head}; compiled for {result.device}; {where}; {versions}"


def _print_facts(result: GateResult, console: Console) -> None:
    table = Table(title=f"What the compiler made of head's kernels for {result.device}", title_justify="left")
    table.add_column("kernel, dtype and configuration")
    for column in ("registers", "spills", "shared", "occupancy"):
        table.add_column(column, justify="right", no_wrap=True)
    shown = [fact for fact in result.facts if fact.chosen or fact.spill_bytes]
    rows = {(_kernel_cell(fact), *_fact_cells(fact)) for fact in shown}
    for row in sorted(rows):
        table.add_row(*row)
    console.print(table)
    failed = sum(fact.failure is not None for fact in result.facts)
    console.print(
        f"{_count(len(result.facts), 'configuration')} compiled; shown are those that are chosen or spill"
        + (f"; {failed} do not fit the device." if failed else "."),
        style="dim",
    )
    _print_fact_changes(result, console)


def _print_fact_changes(result: GateResult, console: Console) -> None:
    """Print what differs from base: new kernels in a line each, then the worst first, then how many more there are."""
    known = {fact.kernel for fact in result.base_facts}
    for kernel in sorted({fact.kernel for fact in result.facts} - known):
        number = sum(fact.kernel == kernel for fact in result.facts)
        console.print(f"new: {escape(kernel)}, {_count(number, 'configuration')}")
    order = [Severity.FAIL, Severity.WARN, Severity.NOTE]
    changes = [
        change for change in result.fact_changes if change.kernel in known or change.severity is not Severity.NOTE
    ]
    changes.sort(key=lambda change: order.index(change.severity))
    serious = sum(change.severity is not Severity.NOTE for change in changes)
    for change in changes[: max(serious, MAX_CHANGES)]:
        console.print(
            f"{change.severity.value}: {escape(change.text)}", style=_SEVERITY_STYLES[change.severity], soft_wrap=True
        )
    if len(changes) > max(serious, MAX_CHANGES):
        console.print(f"and {len(changes) - max(serious, MAX_CHANGES)} more notes; --json has all.")
    if not result.fact_changes:
        console.print("No static fact differs from base.")
    missing = ((f"not compiled on {entry.side}: {entry.cause}", entry.case.id) for entry in result.uncovered)
    for cause, cases in _grouped(missing):
        console.print(f"{escape(_several(cases))}: {escape(cause)}", style="yellow", soft_wrap=True)


def _kernel_cell(fact: KernelFacts) -> str:
    """Name the kernel, the dtype that tells its variants apart (its first pointer's), and what is switched on."""
    dtype = fact.variant.split(",")[0].split(":")[0].lstrip("*")
    configuration = " ".join(item for item in fact.config.split(",") if not item.endswith("=False"))
    return f"{escape(fact.kernel)} {escape(dtype)}\n[dim]{escape(configuration)}[/dim]"


def _fact_cells(fact: KernelFacts) -> tuple[str, ...]:
    if fact.failure is not None:
        return (escape(fact.failure.kind), "", "", "")
    spills = fact.spill_bytes or 0
    return (
        str(fact.registers),
        f"[yellow]{format_bytes(spills)}[/yellow]" if spills else "0",
        format_bytes(fact.shared_bytes or 0),
        f"{(fact.occupancy or 0) * 100:.0f} %",
    )


def _print_numbers(result: GateResult, console: Console) -> None:
    how = "on the GPU" if result.gpu else "through Triton's interpreter, at small sizes"
    table = Table(title=f"Largest difference from float64, {how}", title_justify="left")
    table.add_column("case")
    for column in ("base", "head", "head, in eps", "verdict"):
        table.add_column(column, justify="right")
    for verdict in result.verdicts:
        broken = verdict.mark is Mark.BROKEN
        table.add_row(
            escape(verdict.case.id),
            _difference(verdict.base),
            _difference(verdict.head),
            _in_eps(verdict.head),
            "[red]broken[/red]" if broken else "",
        )
    console.print(table)


def _difference(side: Side) -> str:
    if side.failure is not None:
        return escape(side.failure.kind)
    if side.numbers is None or side.numbers.max_diff is None:
        return "not finite"
    return f"{side.numbers.max_diff:.3g}"


def _in_eps(side: Side) -> str:
    value = side.numbers.max_diff_eps if side.numbers else None
    return "" if value is None else f"{value:.2f}"


def _print_times(result: GateResult, console: Console) -> None:
    table = Table(title="Time per call, base and head in turns", title_justify="left")
    table.add_column("case")
    for column in ("base", "head", "change", "interval", "verdict"):
        table.add_column(column, justify="right")
    order = [Mark.BROKEN, Mark.SLOWER, Mark.UNSURE, Mark.FASTER, Mark.SAME, None]
    for verdict in sorted(result.verdicts, key=lambda verdict: order.index(verdict.mark)):
        style = _STYLES[verdict.mark] if verdict.mark else "dim"
        table.add_row(*_time_cells(verdict), verdict.mark.value if verdict.mark else "not compared", style=style)
    console.print(table)


def _time_cells(verdict: CaseVerdict) -> tuple[str, ...]:
    effect = verdict.effect
    base, head = (format_seconds(side.seconds) if side.seconds else "" for side in (verdict.base, verdict.head))
    if effect is None:
        return (escape(verdict.case.id), base, head, "", "")
    interval = format_interval(effect.lower, effect.upper)
    return (escape(verdict.case.id), base, head, format_change(effect.log_ratio), interval)


def _grouped(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Collect the second values under equal first ones, in order."""
    groups: dict[str, list[str]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return list(groups.items())


def _several(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _log_ratio(verdict: CaseVerdict) -> float:
    return verdict.effect.log_ratio if verdict.effect else 0.0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
