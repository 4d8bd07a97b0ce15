from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.cli import test_bisect, test_compare, test_doctor, test_gate, test_history, test_record
from tests.study.test_report import STUDY

from flopwatch.cli import main
from flopwatch.doctor import Severity
from flopwatch.errors import ExitCode, MachineError, UndecidedError, UsageError
from flopwatch.gate.conclusions import Verdict

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

#: What each verb can return.
CODES = {
    "bisect": {0, 2, 3, 4},
    "compare": {0, 1, 2, 3, 4},
    "doctor": {0, 2, 3, 4},
    "gate": {0, 1, 2, 3, 4},
    "history": {0, 2, 3},
    "init": {0, 2, 3, 4},
    "record": {0, 2, 3, 4},
    "report": {0, 1, 2, 3, 4},
    "waive": {0, 2, 3},
}
#: What happens to any verb: a wrong command line, Ctrl-C, and a bug.
ANYWHERE = (UsageError("no"), KeyboardInterrupt(), ZeroDivisionError("a bug"))
UNFIT = MachineError("no GPU")
DOCTOR = tuple(test_doctor.report(severity) for severity in Severity)
#: Of a verb: its arguments, what does its work, and how that may come out.
OUTCOMES = {
    "bisect": (
        ("Scale", "v1", "main"),
        "flopwatch.bisect.run_bisect",
        (test_bisect.FOUND, replace(test_bisect.FOUND, differs=False), replace(test_bisect.FOUND, unfit="busy"), UNFIT),
    ),
    "compare": (
        (),
        "flopwatch.compare.run_compare",
        (test_compare.FOUND, replace(test_compare.FOUND, cases=()), replace(test_compare.FOUND, unfit="busy"), UNFIT),
    ),
    "compare --study": (
        ("Swizzle",),
        "flopwatch.study.run.run_study",
        (STUDY, replace(STUDY, decisions=(replace(STUDY.decisions[0], verdict=Verdict.FAILS),))),
    ),
    "doctor": ((), "flopwatch.doctor.examine", DOCTOR),
    "gate": (
        (),
        "flopwatch.gate.run.run_gate",
        (test_gate.RESULT, test_gate.BROKEN, test_gate.INTERRUPTED, test_gate.UNFIT, UNFIT),
    ),
    "history": (
        ("Scale",),
        "flopwatch.history.read_history",
        (test_history.FOUND, UndecidedError("nothing was recorded")),
    ),
    "record": (
        (),
        "flopwatch.record.run_record",
        (
            test_record.FOUND,
            replace(test_record.FOUND, interrupted=True),
            replace(test_record.FOUND, unfit="lost"),
            UNFIT,
        ),
    ),
    "waive": (("--list",), "flopwatch.report.waivers.print_waivers", (None,)),
}


def told(verb: str, capsys: pytest.CaptureFixture[str]) -> dict[int, str]:
    """Return the exit codes in the help of a verb."""
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    codes = capsys.readouterr().out.partition("\nexit codes:\n")[2]
    return {int(code): meaning for code, meaning in re.findall(r"^  (\d)  (\S.*)$", codes, re.MULTILINE)}


@pytest.mark.parametrize("verb", CODES)
def test_a_verb_tells_its_own_exit_codes_in_order(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    codes = list(told(verb, capsys))
    assert codes == sorted(CODES[verb])


def test_regressions_are_for_the_verbs_that_judge(capsys: pytest.CaptureFixture[str]) -> None:
    meanings = {verb: " ".join(told(verb, capsys).values()) for verb in CODES}
    assert {verb for verb, meaning in meanings.items() if "regressed" in meaning} == {"gate", "report"}


@pytest.mark.parametrize("verb", sorted({name.split()[0] for name in OUTCOMES}))
def test_what_a_verb_returns_is_what_it_tells(
    verb: str, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = [
        (name.split(), arguments, target, outcome)
        for name, (arguments, target, outcomes) in OUTCOMES.items()
        if name.split()[0] == verb
        for outcome in (*outcomes, *ANYWHERE)
    ]
    returned = set()
    for words, arguments, target, outcome in ways:

        def come_out(*_arguments: object, _outcome: object = outcome, **_options: object) -> object:
            if isinstance(_outcome, BaseException):
                raise _outcome
            return _outcome

        monkeypatch.setattr(target, come_out)
        returned.add(main([*words, *arguments, "-C", str(toy.root)]))
    capsys.readouterr()
    assert returned == set(told(verb, capsys))


@pytest.mark.parametrize("code", ExitCode)
def test_the_exit_codes_of_flopwatch_are_in_its_help(code: ExitCode, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert re.search(rf"^  {code.value}  \w", capsys.readouterr().out, re.MULTILINE)
