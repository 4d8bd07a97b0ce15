from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from evidence import campaign_process
from evidence.campaign_process import Cut, Ended, run

#: Long enough to be noticed where nobody ends it.
LONG_S = 60
START = "import os, signal, subprocess, sys, time; print('began', flush=True)\n"
SLEEP = f"time.sleep({LONG_S})\n"
DEAF = "for sent in (signal.SIGINT, signal.SIGTERM): signal.signal(sent, signal.SIG_IGN)\nprint('deaf', flush=True)\n"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_process, "SIGNALS", [(sent, 1.0) for sent, _ in campaign_process.SIGNALS])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "step.log"


def run_python(code: str, log: Path, *, limit_s: float = LONG_S) -> Ended:
    with log.with_name("lock").open("ab") as held:
        return run(
            [sys.executable, "-c", START + code],
            log=log,
            cwd=log.parent,
            environment={**os.environ, "NAMED": "yes"},
            limit_s=limit_s,
            held=held.fileno(),
        )


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_both_streams_go_behind_what_the_log_has(log: Path) -> None:
    log.write_text("before\n", encoding="utf-8")

    ended = run_python("print(os.environ['NAMED'], os.getcwd()); sys.exit('wrong')", log)

    assert (ended.exit_code, ended.cut, ended.left) == (1, None, ())
    assert log.read_text(encoding="utf-8").splitlines() == ["before", "began", f"yes {log.parent}", "wrong"]


def test_a_process_whose_time_is_up_may_clean_up(log: Path) -> None:
    ended = run_python(f"try: {SLEEP}finally: print('cleaned')\n", log, limit_s=3.0)

    assert ended.cut is Cut.LIMIT
    assert ended.seconds < LONG_S / 2
    assert "cleaned" in log.read_text(encoding="utf-8")


def test_one_that_hears_of_nothing_is_killed(log: Path) -> None:
    ended = run_python(DEAF + SLEEP, log, limit_s=3.0)

    assert "deaf" in log.read_text(encoding="utf-8")
    assert (ended.exit_code, ended.cut, ended.left) == (-signal.SIGKILL, Cut.LIMIT, ())
    assert ended.seconds < LONG_S / 2


@pytest.mark.parametrize("limit_s", [3.0, LONG_S], ids=["stopped", "ended by itself"])
def test_nothing_that_it_started_is_left_not_even_in_sessions_of_its_own(log: Path, limit_s: float) -> None:
    child = [sys.executable, "-c", START + DEAF + SLEEP]
    started = f"for apart in (False, True):\n    print(subprocess.Popen({child!r}, start_new_session=apart).pid)\n"
    ended = run_python(started + ("sys.stdout.flush()\n" + SLEEP if limit_s < LONG_S else ""), log, limit_s=limit_s)

    pids = [int(line) for line in log.read_text(encoding="utf-8").splitlines() if line.isdecimal()]
    assert len(pids) == 2
    assert [pid for pid in pids if is_running(pid)] == []
    assert ended.left == ()


def test_other_children_of_the_campaign_are_left_alone(log: Path) -> None:
    other = os.posix_spawn("/bin/sleep", ["sleep", str(LONG_S)], os.environ)
    try:
        run_python("", log)
        assert is_running(other)
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def test_who_cannot_be_ended_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_process, "SWEEP_S", 0.1)
    children = iter([set[int]()])
    monkeypatch.setattr(campaign_process, "_children", lambda: next(children, {2**22 + 1}))  # beyond what Linux numbers

    assert run_python("", log).left == (2**22 + 1,)


def test_a_second_interrupt_does_not_wait_for_a_clean_end(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_process, "SIGNALS", [(sent, LONG_S) for sent, _ in campaign_process.SIGNALS])
    interrupts = f"for _ in range(3):\n    time.sleep(1); os.kill({os.getpid()}, signal.SIGINT)\n" + SLEEP
    begun = time.monotonic()

    ended = run_python(DEAF + interrupts, log)

    assert ended.cut is Cut.INTERRUPT
    assert ended.exit_code == -signal.SIGKILL
    assert time.monotonic() - begun < LONG_S / 2
