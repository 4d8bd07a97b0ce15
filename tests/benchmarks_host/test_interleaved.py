from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from benchmarks_host import __main__ as command
from benchmarks_host import interleaved

ROOT = Path(__file__).parents[2]
TIMER = "--benchmark-timer=benchmarks_host.interleaved.elapsed_loops"
BENCHMARK = """
import benchmarks_host.interleaved as interleaved

interleaved.BENCHMARK_S = 0.3

def test_work(benchmark):
    interleaved.measure(benchmark, lambda: [interleaved.calibration_loop() for _ in range({loops})])
"""


class Pedantic:
    """pytest-benchmark's fixture, as far as it is called: it reads the clock around each round."""

    def __init__(self) -> None:
        self.rounds: list[float] = []
        self.extra_info: dict[str, float] = {}

    def pedantic(self, target: Any, *, rounds: int, warmup_rounds: int) -> None:  # noqa: ANN401 - a function
        for number in range(warmup_rounds + rounds):
            before = interleaved.elapsed_loops()
            target()
            if number >= warmup_rounds:
                self.rounds.append(interleaved.elapsed_loops() - before)


@pytest.mark.parametrize("slowness", [1.0, 3.0])
def test_a_slow_machine_slows_both_sides(monkeypatch: pytest.MonkeyPatch, slowness: float) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("time.process_time", lambda: clock.now)

    def loop() -> None:
        clock.now += 1e-5 * slowness

    def work() -> None:
        clock.now += 7e-5 * slowness

    monkeypatch.setattr(interleaved, "calibration_loop", loop)
    benchmark = Pedantic()
    interleaved.measure(cast("Any", benchmark), work)

    assert benchmark.rounds == pytest.approx([7.0] * interleaved.ROUNDS[1])
    assert benchmark.extra_info["microseconds"] == pytest.approx(70 * slowness)


def test_a_round_counts_what_was_not_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0, calls=0)
    monkeypatch.setattr("time.process_time", lambda: clock.now)

    def loop() -> None:
        clock.now += 1e-5

    def work() -> None:
        clock.calls += 1
        clock.now += 7e-5 if clock.calls % 20 else 5e-3  # a neighbour, now and then

    monkeypatch.setattr(interleaved, "calibration_loop", loop)
    benchmark = Pedantic()
    interleaved.measure(cast("Any", benchmark), work)

    assert benchmark.rounds == pytest.approx([7.0] * interleaved.ROUNDS[1])


@pytest.mark.parametrize(("wall_s", "rounds", "visits"), [(0.02, 15, 4), (0.1, 7, 2), (1.0, 5, 2)])
def test_what_waits_long_has_fewer_visits_and_then_fewer_rounds(
    monkeypatch: pytest.MonkeyPatch, wall_s: float, rounds: int, visits: int
) -> None:
    clock = SimpleNamespace(now=0.0, wall=0.0, calls=0)
    monkeypatch.setattr("time.process_time", lambda: clock.now)
    monkeypatch.setattr("time.perf_counter", lambda: clock.wall)

    def loop() -> None:
        clock.now += 1e-5

    def work() -> None:
        clock.calls += 1
        clock.now += 7e-4
        clock.wall += wall_s  # most of it waits for a disk, or for another process

    monkeypatch.setattr(interleaved, "calibration_loop", loop)
    benchmark = Pedantic()
    interleaved.measure(cast("Any", benchmark), work)

    assert benchmark.rounds == pytest.approx([70.0] * rounds)
    assert clock.calls == 3 + visits * (1 + rounds)  # three before the rounds, and a round before those that count


def run(folder: Path, loops: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "bench_work.py").write_text(BENCHMARK.format(loops=loops), encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "benchmarks_host.conftest"]
    options.append("--override-ini=python_files=bench_*.py")
    return subprocess.run(
        [sys.executable, "-m", "pytest", str(folder), f"--rootdir={folder}", *options, TIMER, *arguments],
        cwd=ROOT,
        # Under xdist pytest-benchmark measures nothing.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_slowdown_fails_and_none_passes(tmp_path: Path) -> None:
    stored = tmp_path / "stored.json"
    limit = (f"--benchmark-compare={stored}", "--benchmark-compare-fail=median:45%")
    assert run(tmp_path, 10, f"--benchmark-json={stored}").returncode == 0
    (record,) = json.loads(stored.read_bytes())["benchmarks"]

    assert 9 < record["stats"]["median"] < 13
    assert run(tmp_path, 10, *limit).returncode == 0
    slower = run(tmp_path, 20, *limit)
    assert slower.returncode == 1
    assert "Performance has regressed" in slower.stderr
    assert "Traceback" not in slower.stdout + slower.stderr


def test_a_baseline_is_the_middle_of_its_runs() -> None:
    runs = [
        {"benchmarks": [{"fullname": "b.py::test_a", "extra_info": {}, "stats": {"median": median, "data": [median]}}]}
        for median in (3.0, 1.0, 2.0)
    ]

    (record,) = command.middle(runs)["benchmarks"]
    assert record["stats"] == {"median": 2.0}
    assert record["extra_info"] == {"medians": [1.0, 2.0, 3.0]}


def test_without_a_baseline_it_is_said_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "HERE", tmp_path)

    assert command.main([]) == 2
    assert "nox -s bench -- record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("statuses", "status"),
    [((0, 0), 0), ((0, -11), -11), ((1, 0), 1), ((0, 5), 0), ((5, 0), 0), ((5, 1), 1), ((5, 5), 5)],
)
def test_a_module_that_fails_fails_and_one_of_which_nothing_was_selected_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statuses: tuple[int, int], status: int
) -> None:
    ends = iter(statuses)
    monkeypatch.setattr(command, "_baseline", lambda: tmp_path / "stored.json")
    monkeypatch.setattr(command, "_pytest", lambda *_: SimpleNamespace(returncode=next(ends)))
    (tmp_path / "stored.json").touch()

    assert command.main(["-k", "matmul"]) == status


def test_nothing_is_recorded_of_benchmarks_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_baseline", lambda: tmp_path / "stored.json")
    monkeypatch.setattr(command, "_pytest", lambda *_: SimpleNamespace(returncode=1))

    with pytest.raises(SystemExit, match="1"):
        command.main(["record"])
    assert not (tmp_path / "stored.json").exists()


@pytest.mark.parametrize("option", ["-k=launch", "-klaunch", "--deselect=a"])
def test_a_baseline_of_a_part_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["record", option])
    assert "a baseline has every benchmark" in capsys.readouterr().err


def test_runs_that_differ_by_more_than_the_limit_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    medians = iter([2.0, 2.0, 2.8])

    def run(_others: object) -> dict[str, Any]:
        median = next(medians)
        steady = {"fullname": "b/bench_launch.py::test_steady", "extra_info": {}, "stats": {"median": 2.0}}
        other = {"fullname": "b/bench_launch.py::test_other", "extra_info": {}, "stats": {"median": median}}
        return {"machine_info": {}, "benchmarks": [steady, other]}

    monkeypatch.setattr(command, "_baseline", lambda: tmp_path / "stored.json")
    monkeypatch.setattr(command, "_run", run)

    assert command.main(["record", "--runs=3"]) == 0
    assert (tmp_path / "stored.json").exists()
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("bench_launch.py::test_other: half of its runs differ by 20 %")


@pytest.mark.parametrize("runs", ["0", "-1"])
def test_fewer_runs_than_one_are_refused(runs: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["record", f"--runs={runs}"])
    assert "--runs must be at least 1" in capsys.readouterr().err
