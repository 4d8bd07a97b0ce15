"""What cases return, in a terminal: equal bits in a sentence, everything else in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from flopwatch.model import Mark, eps_of
from flopwatch.report.foreign import safe
from flopwatch.report.wording import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from flopwatch.gate import CaseVerdict, GateResult
    from flopwatch.verdict import Side

#: Rows beyond this many are counted; broken cases are always shown.
MAX_ROWS = 10


def print_numbers(result: GateResult, console: Console, *, everything: bool) -> None:
    """Print the cases whose results differ, furthest from float64 first, and how many return equal bits."""
    checked = [verdict for verdict in result.verdicts if not verdict.identical]
    differing = [verdict for verdict in checked if not same_bits(verdict)]
    rows = differing
    if everything:
        rows = [verdict for verdict in checked if not same_bits(verdict) or verdict.head.numbers is not None]
    rows = sorted(rows, key=lambda verdict: (verdict.mark is not Mark.BROKEN, -_eps(verdict.head)))
    broken = sum(verdict.mark is Mark.BROKEN for verdict in rows)
    room = len(rows) if everything else max(broken, MAX_ROWS)
    if rows:
        console.print(_table(result, rows[:room]))
    if rows[room:]:
        console.print(f"and {count(len(rows[room:]), 'case')} more whose results differ; --all shows every case.")
    equal = [verdict for verdict in checked if same_bits(verdict)]
    if equal:
        console.print(safe(_sentence(result, equal)), soft_wrap=True)


def same_bits(verdict: CaseVerdict) -> bool:
    """Tell whether both sides return the same bits, and those are numbers."""
    base, head = verdict.base, verdict.head
    if base.failure is not None or head.failure is not None:
        return False
    if head.bits:
        return head.bits == base.bits
    if base.numbers is None or head.numbers is None:
        return False
    return head.numbers.finite and head.numbers.bitwise == base.numbers.bitwise


def _sentence(result: GateResult, equal: Sequence[CaseVerdict]) -> str:
    how = "" if result.gpu else ", through Triton's interpreter, at small sizes"
    verb = "returns" if len(equal) == 1 else "return"
    text = f"{count(len(equal), 'case')} {verb} the same bits as base{how}"
    known = [(_eps(verdict.head), verdict.case.id) for verdict in equal if verdict.head.numbers is not None]
    if known:
        furthest, case = max(known)
        text += f"; the largest error is {furthest:.2f} eps ({case})"
    return f"{text}."


def _table(result: GateResult, rows: Sequence[CaseVerdict]) -> Table:
    how = "on the GPU" if result.gpu else "through Triton's interpreter, at small sizes"
    table = Table(title=f"Largest difference from float64, {how}", title_justify="left")
    table.add_column("case", overflow="fold")
    for column in ("base", "head", "head, in eps", "verdict"):
        table.add_column(column, justify="right")
    for verdict in rows:
        table.add_row(
            safe(verdict.case.id),
            _difference(verdict.base),
            _difference(verdict.head),
            f"{_eps(verdict.head):.2f}" if verdict.head.numbers else "",
            Text("broken", "red") if verdict.mark is Mark.BROKEN else "",
        )
    return table


def _difference(side: Side) -> Text | str:
    if side.failure is not None:
        return safe(side.failure.kind)
    if side.numbers is None:
        return ""
    return "not finite" if side.numbers.max_diff is None else f"{side.numbers.max_diff:.3g}"


def _eps(side: Side) -> float:
    return eps_of(side.numbers) if side.numbers else 0.0
