from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evidence import candidates
from evidence.candidates import Findings, compile_all, line, run, table, write
from evidence.race import Entry, Outcome, Point, Ratio

from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from evidence.race import Experiment

#: A module of its own, so that the process that races can import it. A candidate does what its name says.
STAND_IN = """
import os
import time
from functools import partial
from pathlib import Path

from evidence.race import Contest, Point

SECONDS = {"peer": 2.0, "fast": 1.0, "hangs": 0.5, "dies": 0.5, "breaks": 0.5}


class Dealt:
    def take(self, names, rounds):
        return [{name: SECONDS[name] for name in names} for _ in range(rounds)]


class StandIn:
    def __init__(self, folder, candidates, source="one", points=2):
        self.folder, self.candidates, self.source, self.number = Path(folder), candidates, source, points

    def points(self):
        return [Point(name=f"64 causal {512 << n}", group="64 causal", flops=1e12) for n in range(self.number)]

    def compilations(self, point):
        return [partial(compiled, str(self.folder), name) for name in self.candidates]

    def contest(self, point):
        (self.folder / "pid").write_text(str(os.getpid()))
        with (self.folder / "contests").open("a") as file:
            file.write(point.name + "\\n")
        return Contest(
            peers={"peer": lambda: partial(called, "peer")},
            candidates={name: partial(partial, called, name) for name in self.candidates},
            wrong=lambda call: call(0),
            sets=2,
        )

    def turns(self, calls, sets):
        return Dealt()

    def is_alive(self):
        return not Dealt.broken

    def about(self):
        return {"gpu": "none"}


Dealt.broken = False


def called(name, index):
    if name == "hangs":
        time.sleep(600)
    if name == "dies":
        os._exit(3)
    if name == "breaks":
        Dealt.broken = True
        raise RuntimeError("illegal address")
    return ""


def compiled(folder, name):
    if name == "dies":
        raise RuntimeError("no such layout")
    if name == "crashes":
        os._exit(3)
    (Path(folder) / f"compiled-{name}").touch()
"""


class Made:
    """The stand-in's module, importable here and in new interpreters, which get this one's path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "racing_stand_in.py").write_text(STAND_IN)

    def experiment(self, *names: str, source: str = "one", points: int = 2) -> Experiment:
        module = importlib.import_module("racing_stand_in")
        made: Experiment = module.StandIn(str(self.folder), names, source, points)
        return made

    @property
    def contests(self) -> list[str]:
        return (self.folder / "contests").read_text().splitlines()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "racing_stand_in", raising=False)
    return Made(tmp_path)


def comes_true(condition: Callable[[], bool], within_s: float = 30.0) -> bool:
    ends = time.monotonic() + within_s
    while not condition() and time.monotonic() < ends:
        time.sleep(0.05)
    return condition()


def has_ended(stat: Path) -> bool:
    """Tell whether a process is gone, or only waits for a parent that in a container may never ask."""
    try:
        return stat.read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_who_hangs_dies_or_breaks_the_context_is_banned_and_the_rest_is_raced(made: Made) -> None:
    out = made.folder / "out.json"

    found = run(made.experiment("fast", "hangs", "dies", "breaks"), out, seconds=600, step_s=1.5, start_s=60)

    assert ["fast", "fast"] == [outcome.winner for outcome in found.outcomes]
    assert {"hangs", "dies", "breaks"} == found.banned.keys()
    assert "hung for 2 s at 64 causal 512" == found.banned["hangs"]
    assert "ended the process at 64 causal 512" == found.banned["dies"]
    assert "illegal address" in found.banned["breaks"]
    assert ["64 causal 512"] * 4 + ["64 causal 1024"] == made.contests
    assert found == from_json(out.read_bytes(), Findings)


def test_a_run_goes_on_where_the_one_before_it_stopped(made: Made) -> None:
    out = made.folder / "out.json"
    assert 1 == len(run(made.experiment("fast", points=1), out, seconds=600).outcomes)

    assert 2 == len(run(made.experiment("fast"), out, seconds=600).outcomes)
    assert ["64 causal 512", "64 causal 1024"] == made.contests

    assert ["64 causal 1024"] == [
        outcome.point.name
        for outcome in run(made.experiment("fast", source="two"), out, seconds=600, words=["1024"]).outcomes
    ]


def test_a_run_takes_the_points_that_it_is_told_of(made: Made) -> None:
    for words, taken in (
        (["512,2048"], ["64 causal 512", "64 causal 2048"]),
        (["causal", "1024,4096"], ["64 causal 1024"]),
        (["full,causal", "256"], []),
    ):
        out = made.folder / f"{words[-1]}.json"
        found = run(made.experiment("fast", points=3), out, seconds=600, words=words)

        assert taken == [outcome.point.name for outcome in found.outcomes]


def test_who_hung_is_written_down_though_no_time_is_left_for_the_point(made: Made) -> None:
    out = made.folder / "new" / "out.json"

    found = run(made.experiment("hangs", "dies", "fast"), out, seconds=0.5, step_s=1.5, start_s=60)

    assert {"hangs"} == found.banned.keys()
    assert () == found.outcomes
    assert found == from_json(out.read_bytes(), Findings)


def test_who_hangs_does_not_outlive_a_run_that_is_killed(made: Made) -> None:
    pid = made.folder / "pid"
    program = (
        "from pathlib import Path; from evidence.candidates import run; from racing_stand_in import StandIn; "
        f"run(StandIn({str(made.folder)!r}, ('hangs',)), Path({str(made.folder / 'out.json')!r}), seconds=600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as parent:
        assert comes_true(lambda: pid.exists() and bool(pid.read_text()))
        parent.kill()

    assert comes_true(lambda: has_ended(Path("/proc", pid.read_text(), "stat")))


def test_a_full_disk_leaves_what_was_written_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    before = Findings(source="", outcomes=(OUTCOME,))
    write(before, out)

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write(replace(before, banned={"a": "hung"}), out)

    assert before == from_json(out.read_bytes(), Findings)


def test_nothing_is_raced_beside_who_was_killed_and_does_not_end(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.process.BaseProcess.is_alive", lambda _self: True)
    out = made.folder / "out.json"

    with pytest.raises(RuntimeError, match="does not end"):
        run(made.experiment("dies", "fast"), out, seconds=600)

    assert {"dies"} == from_json(out.read_bytes(), Findings).banned.keys()


def test_no_point_is_begun_without_time_for_it(made: Made) -> None:
    found = run(made.experiment("fast"), made.folder / "out.json", seconds=0)

    assert () == found.outcomes


def test_a_compiler_that_ends_its_process_does_not_cost_all_the_time(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "STALL_SECONDS", 3.0)

    compile_all(
        [*made.experiment("crashes", "fast").compilations(Point(name="", group="", flops=1.0))], 2, timeout_s=600
    )

    assert "nothing for 3 s" in capsys.readouterr().err


def test_jobs_are_compiled_beside_each_other_and_failures_told(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = made.experiment("fast", "dies")

    compile_all(list(experiment.compilations(experiment.points()[0])), 2, timeout_s=60)

    assert (made.folder / "compiled-fast").exists()
    assert "RuntimeError: no such layout" in capsys.readouterr().err


OUTCOME = Outcome(
    point=Point(name="64 causal 512", group="64 causal", flops=3e11),
    entries=(
        Entry(name="a", peer=False, seconds=1e-3, rounds=30),
        Entry(name="cudnn", peer=True, seconds=1.5e-3, rounds=24),
        Entry(name="b", peer=False, reason="is NaN"),
    ),
    winner="a",
    ratios=(Ratio(peer="cudnn", speed=1.5, lower=1.49, upper=1.51),),
)


def test_the_table_has_rates_ratios_and_means_by_group() -> None:
    slower = replace(
        OUTCOME,
        point=replace(OUTCOME.point, name="64 causal 1024"),
        ratios=(Ratio(peer="cudnn", speed=1.5**-1, lower=0.6, upper=0.7),),
    )
    findings = Findings(source="", about={"gpu": "H200"}, outcomes=(OUTCOME, slower), banned={"c": "hung"})

    assert [
        "64 causal 512: a 300.0 | cudnn 200.0, 1.500 [1.490, 1.510] | not timed: b is NaN",
        "64 causal 1024: a 300.0 | cudnn 200.0, 0.667 [0.600, 0.700] | not timed: b is NaN",
        "64 causal, 2 points: 1.000 of best peer, 1.000 of cudnn",
        "banned: c hung",
    ] == list(table(findings))[1:]


def test_a_point_without_a_winner_says_why() -> None:
    nothing = replace(OUTCOME, winner="", ratios=(), reason="no candidate is right")

    assert "64 causal 512: no candidate is right b is NaN" == line(nothing)


def test_the_table_of_a_file_is_printed_without_racing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    out.write_bytes(to_json(Findings(source="", outcomes=(OUTCOME,))))

    candidates.main(None, [str(out), "--table"], "program", "")  # type: ignore[arg-type] # nothing is asked of it

    assert "a 300.0" in capsys.readouterr().out
