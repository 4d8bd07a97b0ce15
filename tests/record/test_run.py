from __future__ import annotations

import json
import math
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.record.fakes import CASES, FACT, H200, TUNED, FakeWatch

from flopwatch.errors import ExitCode, GitError, MachineError, UndecidedError, UsageError
from flopwatch.gate.sides import Arm
from flopwatch.model import Choice
from flopwatch.record import store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.record.conftest import Repository
    from tests.record.fakes import Board

    from flopwatch.record import Recording

    Record = Callable[..., Recording]

#: The cases in asv's order.
OURS, PEER, LARGE, _, RARE, SKIPPED = range(6)
RATIO = "ratio_to_anchor"
HARDWARE_THERMAL_BIT = 0x40


def ids(board: Board) -> list[str]:
    """Return the cases that were timed since the last call."""
    found = [case for _, case in board.asked]
    board.asked.clear()
    return found


def test_each_metric_is_stored_under_the_name_that_asv_gives_it(repository: Repository, record: Record) -> None:
    commit = repository.commit(2e-3)

    found = record()

    assert (found.exit_code, found.commits[0].cases, found.commits[0].failed) == (ExitCode.OK, 5, 0)
    time = repository.row(commit, "time")
    assert time["result"][OURS] == pytest.approx(2e-3, rel=1e-3)
    assert (time["stats_number"][OURS], time["stats_repeat"][OURS], time.get("samples")) == (1, 40, None)
    assert time["stats_ci_99_a"][OURS] < 2e-3 < time["stats_ci_99_b"][OURS]
    assert math.isnan(time["result"][SKIPPED])
    stored = {metric: repository.row(commit, metric)["result"][OURS] for metric in ("max_diff", "max_diff_eps")}
    assert stored == {"max_diff": 1e-3, "max_diff_eps": 2.0}
    stored = {metric: repository.row(commit, metric)["result"][OURS] for metric in ("peak_memory", "registers")}
    assert stored == {"peak_memory": 4096, "registers": 64}
    stored = {metric: repository.row(commit, metric)["result"][OURS] for metric in ("spills", "shared_memory")}
    assert stored == {"spills": 12, "shared_memory": 1024}
    assert repository.row(commit, "idle_warp_slots")["result"][OURS] == 75
    assert math.isnan(repository.row(commit, "registers")["result"][PEER])


def test_gpu_and_toolchain_are_axes_and_what_changes_by_itself_is_in_the_sidecar(
    repository: Repository, record: Record
) -> None:
    commit = repository.commit(2e-3)
    record()

    stored = repository.result(commit)
    assert stored["env_name"] == "shared-py3.11-gpuNVIDIA H200-torch2.11.0-triton3.6.0"
    assert {key: stored["params"][key] for key in ("machine", "gpu", "torch", "triton", "os")} == {
        "machine": "lab",
        "gpu": "NVIDIA H200",
        "torch": "2.11.0",
        "triton": "3.6.0",
        "os": "Linux",
    }
    session = repository.lines(commit)[0].session
    assert session is not None
    assert session.machine.gpu is not None
    assert session.machine.gpu.driver == "580.65"
    assert "580.65" not in json.dumps(stored)
    snapshot = repository.logs(commit)[0].snapshot
    assert snapshot is not None
    assert snapshot.temperature_c == 40


def test_samples_are_kept_on_request(repository: Repository, record: Record) -> None:
    commit = repository.commit(2e-3)

    record(samples=True)

    assert len(repository.row(commit, "time")["samples"][OURS]) == 40


def test_a_failure_is_null_and_its_cause_in_the_sidecar(repository: Repository, record: Record, board: Board) -> None:
    commit = repository.commit(2e-3)
    board.failing["large"] = "planted"

    found = record()

    assert found.exit_code == ExitCode.OK
    assert {(failure.case, failure.failure.message) for failure in found.commits[0].failures} == {
        (case.id, "planted") for case in CASES if case.values[0] == "large"
    }
    assert repository.row(commit, "time")["result"][LARGE] is None
    assert repository.row(commit, "registers")["result"][LARGE] == 64
    (missing,) = repository.logs(commit)[LARGE].missing
    assert (missing.metrics, missing.failure.kind) == (("time",), "OutOfResources")


def test_what_a_case_ran_in_is_in_the_sidecar(repository: Repository, record: Record) -> None:
    commit = repository.commit(2e-3)

    record()

    logs = repository.logs(commit)
    assert logs[OURS].compiled == (Choice(kernel="k", key=FACT.variant, config=FACT.config),)
    assert logs[OURS].choices == (Choice(kernel="k", key="1024", config=TUNED),)
    assert (logs[PEER].compiled, logs[PEER].choices) == ((), None)


def test_the_dashboard_names_the_configuration_that_changed(repository: Repository, record: Record) -> None:
    repository.commit(2e-3)
    changed = repository.commit("SECONDS = 2e-3\nWARPS = 8\n")
    record("ALL")

    repository.asv("publish", "--no-pull")

    found = json.loads((repository.root / "html" / "changes.json").read_bytes())["changes"]
    assert {(change["metric"], change["first"]) for change in found} == {("registers", changed)}
    assert {tuple(change["suspects"]) for change in found} == {("num_warps 4 → 8",)}


def test_what_a_case_ran_in_is_not_known_where_it_did_not(repository: Repository, record: Record, board: Board) -> None:
    commit = repository.commit(2e-3)
    board.failing |= {"small": "never ran", "uncaptured large": "not again", "static rare": "does not compile"}

    found = record()

    logs = repository.logs(commit)
    assert [logs[case].choices is None for case in (OURS, LARGE, RARE)] == [True, True, False]
    assert [logs[case].compiled == () for case in (OURS, LARGE, RARE)] == [False, False, True]
    # What is asked for the sidecar alone fails without a trace in the history.
    assert {failure.case for failure in found.commits[0].failures if "large" in failure.case} == set()
    assert repository.row(commit, "time")["result"][LARGE] == pytest.approx(2e-3, rel=1e-3)


def test_what_cases_launch_is_compiled_before_the_first_of_them_is_timed(
    repository: Repository, record: Record, board: Board
) -> None:
    anchor = repository.commit(2e-3)
    commit = repository.commit(1e-3)

    record(f"{commit}^!", anchor=anchor)

    own = [case.id for case in CASES if case.provider == "flopwatch"]
    assert sorted(board.compiled, key=str) == sorted(((arm, case, 0) for arm in Arm for case in own), key=str)


def test_nothing_is_compiled_ahead_for_one_case(repository: Repository, record: Record, board: Board) -> None:
    record(f"{repository.commit(1e-3)}^!", select="large")

    assert board.asked
    assert not board.compiled


def test_nothing_but_failures_is_nothing_recorded(repository: Repository, record: Record, board: Board) -> None:
    repository.commit(2e-3)
    board.failing |= dict.fromkeys(("small", "large", "rare"), "planted")

    assert record().exit_code == ExitCode.UNDECIDED


def test_what_is_recorded_is_skipped_unless_it_is_wanted_again(
    repository: Repository, record: Record, board: Board
) -> None:
    first = repository.commit(2e-3)
    record()
    second = repository.commit(1e-3)
    ids(board)

    found = record("ALL")

    assert [(entry.commit, entry.cases, entry.before) for entry in found.commits] == [(first, 0, 5), (second, 5, 0)]
    assert ids(board) == [case.id for case in CASES]
    record(first, again=True)
    assert ids(board) == [case.id for case in CASES]


def test_new_is_what_came_since_the_last_recorded_commit_the_oldest_first(
    repository: Repository, record: Record
) -> None:
    repository.commit(4e-3)
    repository.commit(3e-3)
    record()
    later = [repository.commit(seconds) for seconds in (2e-3, 1e-3)]

    assert [entry.commit for entry in record("NEW").commits] == later
    assert record("NEW").commits == ()


def test_a_selection_leaves_the_other_cases_for_later(repository: Repository, record: Record, board: Board) -> None:
    commit = repository.commit(2e-3)

    record(select="LARGE")
    assert ids(board) == [CASES[2].id, CASES[3].id]
    assert math.isnan(repository.row(commit, "time")["result"][OURS])

    record()
    assert ids(board) == [case.id for case in CASES if case.values[0] != "large"]
    assert repository.row(commit, "time")["result"][LARGE] == pytest.approx(2e-3, rel=1e-3)
    with pytest.raises(UndecidedError, match="no case matches 'huge'"):
        record(select="huge")


@pytest.mark.parametrize("kernel", ["raise RuntimeError('planted at import')\n", "import os; os._exit(7)\n"])
def test_a_commit_that_cannot_be_imported_is_recorded_as_failed_and_the_range_goes_on(
    repository: Repository, record: Record, kernel: str
) -> None:
    good = repository.commit(2e-3)
    broken = repository.commit(kernel)
    after = repository.commit(1e-3)

    found = record("ALL")

    assert found.exit_code == ExitCode.OK
    assert [(entry.commit, entry.cases, entry.failed) for entry in found.commits] == [
        (good, 5, 0),
        (broken, 5, 5),
        (after, 5, 0),
    ]
    causes = {failure.failure.message for failure in found.commits[1].failures}
    assert causes <= {"RuntimeError: planted at import", "exit status 7 during hello"}
    assert {"time", "registers"} <= set(repository.logs(broken)[0].missing[0].metrics)
    assert repository.row(broken, "time")["result"][:SKIPPED] == [None] * 5
    assert [entry.cases for entry in record("ALL").commits] == [0, 0, 0]


def test_the_ratio_to_the_anchor_is_stored_beside_the_seconds_whatever_the_coin_says(
    repository: Repository, record: Record, board: Board
) -> None:
    anchor = repository.commit(2e-3)
    commit = repository.commit(3e-3)

    found = record(anchor=anchor[:8])

    assert found.anchor == anchor
    assert repository.row(commit, "time")["result"][OURS] == pytest.approx(3e-3, rel=1e-3)
    ratios = repository.row(commit, RATIO)["result"]
    assert [ratios[index] for index in (OURS, LARGE, RARE)] == pytest.approx([1.5] * 3)
    assert math.isnan(ratios[PEER])
    assert {arm for arm, _ in board.visited} == set(Arm)
    paired = [log for log in repository.logs(commit) if log.anchor]
    assert [log.commit_slot for log in paired] == [0, 1, 0]
    assert [(log.pair_seconds, log.anchor_seconds) for log in paired] == [(3e-3, 2e-3)] * 3


def test_asv_compares_the_ratios_too(repository: Repository, record: Record) -> None:
    anchor = repository.commit(2e-3)
    repository.commit(3e-3)
    record("ALL", anchor=anchor)

    table = repository.asv("compare", "--machine", "lab", "HEAD~1", "HEAD").splitlines()

    (line,) = (line for line in table if "track_ratio_to_anchor('small', 'flopwatch')" in line)
    mark, before, after = (cell.strip() for cell in line.split("|")[1:4])
    assert mark == "+"
    assert (float(before), float(after)) == pytest.approx((1.0, 1.5))


def test_ratios_to_another_anchor_are_another_series(repository: Repository, record: Record, board: Board) -> None:
    first = repository.commit(2e-3)
    second = repository.commit(1e-3)
    commit = repository.commit(3e-3)
    record(anchor=first)
    version = repository.row(commit, RATIO)["version"]
    ids(board)

    record(anchor=second)

    assert ids(board) == [case.id for case in CASES if case.provider == "flopwatch"]
    assert repository.row(commit, RATIO)["result"][OURS] == pytest.approx(3.0)
    assert repository.row(commit, RATIO)["version"] != version
    record()
    assert ids(board) == []


@pytest.mark.parametrize(("arm", "whose"), [("base", "the anchor"), ("head", "the commit")])
def test_who_failed_in_a_pair_is_told(
    repository: Repository, record: Record, board: Board, arm: str, whose: str
) -> None:
    anchor = repository.commit(2e-3)
    board.failing[f"{arm} large"] = "planted"

    record(anchor=anchor)

    assert repository.row(anchor, RATIO)["result"][LARGE] is None
    assert repository.row(anchor, "time")["result"][LARGE] == pytest.approx(2e-3, rel=1e-3)
    (missing,) = repository.logs(anchor)[LARGE].missing
    assert (missing.metrics, missing.failure.message) == ((RATIO,), f"{whose}, in a pair: planted")


def test_a_commit_that_always_runs_at_another_clock_has_a_ratio(
    repository: Repository, record: Record, board: Board
) -> None:
    anchor = repository.commit(2e-3)
    board.clocks_mhz[Arm.BASE] = 1900

    record(anchor=anchor, select="rare")

    assert repository.row(anchor, RATIO)["result"][RARE] == pytest.approx(1.0, rel=1e-2)
    assert repository.logs(anchor)[0].missing == ()


def test_a_pair_during_which_the_gpu_slows_down_is_no_ratio(
    repository: Repository, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = repository.commit(2e-3)
    monkeypatch.setattr(FakeWatch, "reason_bits", lambda _watch: HARDWARE_THERMAL_BIT)

    record(anchor=anchor, select="rare")

    (missing,) = repository.logs(anchor)[0].missing
    assert (missing.metrics, missing.failure.kind) == ((RATIO,), "UnfitPair")
    assert "the GPU slowed down" in missing.failure.message


def test_the_anchor_of_the_settings_can_be_switched_off(repository: Repository, record: Record, board: Board) -> None:
    repository.commit(2e-3)
    repository.git("tag", "v1")
    repository.commit(3e-3)
    project = (repository.root / "pyproject.toml").read_text(encoding="utf-8")
    repository.write("pyproject.toml", project + 'anchor = "v1"\n')

    assert record(anchor="").anchor == ""
    assert board.visited == []
    assert record().anchor == repository.git("rev-parse", "v1")
    assert board.visited != []


def test_an_anchor_that_cannot_be_imported_is_an_error(repository: Repository, record: Record) -> None:
    anchor = repository.commit("raise RuntimeError('planted at import')\n")
    repository.commit(2e-3)

    with pytest.raises(UsageError, match=f"the anchor {anchor[:8]} cannot be measured"):
        record(anchor=anchor)


def test_an_anchor_that_is_no_commit_is_an_error_with_a_gpu_and_without(
    repository: Repository, record: Record, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(2e-3)
    project = (repository.root / "pyproject.toml").read_text(encoding="utf-8")
    repository.write("pyproject.toml", project + 'anchor = "v1.0"\n')

    with pytest.raises(GitError, match=r"anchor in \[tool\.flopwatch\]: no commit 'v1\.0'"):
        record()
    with pytest.raises(GitError, match=r"--anchor: no commit 'v2\.0'"):
        record(anchor="v2.0")
    monkeypatch.setattr(store, "probe_interpreter", lambda _: replace(H200, gpu=None))
    with pytest.raises(GitError, match=r"anchor in \[tool\.flopwatch\]: no commit 'v1\.0'"):
        record()
    assert board.asked == []


def test_a_gpu_that_is_lost_is_no_failure_of_the_commit(repository: Repository, record: Record, board: Board) -> None:
    commit = repository.commit(2e-3)
    board.failing["large"] = "unspecified launch failure"
    original = board.asked

    class Losing(list[tuple[float, str]]):
        def append(self, item: tuple[float, str]) -> None:
            super().append(item)
            board.lost = "large" in item[1]

    board.asked = Losing(original)
    found = record()

    assert (found.exit_code, found.unfit) == (ExitCode.UNFIT, "the GPU no longer answers")
    assert [log.case for log in repository.logs(commit)] == [CASES[0].id, CASES[1].id]
    board.lost = True
    with pytest.raises(MachineError):
        record()


def test_a_neighbour_on_the_gpu_is_told(repository: Repository, record: Record, board: Board) -> None:
    repository.commit(2e-3)
    board.foreign = (4711,)

    found = record()

    assert found.exit_code == ExitCode.UNFIT
    assert "another process (4711)" in found.commits[0].unfit


def test_an_interrupt_loses_one_case_and_the_next_recording_goes_on(
    repository: Repository, record: Record, board: Board
) -> None:
    repository.commit(4e-3)
    repository.commit(2e-3)
    board.interrupt_at = CASES[3].id

    found = record("ALL")

    assert (found.interrupted, found.exit_code) == (True, ExitCode.UNDECIDED)
    assert [entry.cases for entry in found.commits] == [3]
    board.interrupt_at = ""
    ids(board)
    assert [(entry.cases, entry.before) for entry in record("NEW").commits] == [(2, 3), (5, 0)]
    assert ids(board)[:2] == [CASES[3].id, CASES[4].id]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, ExitCode.UNDECIDED), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_process_that_is_stopped_leaves_a_result_that_asv_reads(
    repository: Repository, record: Record, board: Board, number: signal.Signals, code: int
) -> None:
    commit = repository.commit(2e-3)
    process = repository.start("HEAD^!", hang_at=CASES[3].id)
    process.send_signal(number)
    output = process.communicate(timeout=60)[0]

    assert process.returncode == code
    assert output == ("interrupted: True\n" if number is signal.SIGINT else "")
    (path,) = repository.root.glob("results/*/*-*.json")
    name = path.parent.name
    times = repository.row(commit, "time")["result"]
    assert [math.isnan(value) for value in times] == [False, False, False, True, True, True]
    assert f"Commit: {commit[:8]}" in repository.asv("show", "--machine", name, commit)
    assert record(machine=name).commits[0].cases == 2
    assert ids(board) == [CASES[3].id, CASES[4].id]


def test_the_range_must_be_one(repository: Repository, record: Record) -> None:
    repository.commit(2e-3)

    with pytest.raises(GitError, match=r"no range 'no\.\.where'"):
        record("no..where")
    with pytest.raises(UsageError, match=r"no commit in HEAD\.\.HEAD"):
        record("HEAD..HEAD")
