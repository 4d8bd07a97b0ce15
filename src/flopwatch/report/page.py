"""A page of HTML that needs nothing but itself: no script, no font, no picture, and a policy that says so.

It follows the reader's light or dark, works by keyboard (folds and scrolled tables take the focus), and its plots are
SVG in the page.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flopwatch.report.accused import accusations, reach
from flopwatch.report.cases import chosen, error_of, summary, word
from flopwatch.report.conclusions import in_order
from flopwatch.report.conclusions import told as told_conclusion
from flopwatch.report.escape import html
from flopwatch.report.notes import WITHOUT_GPU, provenance, quiet_notes
from flopwatch.report.roofline import left_out, placed, roofline, seconds_of, told
from flopwatch.report.sanitized import folds
from flopwatch.report.svg import effects, samples
from flopwatch.report.wording import count, effect_of
from flopwatch.static.devices import device_called
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flopwatch.gate import CaseVerdict, GateResult
    from flopwatch.report.reported import Reported

#: Rows of the plot of effects, and cases whose pairs are drawn; the table has all.
MAX_EFFECTS = 100
MAX_SAMPLES = 24
#: Pairs of one plot, and lines of a list.
MAX_PAIRS = 400
MAX_LINES = 400
MAX_EXPLAINED = 20
_STYLE = """\
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #d5dae0; --quiet: #57606a; --bad: #b3261e;
  --good: #0b6e3b; --doubt: #8a5a00; --own: #0550ae }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --paper: #15181c; --faint: #3a414a; --quiet: #a3acb6;
  --bad: #ff8a80; --good: #6fd99a; --doubt: #f2c14e; --own: #79b8ff } }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper) }
h1, h2, p { overflow-wrap: anywhere } .scroll svg { min-width: 44rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--faint); text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.quiet, .quiet code { color: var(--quiet) } code, pre { font-family: ui-monospace, monospace; font-size: .9em }
pre { overflow-x: auto; padding: .6rem; border: 1px solid var(--faint) }
.slower, .broken { color: var(--bad) } .faster { color: var(--good) } .unsure, .waived { color: var(--doubt) }
:focus-visible { outline: 3px solid var(--own); outline-offset: 2px }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif } svg text { fill: currentColor }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: 1rem }
figure { margin: 0 } figcaption { overflow-wrap: anywhere }
line { stroke: var(--faint) } line.axis { stroke: var(--quiet) }
line.margin { stroke: var(--doubt); stroke-dasharray: 4 3 }
line.interval { stroke: currentColor; stroke-width: 2 } line.estimate { stroke: var(--own) }
.point { fill: currentColor } .pair { color: var(--own) }
line.roof { stroke: var(--own); stroke-width: 2 } line.moved { stroke: currentColor }
.ring { fill: none; stroke: currentColor; stroke-width: 1.5 }
"""
_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
"""
_COLUMNS = ("case", "base", "head", "change (99 % interval)", "error, in eps", "verdict")


def page(reports: Sequence[Reported]) -> str:
    """Return the page, the worst result first."""
    parts: list[str] = []
    for number, report in enumerate(reports):
        level = "h1" if number == 0 else "h2"
        parts += [f'<section aria-label="result {number + 1}">', f"<{level}>{html(report.sentence)}</{level}>"]
        parts += _report(report)
        parts.append("</section>")
    return document(f"flopwatch: {reports[0].sentence}", parts)


def document(title: str, body: Iterable[str]) -> str:
    """Return a page of that title, which is text, around a body of HTML."""
    top = f"{_HEAD}<title>{html(title)}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n<main>"
    return "\n".join([top, *body, "</main>\n</body>\n</html>\n"])


def _report(report: Reported) -> Iterator[str]:
    if report.origin.text:
        yield f'<p class="quiet">{html(report.origin.text)}</p>'
    if report.sanitized is not None:
        for number, (title, lines) in enumerate(folds(report.sanitized)):
            yield from _fold(title, lines, is_open=not number)
    elif report.result is None:
        yield f"<p>Refused because: <code>{html(report.refusal)}</code></p>"
    else:
        yield from _result(report.result)
    yield f"<h2>Next</h2>\n<pre><code>{html(report.next_command)}</code></pre>"


def _result(result: GateResult) -> Iterator[str]:
    if result.unfit:
        yield f"<p>Why: <code>{html(result.unfit)}</code></p>"
    ranked, _ = chosen(result, everything=True)
    needy, _ = chosen(result, everything=False, untimed=True)
    if needy:
        yield _table("Cases that need a look", result, needy)
    for sentence in summary(result) if result.gpu is not None else (WITHOUT_GPU,):
        yield f"<p>{html(sentence)}</p>"
    timed = [verdict for verdict in ranked if verdict.time is not None and not result.unfit]
    if plot := effects(timed[:MAX_EFFECTS]):
        yield f"<h2>Effects, with intervals of 99 %</h2>\n{scrolled('effects', plot)}"
        yield '<p class="quiet">Dashed: the margin. A square is beyond the axis.</p>'
    yield from _plots(result, [verdict for verdict in needy if verdict.time is not None] or timed)
    yield from _roofline(result, ranked)
    explained: list[str] = []
    for head, lines in islice(accusations(result, reach), MAX_EXPLAINED):
        explained += [head, *(f"  {line}" for line in lines)]
    yield from _fold("What happened, and how to repeat it", explained, is_open=True)
    conclusions = [told_conclusion(found) for found in in_order(result)]
    yield from _fold("Conclusions of studies", conclusions, is_open=bool(result.lost))
    yield from _fold("Waivers", [use.text for use in result.waivers])
    yield from _fold(
        "What the compiler does differently",
        [f"{change.severity.value}: {change.text}" for change in result.fact_changes],
    )
    yield from _fold("Notes", quiet_notes(result))
    yield from _fold("What was measured, and on what", list(provenance(result)))
    yield f"<details><summary>All {count(len(ranked), 'case')}</summary>"
    yield _table("All cases", result, ranked)
    yield "</details>"


def _plots(result: GateResult, verdicts: Sequence[CaseVerdict]) -> Iterator[str]:
    """Yield the pairs of the first cases."""
    if result.unfit:
        return
    figures = []
    for verdict in verdicts[:MAX_SAMPLES]:
        name = verdict.case.id
        found = [(log.stage, log.log_ratios[name]) for log in result.pairs if name in log.log_ratios][:MAX_PAIRS]
        if found:
            caption = f"<figcaption><code>{html(name)}</code></figcaption>"
            figures.append(f"<figure>{caption}\n{samples(verdict, found)}</figure>")
    if figures:
        yield '<h2>Pairs, in the order of measuring</h2>\n<div class="plots">'
        yield from figures
        yield '</div>\n<p class="quiet">Circles: the screen. Squares: fresh pairs of what was flagged or open.</p>'


def _roofline(result: GateResult, verdicts: Sequence[CaseVerdict]) -> Iterator[str]:
    """Yield the roofline, or why there is none; nothing where nothing was timed."""
    if result.gpu is None or result.unfit or not any(seconds_of(verdict) for verdict in verdicts):
        return
    device, cases = device_called(result.gpu), placed(verdicts)
    if device is None:
        yield f'<p class="quiet">No roofline: the peaks of the {html(result.gpu)} are not known.</p>'
        return
    why = left_out(verdicts, cases)
    if not cases:
        yield f'<p class="quiet">No roofline: no case has a time, FLOPs and bytes. {why}</p>'
        return
    yield f"<h2>Roofline</h2>\n{scrolled('roofline', roofline(cases, device))}"
    yield (
        '<p class="quiet">Rings: base. Dots: head. The roof is the data sheet\'s: memory, and tensor cores at 16 bits;'
        " other types have another peak, and data that stay in the cache may exceed the memory's."
        f" A square is beyond the axes.{why and f' {why}'}</p>"
    )
    yield from _fold("The roofline in numbers", [told(case, device) for case in cases])


def _table(caption: str, result: GateResult, verdicts: Iterable[CaseVerdict]) -> str:
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    rows = []
    for verdict in verdicts:
        kind = word(result, verdict)
        cells = [
            *(format_seconds(side.seconds) if side.seconds else "" for side in (verdict.base, verdict.head)),
            effect_of(verdict.time),
            error_of(verdict.head),
        ]
        style = kind if kind in {"slower", "broken", "faster", "unsure", "waived"} else "quiet"
        row = "".join(f"<td>{html(cell)}</td>" for cell in cells)
        reason = f'<br><span class="quiet">{html(verdict.reason)}</span>' if verdict.reason else ""
        rows.append(
            f'<tr><th scope="row"><code>{html(verdict.case.id)}</code>{reason}</th>{row}'
            f'<td class="{style}">{html(kind)}</td></tr>'
        )
    table = f"<table>\n<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>"
    return scrolled(caption, "\n".join([table, *rows, "</tbody>\n</table>"]))


def scrolled(label: str, body: str) -> str:
    """Let a body of HTML that is wider than the page scroll in its place."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{html(label)}">\n{body}\n</div>'


def _fold(title: str, lines: Sequence[str], *, is_open: bool = False) -> Iterator[str]:
    if not lines:
        return
    more = [f"and {count(len(lines) - MAX_LINES, 'more line')}"] if len(lines) > MAX_LINES else []
    text = "\n".join(" " * (len(line) - len(line.lstrip(" "))) + html(line) for line in [*lines[:MAX_LINES], *more])
    opened = " open" if is_open else ""
    yield f"<details{opened}><summary>{title}</summary>\n<pre>{text}</pre>\n</details>"
