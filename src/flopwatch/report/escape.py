r"""Text that somebody else wrote, made harmless in each place where a report may stand.

Every function makes one line of it first. What GitHub's runner would take for a command is broken up even where that is
no business of the medium: whatever is printed in a job ends in its log.
"""

from __future__ import annotations

import html as _html
import re

from flopwatch.waivers import printable

#: Longer text is cut: a reason that does not fit here is read in the file.
MAX_CHARACTERS = 600
#: The name of a case in a sentence of ours.
_CASE = re.compile(r"[A-Za-z_]\w*\[[^\[\]]*\]")
#: What Markdown reads in the middle of a sentence of ours.
_ACTIVE = re.compile(r"([\\`*_\[\]<>#@&|~])")
#: A runner takes `::name::` for a command at the start of a line, blanks aside, and `##[name]` anywhere.
_COMMAND = re.compile(r"^\s*::|##(?=\[)")


def plain(text: str, *, length: int = MAX_CHARACTERS) -> str:
    r"""Return one line of printable characters, without commands of the runner, cut to a length.

    >>> plain("a\x1b[2J\u202eb\n##[error]c"), plain("  ::error::no")
    ('a [2J b # #[error]c', ': :error::no')
    """
    line = _COMMAND.sub(lambda found: " ".join(found[0].strip()), printable(text[: 4 * length]))
    return line if len(line) <= length else f"{line[: length - 3]}..."


def markdown_code(text: str) -> str:
    """Return a code span: in it Markdown, mentions, references and links are none, and a table's cell goes on.

    >>> markdown_code("`x` | @all #1 <b>")
    "`'x' ¦ @all #1 <b>`"
    """
    return f"`{_fenced(text) or ' '}`"


def markdown_sentence(text: str) -> str:
    """Return a sentence of ours, in which nothing but the names of cases is somebody else's.

    >>> markdown_sentence("Regressed: 1 case slower (Add[www.x.org], 2.00 %).")
    'Regressed: 1 case slower (`Add[www.x.org]`, 2.00 %).'
    """
    parts = []
    end = 0
    line = plain(text)
    for name in _CASE.finditer(line):
        parts += [_ACTIVE.sub(r"\\\1", line[end : name.start()]), markdown_code(name[0])]
        end = name.end()
    return "".join([*parts, _ACTIVE.sub(r"\\\1", line[end:])])


def markdown_block(lines: list[str]) -> str:
    """Return a fenced block of text, a line each; blanks before a line are kept.

    >>> print(markdown_block(["a", "  ```", "  b"]))
    ```text
    a
      '''
      b
    ```
    """
    kept = [" " * (len(line) - len(line.lstrip(" "))) + _fenced(line) for line in lines]
    return "\n".join(["```text", *kept, "```"])


def html(text: str, *, length: int = MAX_CHARACTERS) -> str:
    """Return text for an element or a quoted attribute of HTML, of which SVG is a part.

    >>> html('"><script>')
    '&quot;&gt;&lt;script&gt;'
    """
    return _html.escape(plain(text, length=length), quote=True)


def xml(text: str) -> str:
    r"""Return text for an element or a quoted attribute of XML 1.0, which knows fewer characters than HTML.

    >>> xml("a\x00&'\ufffe")
    'a &amp;&#x27;'
    """
    return html(text)


def command_data(text: str) -> str:
    r"""Return the message of a workflow command.

    >>> command_data("100 %\n::set-output::")
    '100 %25 ::set-output::'
    """
    return plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def command_property(text: str) -> str:
    """Return a property of a workflow command, such as its title.

    >>> command_property("a,b:c")
    'a%2Cb%3Ac'
    """
    return command_data(text).replace(":", "%3A").replace(",", "%2C")


def _fenced(text: str) -> str:
    return plain(text).replace("`", "'").replace("|", "¦")
