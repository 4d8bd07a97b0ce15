"""Markdown for GitHub: the comment of a pull request and the summary of a job, never longer than these may be.

The verdict and the next command are always there; rows, then folds, as far as there is room. Whatever is somebody
else's stands in a code span or a fenced block.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flopwatch.model import Mark
from flopwatch.report.accused import accusations, reach
from flopwatch.report.cases import chosen, error_of, is_waived, summary, word
from flopwatch.report.causes import CODE
from flopwatch.report.conclusions import in_order, told
from flopwatch.report.escape import markdown_block, markdown_code, markdown_sentence, plain
from flopwatch.report.notes import WITHOUT_GPU, provenance, quiet_notes
from flopwatch.report.sanitized import folds
from flopwatch.report.wording import count, effect_of
from flopwatch.static.comparison import Severity
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.gate import CaseVerdict, GateResult
    from flopwatch.report.reported import Reported

#: GitHub refuses a comment of more characters, and a summary of more bytes. Here both are held in bytes of UTF-8.
COMMENT_BYTES = 65_536
SUMMARY_BYTES = 1 << 20
#: By which a workflow finds its own comment again.
TAG = "<!-- flopwatch:gate -->"
#: Rows of a comment; a summary has all.
MAX_ROWS = 30
#: Cases that are explained; each may need a look at hundreds of facts.
MAX_EXPLAINED = 8
#: Of all rows and lines, for what is cut after them.
_RESERVE = 200
_SIGNS = {Mark.BROKEN: "🔴", Mark.SLOWER: "🔴", Mark.UNSURE: "🟡", Mark.FASTER: "🟢", Mark.SAME: "⚪", None: "⚪"}
#: Of what is wrong with a broken case, as far as it fits into a row; the fold has all of it.
MAX_REASON = 100
_HEADER = ("| | case | base | head | change (99 % interval) | verdict |", "|:-:|:--|--:|--:|--:|--:|")
#: Without a GPU, where nothing is timed.
_NUMBERS_HEADER = ("| | case | base, error in eps | head, error in eps | verdict |", "|:-:|:--|--:|--:|--:|")


class _Room:
    """How many bytes are left."""

    def __init__(self, size: int) -> None:
        self.left = size

    def take(self, text: str) -> bool:
        """Take the room of a line, if it is there."""
        size = len(text.encode()) + 1
        if size > self.left:
            return False
        self.left -= size
        return True


def comment(reports: Sequence[Reported]) -> str:
    """Return the comment of a pull request, of at most `COMMENT_BYTES`."""
    return _document(reports, COMMENT_BYTES, everything=False)


def job_summary(reports: Sequence[Reported]) -> str:
    """Return the summary of a job, of at most `SUMMARY_BYTES`, with a row for every case."""
    return _document(reports, SUMMARY_BYTES, everything=True)


def _document(reports: Sequence[Reported], size: int, *, everything: bool) -> str:
    frames = [_frame(report) for report in reports]
    room = _Room(size - _RESERVE - len("\n".join([TAG, *(part for frame in frames for part in frame)]).encode()))
    parts = [TAG]
    tables = [_table(report.result, room, everything=everything) for report in reports]
    for report, (top, bottom), table in zip(reports, frames, tables, strict=True):
        parts += [top, *table]
        for title, lines in _folds(report):
            parts += _fold(title, lines, room)
        parts.append(bottom)
    return "\n".join(parts) + "\n"


def _frame(report: Reported) -> tuple[str, str]:
    """Return what stands at the top and at the end, whatever the room."""
    top = [f"### {markdown_sentence(report.sentence)}", ""]
    if report.origin.text:
        top += [markdown_sentence(report.origin.text[0].upper() + report.origin.text[1:]) + ".", ""]
    for label, why in (("Refused because", report.refusal), ("Why", report.result.unfit if report.result else "")):
        if why:
            top += [f"{label}: {markdown_code(why)}", ""]
    return "\n".join(top), f"**Next:** {markdown_code(report.next_command)}\n"


def _table(result: GateResult | None, room: _Room, *, everything: bool) -> list[str]:
    """Return the rows for which there is room, and the sentences about the others."""
    if result is None:
        return []
    rows, hidden = chosen(result, everything=everything, untimed=True)
    lines: list[str] = []
    shown = 0
    frame = "\n".join(_NUMBERS_HEADER if result.gpu is None else _HEADER)
    if rows and room.take(frame):
        lines.append(frame)
        for verdict in rows if everything else rows[:MAX_ROWS]:
            row = _row(result, verdict)
            if not room.take(row):
                break
            lines.append(row)
            shown += 1
        lines.append("")
    parts = [f"{count(len(rows) - shown, 'further row')}"] if rows[shown:] else []
    if hidden or parts:
        lines += [markdown_sentence(f"Not shown: {', '.join([*parts, hidden] if hidden else parts)}."), ""]
    for sentence in summary(result) if result.gpu is not None else (WITHOUT_GPU,):
        text = markdown_sentence(sentence)
        if room.take(text):
            lines += [text, ""]
            room.left -= 1
    return lines


def _row(result: GateResult, verdict: CaseVerdict) -> str:
    sign = "🟡" if is_waived(result, verdict) else _SIGNS[verdict.mark]
    sides = (verdict.base, verdict.head)
    if result.gpu is None:
        measured = [markdown_code(error_of(side)) if side.failure else error_of(side) for side in sides]
    else:
        measured = [format_seconds(side.seconds) if side.seconds else "" for side in sides]
        measured.append(_change(verdict))
    return f"| {' | '.join((sign, markdown_code(verdict.case.id), *measured, word(result, verdict)))} |"


def _change(verdict: CaseVerdict) -> str:
    """Return how a case's time changed, or what is wrong with one that is broken, for which no time makes up."""
    if verdict.mark is Mark.BROKEN and verdict.reason:
        return markdown_code(plain(verdict.reason, length=MAX_REASON))
    return effect_of(verdict.time)


def _folds(report: Reported) -> Iterator[tuple[str, list[str]]]:
    """Yield a title and plain lines of all that is worth a look and is no verdict."""
    if report.sanitized is not None:
        yield from folds(report.sanitized)
    if report.result is not None:
        yield from _gate_folds(report.result)


def _gate_folds(result: GateResult) -> Iterator[tuple[str, list[str]]]:
    explained: list[str] = []
    for head, lines in islice(accusations(result, reach), MAX_EXPLAINED):
        explained += [head, *(f"  {line}" for line in lines)]
    if explained:
        yield "What happened, and how to repeat it", explained
    if result.conclusions:
        yield "Conclusions of studies", [told(found) for found in in_order(result)]
    if result.waivers:
        yield "Waivers", [use.text for use in result.waivers]
    order = list(Severity)
    changes = sorted(
        (change for change in result.fact_changes if change.fact != CODE or change.severity is not Severity.NOTE),
        key=lambda change: order.index(change.severity),
    )
    if changes:
        yield "What the compiler does differently", [f"{change.severity.value}: {change.text}" for change in changes]
    if notes := quiet_notes(result):
        yield "Notes", notes
    yield "What was measured, and on what", list(provenance(result))


def _fold(title: str, lines: Sequence[str], room: _Room) -> list[str]:
    """Return a fold with as many lines as there is room for."""
    before, after = f"<details><summary>{title}</summary>\n", "\n</details>\n"
    if not room.take(f"{before}{after}```text\n\n```\nand {len(lines)} more lines\n"):
        return []
    kept = []
    for line in lines:
        # What a line takes once it is escaped: a bar becomes two bytes.
        if not room.take(markdown_block([line])):
            break
        kept.append(line)
    rest = [f"and {count(len(lines) - len(kept), 'more line')}"] if lines[len(kept) :] else []
    return [before, markdown_block([*kept, *rest]), after]
