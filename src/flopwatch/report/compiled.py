"""What the compiler made of the kernels, in a terminal: how it differs from base, or all of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from flopwatch.report.causes import CODE
from flopwatch.report.foreign import safe
from flopwatch.report.wording import count, grouped, several
from flopwatch.static.comparison import Severity
from flopwatch.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from flopwatch.gate import GateResult
    from flopwatch.model import KernelFacts

#: Notes beyond this many are counted, not listed; failures and warnings are always listed.
MAX_CHANGES = 12
#: More kernels than this are counted, not named.
MAX_NAMES = 4
_STYLES = {Severity.FAIL: "red", Severity.WARN: "yellow", Severity.NOTE: ""}


def print_compiled(result: GateResult, console: Console, *, everything: bool) -> None:
    """Print how many configurations were compiled and what differs from base; the facts themselves if `everything`."""
    if everything and result.facts:
        console.print(_table(result))
    console.print(safe(_summary(result)), soft_wrap=True)
    _print_changes(result, console)
    for cause, cases in grouped(_missing(result)):
        console.print(safe(f"{several(cases)}: {cause}", "yellow"), soft_wrap=True)


def _missing(result: GateResult) -> Iterator[tuple[str, str]]:
    """Yield why a case could not be compiled, and its name; once where that is so on both sides."""
    for (name, cause), sides in grouped(((entry.case.id, entry.cause), entry.side) for entry in result.uncovered):
        yield f"not compiled on {'either side' if len(sides) > 1 else sides[0]}: {cause}", name


def _summary(result: GateResult) -> str:
    names = sorted({fact.kernel for fact in result.facts})
    kernels = (
        count(len(names), "kernel")
        if len(names) > MAX_NAMES
        else " and ".join(names).replace(" and ", ", ", max(len(names) - 2, 0))
    )
    spilling = sum(bool(fact.spill_bytes) for fact in result.facts)
    failed = sum(fact.failure is not None for fact in result.facts)
    parts = [f"{count(len(result.facts), 'configuration')} of {kernels}" if names else "No kernel"]
    parts[0] += f" compiled for {result.device}"
    if spilling:
        parts.append(f"{spilling} spill{'s' if spilling == 1 else ''}")
    if failed:
        parts.append(f"{failed} {'does' if failed == 1 else 'do'} not fit the device")
    if names and not result.fact_changes:
        parts.append("no static fact differs from base")
    return f"{'; '.join(parts)}."


def _table(result: GateResult) -> Table:
    title = safe(f"What the compiler made of head's kernels for {result.device}", "table.title")
    table = Table(title=title, title_justify="left")
    table.add_column("kernel, dtype and configuration")
    for column in ("registers", "spills", "shared", "occupancy"):
        table.add_column(column, justify="right", no_wrap=True)
    for fact in sorted(result.facts, key=lambda fact: fact.key):
        table.add_row(_kernel_cell(fact), *_fact_cells(fact))
    return table


def _kernel_cell(fact: KernelFacts) -> Text:
    """Name the kernel, the dtype that tells its variants apart (its first pointer's), and what is switched on."""
    dtype = fact.variant.split(",")[0].split(":")[0].lstrip("*")
    configuration = " ".join(item for item in fact.config.split(",") if not item.endswith("=False"))
    return Text("\n").join([safe(f"{fact.kernel} {dtype}"), safe(configuration, "dim")])


def _fact_cells(fact: KernelFacts) -> tuple[str | Text, ...]:
    if fact.failure is not None:
        return (safe(fact.failure.kind), "", "", "")
    spills = fact.spill_bytes or 0
    return (
        "unknown" if fact.registers is None else str(fact.registers),
        Text(format_bytes(spills), "yellow") if spills else "0",
        format_bytes(fact.shared_bytes or 0),
        f"{(fact.occupancy or 0) * 100:.0f} %",
    )


def _print_changes(result: GateResult, console: Console) -> None:
    """Print what differs from base: new kernels in a line each, then the worst first, then how many more there are."""
    known = {fact.kernel for fact in result.base_facts}
    for kernel in sorted({fact.kernel for fact in result.facts} - known):
        number = sum(fact.kernel == kernel for fact in result.facts)
        console.print(safe(f"new: {kernel}, {count(number, 'configuration')}"), soft_wrap=True)
    order = list(Severity)
    changes = [
        change
        for change in result.fact_changes
        if (change.kernel in known and change.fact != CODE) or change.severity is not Severity.NOTE
    ]
    changes.sort(key=lambda change: order.index(change.severity))
    serious = sum(change.severity is not Severity.NOTE for change in changes)
    for change in changes[: max(serious, MAX_CHANGES)]:
        console.print(safe(f"{change.severity.value}: {change.text}", _STYLES[change.severity]), soft_wrap=True)
    if len(changes) > max(serious, MAX_CHANGES):
        console.print(f"and {count(len(changes) - max(serious, MAX_CHANGES), 'more note')}; --json has all.")
    recoded = Counter(change.kernel for change in result.fact_changes if change.fact == CODE and change.kernel in known)
    for kernel, number in recoded.items():
        text = f"note: {kernel}: other code in {count(number, 'configuration')}, of equal registers, spills and memory"
        console.print(safe(text), soft_wrap=True)
