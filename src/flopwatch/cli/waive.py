"""``flopwatch waive``: accept a slowdown for a time, or list what is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode

if TYPE_CHECKING:
    import argparse
    import datetime as dt
    from pathlib import Path

    from flopwatch.cli.verb import Verbs
    from flopwatch.config import Config
    from flopwatch.waivers import Waiver

#: A waiver lasts at most this long: a year, with a leap day or without. What is still accepted by then is looked at
#: again.
MAX_DAYS = 366
#: What the user types for each key of a waiver.
_TYPED = {
    "case": "CASE",
    "reason": "--reason",
    "owner": "--owner",
    "until": "--until",
    "limit_percent": "--limit",
}


def add_waive(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    waive = add_verb(
        verbs,
        "waive",
        _run,
        summary="accept that a case gets slower, up to a limit and until a day",
        description="Accept that a case gets slower, up to a limit and until a day; it is written to pyproject.toml.\n"
        "The gate goes on showing the slowdown. Wrong numbers and failures cannot be waived.",
        examples=(
            "flopwatch waive 'Matmul[*,float16,*]' --reason 'int64 offsets' --until 2026-12-31 --limit 5%",
            "flopwatch waive --list",
        ),
        exit_codes={ExitCode.OK: "the waiver is written, or the list is shown"},
    )
    waive.add_argument("case", nargs="?", metavar="CASE", help="name of a case; * stands for any text in it")
    waive.add_argument("--reason", metavar="TEXT", help="why the slowdown is accepted")
    waive.add_argument("--until", metavar="DATE", help="last day on which it is, such as 2026-12-31; within a year")
    waive.add_argument(
        "--limit", dest="limit_percent", metavar="PERCENT", help="the largest slowdown that is accepted, such as 5%%"
    )
    waive.add_argument("--owner", metavar="NAME", help="who answers for it (git's user.name and user.email)")
    waive.add_argument("--list", action="store_true", help="show the waivers there are, and how long they last")


def _run(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from datetime import UTC, datetime  # noqa: PLC0415 - as above

    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.config import load_config  # noqa: PLC0415 - as above
    from flopwatch.errors import UsageError  # noqa: PLC0415 - as above
    from flopwatch.pattern import matches  # noqa: PLC0415 - as above
    from flopwatch.pyproject import replace_file, waiver_block, with_waiver  # noqa: PLC0415 - as above
    from flopwatch.report.waivers import print_waivers  # noqa: PLC0415 - as above
    from flopwatch.report.wording import several  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    config = load_config(root)
    today = datetime.now(UTC).date()
    given = _given(arguments)
    if arguments.list:
        if given:
            raise UsageError(
                "--list takes nothing else",
                why=f"it only shows what there is; {', '.join(_TYPED[key] for key in given)} would be ignored",
                todo="list the waivers and add one in two commands",
            )
        print_waivers(config.waivers, Console(), today=today)
        return 0
    if "owner" not in given and (owner := _identity(root)):
        given["owner"] = owner
    waiver = _waiver(given, config, today=today)
    path = root / "pyproject.toml"
    replace_file(path, with_waiver(path.read_bytes(), waiver))
    advice = "Commit it with the change that it excuses; a gate says which waivers no case needs."
    print(f"Added to {path}:\n\n{waiver_block(waiver)}\n{advice}")  # noqa: T201 - as asked
    cases = declared_cases(root, config)
    if cases and not any(matches(waiver.case, case) for case in cases):
        print(f"No case has such a name now, so that it waives nothing; the suites have {several(cases)}.")  # noqa: T201 - likewise
    return 0


def declared_cases(root: Path, config: Config) -> tuple[str, ...]:
    """Return the names of the cases under test in the working tree; none where a suite cannot be imported here."""
    from flopwatch.errors import FlopwatchError  # noqa: PLC0415 - so that --help answers at once
    from flopwatch.measure.client import Code, Mode, Worker  # noqa: PLC0415 - as above

    code = Code.of(root, config)
    try:
        with Worker(Mode.STATIC, code) as worker:
            hello = worker.hello
    except FlopwatchError:
        return ()
    return () if hello.import_failures else tuple(entry.case.id for entry in hello.declared if entry.own)


def _given(arguments: argparse.Namespace) -> dict[str, object]:
    """Return what the user typed, under the keys of a waiver."""
    return {key: getattr(arguments, key) for key in _TYPED if getattr(arguments, key) is not None}


def _identity(root: Path) -> str:
    """Return the user as git knows it, such as ``Ada <ada@example.org>``; empty where it does not."""
    from flopwatch import git  # noqa: PLC0415 - so that --help answers at once

    name, email = (git.git("config", "--default", "", "--get", key, cwd=root) for key in ("user.name", "user.email"))
    return f"{name} <{email}>" if name and email else name or email


def _waiver(table: dict[str, object], config: Config, *, today: dt.date) -> Waiver:
    """Make a waiver of what was typed.

    Raises:
        UsageError: naming every problem at once.
    """
    from datetime import date  # noqa: PLC0415 - so that --help answers at once

    import msgspec  # noqa: PLC0415 - as above

    from flopwatch.errors import UsageError  # noqa: PLC0415 - as above
    from flopwatch.waivers import Waiver, waiver_problems  # noqa: PLC0415 - as above

    if "limit_percent" in table:
        table["limit_percent"] = _percent(str(table["limit_percent"]))
    problems = waiver_problems(table)
    if isinstance(table.get("limit_percent"), str):
        problems["limit_percent"] = f"{table['limit_percent']!r} is no percentage such as 5%"
    if "until" not in problems:
        days = (msgspec.convert(table["until"], date) - today).days
        if not 0 < days <= MAX_DAYS:
            problems["until"] = f"{table['until']} is not between tomorrow and a year from now, today being {today}"
    if any(waiver.case == table.get("case") for waiver in config.waivers):
        problems["case"] = "pyproject.toml has a waiver of it already; edit or remove that one"
    if problems:
        raise UsageError(
            "no waiver was written",
            why="; ".join(f"{_TYPED[key]}: {problem}" for key, problem in problems.items()),
            todo="flopwatch waive --help has an example; pyproject.toml is as it was",
        )
    return msgspec.convert(table, Waiver)


def _percent(text: str) -> float | str:
    """Read ``5%`` or ``5``; return the text itself where it is neither."""
    try:
        return float(text.strip().removesuffix("%"))
    except ValueError:
        return text
