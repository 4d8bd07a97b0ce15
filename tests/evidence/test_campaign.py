from __future__ import annotations

import contextlib
import doctest
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evidence import campaign, campaign_process
from evidence.campaign import main
from evidence.campaign_state import Entry, State, Status, locked
from evidence.campaign_steps import TAIL_S, Step

from flopwatch.errors import ExitCode, MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
#: What a test gives a step that nothing is to end, and what one sleeps that something is to end.
LONG_S = 60.0
#: Counts its runs in the file that it leaves, and says how many there were.
COUNT = (
    "import pathlib, sys; out = pathlib.Path(sys.argv[1]); text = out.read_text() if out.exists() else ''; "
    "out.write_text(text + 'x'); print(len(text) + 1, 'runs')"
)


def step(name: str, code: str = COUNT, *, needs: tuple[str, ...] = (), expected_s: float = 1.0, **more: object) -> Step:
    given: dict[str, object] = {
        "name": name,
        "purpose": "speed",
        "arguments": ("-c", code, "{out}"),
        "expected_s": expected_s,
        "origin": "a guess",
        "limit_s": LONG_S,
        "out": f"files/docs/{name}.txt",
        "needs": needs,
    }
    return Step(**(given | more))  # type: ignore[arg-type] # fields of a step


FAILS = "import sys; print('as planned'); sys.exit(7)"
SLEEPS = f"import time; print('asleep', flush=True); time.sleep({LONG_S})"


@pytest.fixture(autouse=True)
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the GPUs that a campaign finds."""
    found = {"GPU-1": "NVIDIA H200"}
    monkeypatch.setattr(campaign, "require_gpu", lambda _refusal: None)
    monkeypatch.setattr(campaign, "present_gpus", lambda: found)
    monkeypatch.setattr(campaign_process, "SIGNALS", [(sent, 1.0) for sent, _ in campaign_process.SIGNALS])
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "campaign"


def entries(folder: Path) -> dict[str, Entry]:
    return State.read(folder, "").entries


def statuses(folder: Path) -> dict[str, Status]:
    return {name: entry.status for name, entry in entries(folder).items()}


def result(folder: Path, name: str) -> str:
    return (folder / "files" / "docs" / f"{name}.txt").read_text(encoding="utf-8")


def test_the_examples_hold() -> None:
    failed, tried = doctest.testmod(campaign)

    assert failed == 0
    assert tried > 0


def test_steps_run_one_after_the_other_and_say_how_they_ended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [step("one"), step("two", FAILS), step("three", "print('done')", out="")]

    assert main([str(folder)], steps) == ExitCode.UNDECIDED

    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(", ")[0] for line in lines[:3]] == ["one: passed", "two: failed", "three: passed"]
    assert lines[1].endswith("exit 7; as planned")
    assert statuses(folder) == {"one": Status.PASSED, "two": Status.FAILED, "three": Status.PASSED}
    assert (folder / "two.log").read_text(encoding="utf-8").splitlines()[-1] == "as planned"
    assert entries(folder)["one"].gpu == "GPU-1"


def test_the_next_call_goes_on_with_what_is_missing_or_failed(folder: Path) -> None:
    steps = [step("one"), step("two", FAILS, out="")]
    main([str(folder)], steps)

    assert main([str(folder)], [steps[0], step("two", out="files/docs/two.txt"), step("three")]) == ExitCode.OK

    assert [result(folder, name) for name in ("one", "two", "three")] == ["x", "x", "x"]


def test_a_step_is_run_again_where_that_is_asked_for(folder: Path) -> None:
    steps = [step("one"), step("other"), step("goes-on", resumes=True, least_s=1.0)]
    main([str(folder)], steps)

    assert main([str(folder), "--again", "one,goes-on"], steps) == ExitCode.OK

    assert result(folder, "one") == "xx"
    assert result(folder, "other") == "x"
    assert result(folder, "goes-on") == "x"  # from the beginning: with what it had left it would find nothing to do


def test_what_is_forgotten_stays_so_where_there_is_no_time_for_it(folder: Path) -> None:
    steps = [step("goes-on", resumes=True, least_s=1.0)]
    main([str(folder)], steps)

    assert main([str(folder), "--again", "goes-on", "--minutes", "0"], steps) == ExitCode.UNDECIDED
    assert entries(folder) == {}


def test_no_other_steps_are_run_than_those_that_are_named(folder: Path) -> None:
    assert main([str(folder), "--only", "two"], [step("one"), step("two")]) == ExitCode.OK
    assert set(entries(folder)) == {"two"}


def test_a_name_that_no_step_has_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(folder), "--only", "dream"], [step("one"), step("two")])

    assert left.value.code == ExitCode.USAGE
    assert "no step is called 'dream'; there are one, two" in capsys.readouterr().err


def test_a_failure_stops_who_needs_it_and_nobody_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [step("tests", FAILS), step("race", needs=("tests",)), step("other")]
    main([str(folder)], steps)

    assert statuses(folder) == {"tests": Status.FAILED, "other": Status.PASSED}
    assert "race: not begun, tests has to pass before\n" in capsys.readouterr().out

    main([str(folder), "--only", "race", "--force"], steps)
    assert statuses(folder)["race"] is Status.PASSED


def test_a_step_that_leaves_no_result_has_failed(folder: Path) -> None:
    main([str(folder)], [step("one", "print('nothing')")])

    assert statuses(folder) == {"one": Status.FAILED}


def test_a_step_that_proves_nothing_has_failed(folder: Path) -> None:
    steps = [step("skipped", "print('8 skipped')", out="", proof=" passed")]
    main([str(folder)], [*steps, step("run", "print('8 passed')", out="", proof=" passed")])

    assert statuses(folder) == {"skipped": Status.FAILED, "run": Status.PASSED}


def test_what_does_not_fit_is_left_for_another_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [step("long", expected_s=50.0), step("short")]
    minutes = (campaign.STOP_S + 20.0) / 60.0

    assert main([str(folder), "--minutes", str(minutes)], steps) == ExitCode.UNDECIDED

    assert set(entries(folder)) == {"short"}
    assert re.search(r"^long: not begun, it needs 50 s and \d+ s are left$", capsys.readouterr().out, re.MULTILINE)


def test_one_that_takes_what_there_is_gets_what_is_left(folder: Path) -> None:
    code = "import sys; print(sys.argv[2])"
    taking = step(
        "taking",
        code,
        arguments=("-c", code, "{out}", "{seconds}"),
        expected_s=900.0,
        least_s=70.0,
        limit_s=950.0,
        out="",
    )
    short = step("limited", code, arguments=taking.arguments, least_s=70.0, limit_s=100.0, out="")

    main([str(folder), "--minutes", str((campaign.STOP_S + 200.0) / 60.0)], [taking, short])

    assert 200.0 - TAIL_S - 10.0 < float(entries(folder)["taking"].last) <= 200.0 - TAIL_S
    assert float(entries(folder)["limited"].last) == 100.0 - TAIL_S


@pytest.mark.parametrize(("resumes", "status"), [(False, Status.STOPPED), (True, Status.PARTIAL)])
def test_a_step_is_ended_at_its_limit(folder: Path, resumes: bool, status: Status) -> None:
    begun = time.monotonic()
    main([str(folder)], [step("long", SLEEPS, limit_s=3.0, resumes=resumes, least_s=1.0), step("next")])

    assert time.monotonic() - begun < LONG_S / 2
    assert statuses(folder) == {"long": status, "next": Status.PASSED}
    assert entries(folder)["long"].last == "KeyboardInterrupt"


def test_what_was_stopped_is_begun_with_more_time_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [step("long", SLEEPS, limit_s=4.0)]
    main([str(folder)], steps)
    capsys.readouterr()

    main([str(folder), "--minutes", str((campaign.STOP_S + 3.0) / 60.0)], steps)

    assert re.search(r"^long: not begun, it needs \d+ s and \d s are left$", capsys.readouterr().out, re.MULTILINE)


def test_who_says_that_there_is_more_goes_on(folder: Path) -> None:
    more = COUNT + "; print('' if text else 'no time for more')"
    steps = [step("peers", more, resumes=True, least_s=1.0, more="no time")]

    assert main([str(folder)], steps) == ExitCode.UNDECIDED
    assert statuses(folder) == {"peers": Status.PARTIAL}
    assert main([str(folder)], steps) == ExitCode.OK  # though its log still has what it said before
    assert result(folder, "peers") == "xx"


def test_what_a_step_writes_elsewhere_is_copied(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "old.json").write_text("old", encoding="utf-8")
    os.utime(elsewhere / "old.json", (1, 1))
    code = f"import pathlib; pathlib.Path({str(elsewhere)!r}, 'new.json').write_text('new')"

    main([str(folder)], [step("one", code, out="", collects=((f"{elsewhere}/*.json", "files/results"),))])

    assert [path.name for path in (folder / "files" / "results").iterdir()] == ["new.json"]


def test_a_step_has_its_variables(folder: Path) -> None:
    code = "import os; print(os.environ['FLOPWATCH_AUTOTUNE'])"
    main([str(folder)], [step("one", code, out="", environment=(("FLOPWATCH_AUTOTUNE", "all"),))])

    assert entries(folder)["one"].last == "all"


def test_in_the_end_it_says_what_is_left_to_do_without_a_gpu(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = "python -m evidence docs"
    steps = [
        step("one", then=("show {place}", docs)),
        step("two", then=(docs,)),
        step("three", FAILS, then=("never",)),
    ]
    main([str(folder)], steps)

    assert capsys.readouterr().out.splitlines()[3:] == [
        "then, without a GPU:",
        f"  cp -r {folder}/files/. .",
        "  show docs/one.txt",
        f"  {docs}",
    ]


def test_without_a_gpu_nothing_is_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(refusal: Callable[[str], MachineError]) -> None:
        raise refusal("the driver has none")

    monkeypatch.setattr(campaign, "require_gpu", refuse)

    assert main([str(folder)], [step("one")]) == ExitCode.UNFIT
    assert capsys.readouterr().err.splitlines() == [
        "a campaign needs a GPU",
        "  why: the driver has none",
        "  do:  run it where there is one; --list needs none",
    ]
    assert not folder.exists()

    assert main([str(folder), "--list"], [step("one")]) == ExitCode.OK
    assert "not run" in capsys.readouterr().out


def test_on_another_gpu_it_is_run_for_a_trial_alone(
    folder: Path, gpus: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    gpus["GPU-1"] = "NVIDIA A100-SXM4-40GB"

    assert main([str(folder)], [step("one")]) == ExitCode.UNFIT
    assert "the evidence is an H200's\n  why: there is NVIDIA A100-SXM4-40GB" in capsys.readouterr().err
    assert not folder.exists()
    assert main([str(folder), "--force"], [step("one")]) == ExitCode.OK


def test_two_campaigns_do_not_run_in_one_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir()
    with locked(folder):
        assert main([str(folder)], [step("one")]) == ExitCode.UNFIT
    assert "is in use" in capsys.readouterr().err


def test_nothing_is_begun_beside_what_cannot_be_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = campaign_process.Ended(exit_code=-9, seconds=1.0, cut=campaign_process.Cut.LIMIT, left=(4711,))
    monkeypatch.setattr(campaign, "run", lambda *_given, **_named: ended)

    assert main([str(folder)], [step("one"), step("two")]) == ExitCode.UNFIT
    assert "processes 4711 of one were killed and do not end" in capsys.readouterr().err
    assert statuses(folder) == {"one": Status.STOPPED}


def test_after_every_step_all_of_it_is_packed(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "packed.tar.gz"
    look = f"import tarfile; print(sorted(tarfile.open({str(out)!r}).getnames()))"
    main([str(folder), "--pack", str(out)], [step("one"), step("two", look, out="")])

    assert "'files/docs/one.txt', 'one.log', 'state.json'" in entries(folder)["two"].last


def test_a_pack_that_has_no_place_is_refused_before_anything_runs(folder: Path, tmp_path: Path) -> None:
    assert main([str(folder), "--pack", str(tmp_path / "none" / "packed.tar.gz")], [step("one")]) == ExitCode.USAGE
    assert not folder.exists()


PROGRAM = f"""
import signal, sys
sys.path[:0] = [{str(ROOT)!r}]
from evidence import campaign
from tests.evidence.test_campaign import COUNT, SLEEPS, step
campaign.require_gpu = lambda refusal: None
campaign.present_gpus = lambda: dict(one="NVIDIA H200")
for sent in (signal.SIGINT, signal.SIGTERM):
    signal.signal(sent, signal.default_int_handler)
steps = [step("one"), step("long", sys.argv[2] + SLEEPS), step("three")]
sys.exit(campaign.main([sys.argv[1]], steps))
"""


@contextlib.contextmanager
def asleep(folder: Path, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a campaign in a process of its own, until its second step sleeps."""
    command = [sys.executable, "-c", PROGRAM, str(folder), before]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        log = folder / "long.log"
        try:
            ends = time.monotonic() + LONG_S
            while not log.exists() or "asleep" not in log.read_text(encoding="utf-8").split():
                assert time.monotonic() < ends, process.poll()
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_step_and_keeps_the_rest(folder: Path, sent: signal.Signals) -> None:
    with asleep(folder) as process:
        process.send_signal(sent)
        output, _ = process.communicate(timeout=LONG_S)

    assert process.returncode == ExitCode.UNDECIDED, output
    assert "exit -2, interrupted" in output
    assert "then, without a GPU" in output
    assert statuses(folder) == {"one": Status.PASSED, "long": Status.STOPPED}

    main([str(folder)], [step("one"), step("long"), step("three")])
    assert [result(folder, name) for name in ("one", "long", "three")] == ["x", "x", "x"]


def test_what_a_killed_campaign_has_left_keeps_the_next_one_waiting(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with asleep(folder, "import os; print(os.getpid()); ") as process:
        process.kill()
        process.wait()
        pid = next(int(line) for line in (folder / "long.log").read_text().splitlines() if line.isdecimal())
        try:
            assert main([str(folder)], [step("three")]) == ExitCode.UNFIT
            assert "a step of one that was killed" in capsys.readouterr().err
        finally:
            os.kill(pid, signal.SIGKILL)
    assert statuses(folder) == {"one": Status.PASSED}
