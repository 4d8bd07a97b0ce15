from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flopwatch import __version__
from flopwatch.cli import build_parser
from flopwatch.cli.manual import manual

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
WRITE = (
    "import sys; from flopwatch.cli import build_parser; from flopwatch.cli.manual import manual;"
    " sys.stdout.buffer.write(manual(build_parser()).encode())"
)


def verbs() -> dict[str, argparse.ArgumentParser]:
    (action,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(action.choices)


def chapter(verb: str) -> str:
    return manual(build_parser()).partition(f"\n## flopwatch {verb}\n")[2].partition("\n## ")[0]


def letters(text: str) -> str:
    """Return what is left of a text that Markdown, or a sentence, may set in another way."""
    return re.sub(r"[^\w%-]", "", text).lower()


def arguments() -> list[tuple[str, argparse.Action]]:
    return [
        (verb, action)
        for verb, parser in verbs().items()
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    ]


def test_the_page_of_the_documentation_is_that_of_the_parser() -> None:
    assert PAGE.read_text(encoding="utf-8") == manual(build_parser()), "nox -s docs writes it anew"


def test_the_page_lists_every_verb_and_has_its_chapter() -> None:
    page = manual(build_parser())
    listed = re.findall(r"^\| \[(\w+)\]\(#flopwatch-(\w+)\) \| \w", page, re.MULTILINE)
    assert listed == [(verb, verb) for verb in verbs()]
    assert re.findall(r"^## flopwatch (\w+)$", page, re.MULTILINE) == list(verbs())


@pytest.mark.parametrize(("verb", "action"), arguments(), ids=lambda value: getattr(value, "dest", value))
def test_the_page_has_every_argument_with_its_help(verb: str, action: argparse.Action) -> None:
    rows = re.findall(r"^\| (.*) \| (.*) \|$", chapter(verb).partition("| Exit code")[0], re.MULTILINE)
    names = action.option_strings or [str(action.metavar)]
    (text,) = [text for cells, text in rows if all(f"`{name}" in cells for name in names)]
    assert action.help is not None
    assert letters(text) == letters(action.help.replace("%%", "%"))


@pytest.mark.parametrize("verb", verbs())
def test_a_chapter_has_what_the_help_begins_and_ends_with(verb: str) -> None:
    parser, text = verbs()[verb], chapter(verb)
    examples, _, codes = (parser.epilog or "").partition("\n\n")
    assert letters(parser.description or "") in letters(text)
    for line in examples.splitlines()[1:]:
        assert f"\n$ {line.strip()}\n" in text
    told = [line.strip() for line in codes.splitlines()[1:]]
    assert [line[0] for line in told] == re.findall(r"^\| (\d) \| ", text, re.MULTILINE)
    assert all(letters(line) in letters(text) for line in told)


@pytest.mark.parametrize(
    ("verb", "page"),
    [(verb, f"{verb}.md") for verb in ("gate", "record", "history", "report")] + [("bisect", "history.md")],
)
def test_what_the_parser_says_of_options_and_exit_codes_is_on_its_page_alone(verb: str, page: str) -> None:
    text = PAGE.with_name(page).read_text(encoding="utf-8")
    assert f"[Commands](commands.md#flopwatch-{verb})" in text
    assert re.findall(r"^\| (?:`-|Option|Exit code).*", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", ["dashboard.md", "gate.md", "history.md", "init.md", "record.md", "report.md"])
def test_a_page_names_no_option_that_no_verb_has(page: str) -> None:
    options = {name for _, action in arguments() for name in action.option_strings}
    named = set(re.findall(r"`(--[a-z][\w-]*)", PAGE.with_name(page).read_text(encoding="utf-8")))
    assert named - options - {"--here"} == set()  # which is the noxfile's


def test_an_option_that_is_added_changes_the_page() -> None:
    parser = build_parser()
    (action,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    action.choices["waive"].add_argument("--forever", action="store_true", help="until | <now>, 5%% of *it*")
    added = set(manual(parser).splitlines()) - set(PAGE.read_text(encoding="utf-8").splitlines())
    assert added == {r"| `--forever` | Until \| \<now>, 5% of \*it\*. |"}


def test_a_verb_that_the_documentation_says_nothing_about_is_caught() -> None:
    parser = build_parser()
    (action,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    action.add_parser("dream", help="of speed")
    with pytest.raises(KeyError, match="dream"):
        manual(parser)


def test_the_page_is_the_same_everywhere() -> None:
    # A narrow terminal wraps argparse's own help; from 3.14 on, FORCE_COLOR colours it.
    environment = {
        "COLUMNS": "30",
        "FORCE_COLOR": "1",
        "LC_ALL": "C",
        "LANGUAGE": "de",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run([sys.executable, "-c", WRITE], capture_output=True, check=True, env=environment)
    page = manual(build_parser())
    assert done.stdout.decode() == page
    assert page.isascii()
    assert __version__ not in page
