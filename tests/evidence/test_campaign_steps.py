from __future__ import annotations

import argparse
import importlib
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from evidence.campaign_steps import FILES, LEFT_OUT, STEPS, Step
from tests.test_docs import PAGES, SOURCES, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[2]
PLACES = {
    "dir": "/tmp/c",  # noqa: S108 - named, never opened
    "scratch": "/tmp/c/scratch",  # noqa: S108 - likewise
    "root": str(ROOT),
    "out": "/tmp/c/out.json",  # noqa: S108 - likewise
    "place": "out.json",
    "date": "2026-11-22",
    "seconds": "120",
}
#: Sessions of nox that run a program under evidence/ with the words behind `--`.
SESSIONS = {"calibrate": "evidence.static_calibration"}
named_step = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)


class Parsed(Exception):  # noqa: N818 - no error
    """A program has read its command line, and would begin."""


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Callable[[Iterable[str]], None]:
    """Return what has a program read its arguments, and nothing else."""

    def parse(arguments: Iterable[str]) -> None:
        _, module, *rest = (word.format(**PLACES) for word in arguments)
        if module == "pytest":
            pytestconfig._parser.parse(rest)
            return
        importlib.import_module(module)  # whatever looks for a GPU on its import finds the truth
        read_arguments = argparse.ArgumentParser.parse_args

        def read_and_stop(*given: object, **named: object) -> None:
            read_arguments(*given, **named)  # type: ignore[call-overload] # handed on as they are
            raise Parsed

        def stop(*_given: object, **_named: object) -> None:
            raise Parsed

        with monkeypatch.context() as patch:
            patch.setattr(argparse.ArgumentParser, "parse_args", read_and_stop)
            patch.setattr(subprocess, "run", stop)  # benchmarks_host hands on what it does not know
            patch.setattr(Path, "read_bytes", stop)  # `choose` of candidates has a file, and no parser
            patch.setattr(torch.cuda, "is_available", lambda: True)
            patch.setattr(sys, "argv", [module, *rest])
            for name in (module, f"{module}.__main__"):
                patch.delitem(sys.modules, name, raising=False)
            with pytest.raises(Parsed):
                runpy.run_module(module, run_name="__main__", alter_sys=True)

    return parse


@named_step
def test_a_program_takes_the_command_of_its_step(step: Step, parse: Callable[[Iterable[str]], None]) -> None:
    parse(step.arguments)


@pytest.mark.parametrize(
    "step",
    [step for step in STEPS if step.name != "host-baseline"],  # which hands on what it does not know to pytest
    ids=lambda step: step.name,
)
def test_a_step_whose_option_is_gone_is_caught(step: Step, parse: Callable[[Iterable[str]], None]) -> None:
    with pytest.raises((SystemExit, pytest.UsageError)):
        parse((*step.arguments, "--gone"))


@pytest.mark.parametrize("words", [("benchmarks_host", "gone"), ("evidence.matmul_candidates", "gone", "out.json")])
def test_a_verb_that_is_gone_is_caught(words: tuple[str, ...], parse: Callable[[Iterable[str]], None]) -> None:
    with pytest.raises(SystemExit):
        parse(("-m", *words))


@named_step
def test_the_commands_that_follow_are_taken_too(step: Step, parse: Callable[[Iterable[str]], None]) -> None:
    for command in step.then:
        program, *words = command.split()
        assert program == "python"
        parse(words)


@named_step
def test_a_step_has_room_for_what_it_is_expected_to_take(step: Step) -> None:
    assert step.origin
    assert (step.least_s or 0.0) <= step.expected_s <= step.limit_s
    assert ("{seconds}" in step.arguments) <= (step.least_s is not None)
    assert bool(step.resumes) <= (step.least_s is not None)


def test_tests_that_are_all_skipped_do_not_count() -> None:
    assert {" passed"} == {step.proof for step in STEPS if step.arguments[1] == "pytest"}


def test_steps_have_names_of_their_own_and_need_earlier_ones() -> None:
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
    for place, step in enumerate(STEPS):
        assert set(step.needs) <= set(names[:place])


@named_step
def test_a_result_that_is_a_part_of_the_repository_has_its_place_there(step: Step) -> None:
    if step.out.startswith(FILES):
        assert (ROOT / step.out.removeprefix(FILES)).parent.is_dir()


@pytest.mark.parametrize("step", [step for step in STEPS if step.more], ids=lambda step: step.name)
def test_what_tells_of_more_to_do_is_what_the_program_says(step: Step) -> None:
    shared = {
        "evidence.lines",
        "evidence.short_tiles",
        "evidence.varied_lengths",
        *(f"evidence.{kind}_candidates" for kind in ("matmul", "attention", "fp8")),
    }
    module = step.arguments[1]
    source = "evidence.candidates" if module in shared else module

    assert step.more in read(source.replace(".", "/") + ".py")


@pytest.mark.parametrize(
    "step",
    [step for step in STEPS if step.arguments[1] == "pytest" and "-k" in step.arguments],
    ids=lambda step: step.name,
)
def test_a_choice_of_tests_chooses_some_and_not_all(step: Step) -> None:
    collected = []
    for arguments in (step.arguments, step.arguments[: step.arguments.index("-k")]):
        done = subprocess.run(
            [sys.executable, *arguments, "--collect-only"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
        collected.append(done.stdout.count("::"))
    assert 0 < collected[0] < collected[1]


def files_run_by(steps: Iterable[Step]) -> set[str]:
    """Return the files whose tests that need a GPU are run by these steps, all of them."""
    found = set()
    for step in steps:
        if step.arguments[1] != "pytest" or "-k" in step.arguments:
            continue
        ignored = [word.partition("=")[2] for word in step.arguments if word.startswith("--ignore=")]
        for path in (ROOT / word for word in step.arguments if word.startswith("tests")):
            assert path.exists()
            files = {path} if path.is_file() else set(path.rglob("test_*.py"))
            names = {file.relative_to(ROOT).as_posix() for file in files}
            found |= {name for name in names if not any(name.startswith(other) for other in ignored)}
    return found


def files_that_need_a_gpu() -> set[str]:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    return {name for name in files if re.search(r"^@pytest\.mark\.gpu", read(name), re.MULTILINE)}


def test_every_test_that_needs_a_gpu_is_run() -> None:
    assert files_that_need_a_gpu() - files_run_by(STEPS) == set()


def test_a_test_that_no_step_runs_is_caught() -> None:
    (step,) = (step for step in STEPS if step.name == "verb-tests")
    others = [other for other in STEPS if other is not step]
    less = replace(step, arguments=(*step.arguments, "--ignore=tests/gate"))

    assert files_that_need_a_gpu() - files_run_by([*others, less]) == {"tests/gate/test_run.py"}


def named_in(text: str) -> set[str]:
    """Return the programs under evidence/ that a text names, each with the word behind it, if that is no file.

    >>> sorted(
    ...     named_in("`python -m evidence.peers docs`, nox -s calibrate -- measure OUT, python -m evidence.record X")
    ... )
    ['evidence.peers docs', 'evidence.record', 'evidence.static_calibration measure']
    """
    found = re.findall(r"python -m (evidence(?:\.\w+)?)(?:[ \n]+([a-z]\w+)(?![\w./]))?", text)
    found += [(SESSIONS[session], verb) for session, verb in re.findall(r"nox -s (calibrate) -- (\w+)", text)]
    return {f"{module} {verb}".strip() for module, verb in found}


def test_a_recording_comes_back_with_its_sidecar_and_its_names() -> None:
    (step,) = (step for step in STEPS if step.name == "history")
    written = ("results/h200/034abb74-shared.json", "results/h200/034abb74-shared.jsonl", "results/benchmarks.json")

    kept = [
        [path for path in written if fnmatch(f"{ROOT}/{path}", pattern.format(**PLACES))]
        for pattern, _ in step.collects
    ]
    assert kept == [list(written[:2]), [written[2]]]


def unaccounted(names: Iterable[str]) -> set[str]:
    """Return the programs that are neither run by a step, nor left out, nor what a step names to be run then."""
    commands = [" ".join(step.arguments[1:]) for step in STEPS] + [
        command.removeprefix("python -m ") for step in STEPS for command in step.then
    ]
    known = {*LEFT_OUT, *(word for command in commands for word in (command.split()[0], " ".join(command.split()[:2])))}
    return {name for name in names if name not in known and name.split()[0] not in LEFT_OUT}


def test_every_program_that_is_named_is_a_step_or_left_out() -> None:
    names = set().union(*(named_in(read(name)) for name in {*PAGES, *SOURCES, "noxfile.py"}))

    assert {"evidence.peers measure", "evidence.record", "evidence.static_calibration measure"} <= names
    assert unaccounted(names) == set()


def test_every_program_that_is_there_is_a_step_or_left_out() -> None:
    programs = {path.stem for path in (ROOT / "evidence").glob("*.py") if "\nif __name__ ==" in path.read_text()}

    assert unaccounted(f"evidence.{name}" for name in programs - {"__main__"}) == set()


def test_a_program_that_nothing_accounts_for_is_caught() -> None:
    assert unaccounted(named_in("`python -m evidence.dream` and `python -m evidence.peers dream`")) == {
        "evidence.dream",
        "evidence.peers dream",
    }
