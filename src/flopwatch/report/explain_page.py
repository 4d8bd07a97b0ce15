"""An explanation as a page of HTML that needs nothing but itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.report.escape import html
from flopwatch.report.explain_parts import about, headline, measured_case, parts
from flopwatch.report.page import document, scrolled
from flopwatch.report.roofline import roofline
from flopwatch.static.devices import device_called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.explain.result import Explanation
    from flopwatch.report.explain_part import Part

_CLASSES = {"-": "slower", "+": "faster"}


def explanation_page(explanation: Explanation) -> str:
    """Return the page: the likeliest cause is its heading."""
    sentence = headline(explanation)
    body = [f"<h1>{html(sentence)}</h1>", f'<p class="quiet"><code>{html(about(explanation))}</code></p>']
    for part in parts(explanation):
        body += _part(part)
    case, device = measured_case(explanation), device_called(explanation.gpu)
    if case is not None and device is not None:
        body.append(scrolled("roofline", roofline([case], device)))
    return document(f"flopwatch: {sentence}", body)


def _part(part: Part) -> Iterator[str]:
    yield f"<h2>{html(part.title)}</h2>"
    if part.rows:
        head = "".join(f'<th scope="col">{html(column)}</th>' for column in part.header)
        rows = []
        for name, *numbers in part.rows:
            cells = "".join(f"<td>{html(number)}</td>" for number in numbers)
            rows.append(f'<tr><th scope="row"><code>{html(name)}</code></th>{cells}</tr>')
        table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>"
        yield scrolled(part.title, "\n".join([table, *rows, "</tbody>\n</table>"]))
    if part.is_code:
        code = "\n".join(map(_code, part.lines))
        yield f"<pre>{code}</pre>"
    elif part.lines:
        yield "<ul>"
        yield from (f"<li><code>{html(line)}</code></li>" for line in part.lines)
        yield "</ul>"


def _code(line: str) -> str:
    kind = _CLASSES.get(line[:1])
    return f'<span class="{kind}">{html(line)}</span>' if kind else html(line)
