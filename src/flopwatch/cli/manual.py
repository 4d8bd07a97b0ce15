"""The page of the documentation that has every verb and option, made of the parser that reads them.

sphinx-argparse 0.6.1 makes such pages too; but it runs exit codes into one line, fails a strict build on the `*` of an
example, and prints argparse's own usage, whose layout follows the terminal and the version of Python.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Where the documentation says more about a verb.
_MORE = {
    "bisect": "[Bisection](history.md#bisection)",
    "compare": "[Comparing](compare.md)",
    "doctor": "[Noise floor](gate.md#noise-floor)",
    "explain": "[Explaining](explain.md)",
    "footprint": "[Access pictures](guide/footprints.md)",
    "gate": "[The gate](gate.md)",
    "history": "[History](history.md#history)",
    "init": "[flopwatch init](init.md)",
    "ir": "[The compiler's levels](explain.md#the-compiler-s-levels)",
    "profile": "[Profiling](profile.md)",
    "record": "[Recording](record.md)",
    "report": "[Reporting](report.md)",
    "sanitize": "[Sanitizing](guide/sanitizing.md)",
    "static": "[Static facts](static.md)",
    "tune": "[Tuning](tune.md)",
    "waive": "[Waivers](gate.md#waivers)",
}
#: What stands as code in running text: options, what is quoted for a shell, and files.
_CODE = re.compile(
    r"((?<![\w-])--?[a-z][a-z-]*\b|(?<!\S)-(?!\S)|pip install '[^']+'"
    r"|\b\w+\.(?:conf\.)?(?:json|toml)\b|\.(?:svg|html)\b)"
)
_MARKUP = re.compile(r"[\\`*<|\[]")


def manual(parser: argparse.ArgumentParser) -> str:
    """Return the page, as Markdown.

    Args:
        parser: of the whole command line.
    """
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001 - argparse tells its verbs to nobody
    summaries = {choice.dest: choice.help or "" for choice in verbs._choices_actions}  # noqa: SLF001 - likewise
    parts = [
        "# Commands",
        "<!-- Made of the parser by `nox -s docs`: what is to be changed here is changed in src/flopwatch/cli. -->",
        f"{_prose(parser.description)} `{parser.prog} {verbs.metavar} --help` tells what stands here.",
        _table("Verb", ((f"[{name}](#{parser.prog}-{name})", _sentence(text)) for name, text in summaries.items())),
        *_reference(parser),
    ]
    for name, verb in verbs.choices.items():
        parts += [
            f"## {verb.prog}",
            f"{_prose(verb.description)}\nMore: {_MORE[name]}.",
            _usage(verb),
            *_reference(verb),
        ]
    return "\n\n".join(parts) + "\n"


def _usage(verb: argparse.ArgumentParser) -> str:
    forms = {"?": "[{}]", "+": "{}..."}
    arguments = [
        forms.get(str(action.nargs), "{}").format(action.metavar or action.dest)
        for action in verb._actions  # noqa: SLF001 - argparse tells its arguments to nobody
        if not action.option_strings
    ]
    return _console([" ".join([verb.prog, "[OPTIONS]", *arguments])])


def _reference(parser: argparse.ArgumentParser) -> list[str]:
    """Return the table of arguments and options, then what the end of the help has."""
    actions = [action for action in parser._actions if action.help and action.nargs != argparse.PARSER]  # noqa: SLF001 - as above
    actions = [action for action in actions if not isinstance(action, argparse._HelpAction)]  # noqa: SLF001 - as above
    actions.sort(key=lambda action: bool(action.option_strings))
    rows = ((_names(action), _sentence((action.help or "") % vars(action))) for action in actions)
    parts = [_table("Argument", rows)]
    for section in (parser.epilog or "").strip().split("\n\n"):
        title, *lines = section.splitlines()
        if title == "examples:":
            parts.append(_console(line.strip() for line in lines))
        else:
            codes = (line.split(maxsplit=1) for line in lines)
            parts.append(_table("Exit code", ((code, _sentence(text)) for code, text in codes)))
    return parts


def _names(action: argparse.Action) -> str:
    """Return what is typed for an argument, as code."""
    value = action.metavar or (f"{{{','.join(action.choices)}}}" if action.choices else action.dest.upper())
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{name}`" if action.nargs == 0 else f"`{name} {value}`" for name in action.option_strings)


def _table(head: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"| {head} | |", "|:--|:--|", *(f"| {name} | {text} |" for name, text in rows)])


def _console(lines: Iterable[str]) -> str:
    return "\n".join(["```console", *(f"$ {line}" for line in lines), "```"])


def _sentence(text: str) -> str:
    return _prose(f"{text[:1].upper()}{text[1:]}.")


def _prose(text: str | None) -> str:
    r"""Return text that Markdown shows as it is, with code where it has some.

    >>> _prose("<what> pyproject.toml and --json have")
    '\\<what> `pyproject.toml` and `--json` have'
    """
    parts = _CODE.split(text or "")  # code at the odd places
    return "".join(f"`{part}`" if place % 2 else _MARKUP.sub(r"\\\g<0>", part) for place, part in enumerate(parts))
