"""The commands and the paths that pages, docstrings and comments name exist."""

from __future__ import annotations

import argparse
import ast
import itertools
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from flopwatch.cli import build_parser

ROOT = Path(__file__).parents[1]
TRACKED = frozenset(
    subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.splitlines()
)
FOLDERS = frozenset(name.partition("/")[0] for name in TRACKED if "/" in name) - {".github"}
PAGES = sorted(name for name in TRACKED if name.endswith(".md") and name != "CHANGELOG.md")  # which tells what was
SOURCES = sorted(name for name in TRACKED if name.endswith(".py") and name.startswith(("src/", "evidence/")))
#: These tell of the reader's repository.
ELSEWHERE = frozenset({"docs/tutorial.md", "docs/init.md"})
#: A word that stands for another: FILE, DATE, <name>, `...`.
PLACEHOLDER = re.compile(r"[A-Z]{3,}|[<>{}$]|\.\.\.")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code(page: str) -> list[str]:
    """Return what stands in code: lines of shells, and what is between backticks; not what programs print."""
    fences = re.findall(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^ *```.*?^ *```", "", page, flags=re.MULTILINE | re.DOTALL)
    shells = "\n".join(text for language, text in fences if language in {"console", "sh", "bash"})
    lines = [
        *(line.strip() for line in shells.replace("\\\n", " ").splitlines()),
        *(line.strip() for line in prose.splitlines() if line.startswith("    ")),
        *(text.replace("\n", " ") for text in re.findall(r"`([^`]+)`", prose)),
    ]
    return [line.removeprefix("$ ") for line in lines]


def commands(line: str) -> list[list[str]]:
    """Split a line of a shell into the words of each command, without what is set for it alone.

    >>> commands("A=1 nox -s gate && flopwatch ir CASE | sort  # anywhere")
    [['nox', '-s', 'gate'], ['flopwatch', 'ir', 'CASE'], ['sort']]
    """
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # no shell's line
        return []
    found: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set("|&;"):
            found.append([])
        elif found[-1] or not re.match(r"[A-Z_]+=", word):
            found[-1].append(word)
    return [words for words in found if words]


def verbs() -> dict[str, argparse.ArgumentParser]:
    (action,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(action.choices)


VERBS = verbs()
SESSIONS = {
    node.name
    for node in ast.parse(read("noxfile.py")).body
    if isinstance(node, ast.FunctionDef) and any("nox.session" in ast.unparse(entry) for entry in node.decorator_list)
}


def wrong_verb(words: list[str]) -> str:
    """Say what flopwatch does not have of what follows its name; "" where it has all."""
    named = [word for word in words if not word.startswith("-")][:1]
    if not named or PLACEHOLDER.search(named[0]):
        return ""
    if named[0] not in VERBS:
        return f"flopwatch has no verb {named[0]}"
    known = VERBS[named[0]]._option_string_actions
    options = [word.partition("=")[0] for word in words if word.startswith("--") and word != "--"]
    return "".join(f"flopwatch {named[0]} has no {option}" for option in options if option not in known)


def wrong_module(words: list[str]) -> str:
    """Say what a module of this repository does not have; options and verbs are looked up in its source."""
    module, *rest = words
    if module.partition(".")[0] not in {"evidence", "flopwatch", "tests"}:
        return ""
    if module == "flopwatch":
        return wrong_verb(rest)
    path = ("src/" if module.startswith("flopwatch") else "") + module.replace(".", "/")
    name = next((name for name in (f"{path}.py", f"{path}/__main__.py") if name in TRACKED), None)
    if name is None:
        return f"there is no module {module}"
    asked = [word.partition("=")[0] for word in rest if word.startswith("--") and word != "--"]
    asked += [word for word in rest[:1] if re.fullmatch(r"[a-z]+", word)]
    source = read(name)
    return "".join(f"{module} has no {word}" for word in asked if f'"{word}"' not in source)


def wrong_session(words: list[str]) -> str:
    given = words[: words.index("--")] if "--" in words else words
    named = [after for word, after in itertools.pairwise(given) if word == "-s"]
    names = [name.partition("(")[0] for name in named if not PLACEHOLDER.search(name)]
    return "".join(f"nox has no session {name}" for name in names if name not in SESSIONS)


def wrong_tests(words: list[str]) -> str:
    """Say which file of tests is not there, or which word of -k is in no name of its tests."""
    files = [word.partition("::")[0] for word in words if word.startswith("tests/")]
    gone = [file for file in files if not (ROOT / file).exists()]
    if gone or "-k" not in words:
        return "".join(f"there is no {file}" for file in gone)
    names = " ".join(re.findall(r"def (test_\w+)", "".join(read(file) for file in files if file.endswith(".py"))))
    asked = re.findall(r"\w+", words[words.index("-k") + 1])
    return "".join(
        f"no test is called {word}" for word in asked if word not in {"or", "and", "not"} and word not in names
    )


def wrong(words: list[str]) -> str:
    """Say what of a command is not there; "" where all is, or where the command is not this repository's.

    >>> wrong(["flopwatch", "gate", "--no-such"]), wrong(["nox", "-s", "dream"]), wrong(["ls", "--no-such"])
    ('flopwatch gate has no --no-such', 'nox has no session dream', '')
    """
    program, *rest = words
    name = program.rpartition("/")[2]
    if name == "flopwatch":
        return wrong_verb(rest)
    if name in {"nox", "pytest"}:
        return {"nox": wrong_session, "pytest": wrong_tests}[name](rest)
    if name.startswith("python") and "-m" in rest[:-1]:
        module = rest[rest.index("-m") + 1 :]
        return wrong(module) if module[0] in {"nox", "pytest"} else wrong_module(module)
    if name.startswith("python") and rest and rest[0].endswith(".py") and rest[0].partition("/")[0] in FOLDERS:
        return "" if rest[0] in TRACKED else f"there is no {rest[0]}"
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_are_there(page: str) -> None:
    asked = [words for line in code(read(page)) for words in commands(line)]
    assert [(" ".join(words), said) for words in asked if (said := wrong(words))] == []


@pytest.mark.parametrize("page", sorted(set(PAGES) - ELSEWHERE))
def test_the_paths_of_a_page_are_there(page: str) -> None:
    words = [word.strip(",.") for line in code(read(page)) for word in line.split()]
    assert missing(words) == []


def missing(words: list[str]) -> list[str]:
    """Return which words are paths of this repository that lead nowhere."""
    paths = [word.partition("::")[0].rstrip("/") for word in words if re.match(r"[\w.-]+/[\w./*-]*$", word)]
    return [
        path
        for path in paths
        if path.partition("/")[0] in FOLDERS and not PLACEHOLDER.search(path) and not any(ROOT.glob(path))
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_the_commands_and_paths_that_a_source_names_are_there(source: str) -> None:
    text = read(source)
    lines = [
        *(line.replace("\n", " ") for line in re.findall(r"``([^`]+)``", text)),
        *re.findall(r"`([^`\n]+)`", text),
        *re.findall(
            r"^\s+((?:python -m|flopwatch|nox -s) [^\n]+)$", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE
        ),
    ]
    lines = [re.sub(r"\s*\n\s*#?:? ?", " ", line) for line in lines]
    asked = [words for line in lines for words in commands(line.removeprefix("$ "))]
    assert [(" ".join(words), said) for words in asked if (said := wrong(words))] == []


@pytest.mark.parametrize(
    "line",
    [
        "flopwatch dream",
        "flopwatch gate --no-such",
        "python -m flopwatch gate --no-such",
        "nox -s dream",
        "python -m nox -s dream",
        "python -m evidence.dream",
        "python -m evidence.traffic OUT.json --no-such",
        "python -m evidence.l2_swizzle dream",
        "pytest tests/dream.py",
        "pytest tests/test_docs.py -k dreams_of_speed",
        "TRITON_DEBUG=1 python examples/dream.py && ls",
    ],
)
def test_a_command_that_is_not_there_is_caught(line: str) -> None:
    page = f"# Page\n\n```console\n$ {line}  # speed\n```\n\nSay `{line}`.\n"
    assert len([words for entry in code(page) for words in commands(entry) if wrong(words)]) == 2


def test_a_path_that_is_not_there_is_caught() -> None:
    words = ["docs/dream.md", "tests/test_docs.py", "results/MACHINE/x.json", "evidence/h200/*.npz", "a/b"]
    assert missing(words) == ["docs/dream.md"]
