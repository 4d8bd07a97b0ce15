from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from evidence import peer_turns, peers
from evidence.peer_records import Peers, read
from tests.compare.conftest import PLAN, FakeWatch, FakeWorker, Gpu, declared
from tests.evidence.test_peer_records import BESIDE

from flopwatch.config import Config
from flopwatch.errors import ExitCode, MachineError, SuiteError, UndecidedError, UsageError
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.protocol import Method

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flopwatch.measure.client import Mode, Worker
    from flopwatch.measure.protocol import Plan, Prepared
    from flopwatch.model import Case, Choice

NAMES = ("flopwatch", "cudnn", "flash4")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A machine whose workers are stand-ins: two suites, the first with two peers."""
    machine = Gpu(
        declared=(*(declared("Attention", name) for name in NAMES), declared("Matmul"), declared("Matmul", "torch")),
        seconds={("Attention", "cudnn"): 2e-5, ("Attention", "flash4"): 5e-6},
    )

    def worker(_sides: Sides, _mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        assert not anew
        return cast("Worker", FakeWorker(arm, machine))

    monkeypatch.setattr(peer_turns, "SETTLE_S", 0.0)  # a stand-in would be visited all the while
    monkeypatch.setattr(Sides, "worker", worker)
    monkeypatch.setattr(Sides, "start_nurseries", lambda _sides: None)
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", lambda: {"GPU-0": "NVIDIA H200"})
    monkeypatch.setattr(peers, "Watch", lambda _uuid: FakeWatch(processes=()))
    return machine


def measured(out: Path, *, only: str = "*", seconds: float = 1e6) -> Peers:
    return peers.measure(out, seconds=seconds, only=only, command="python -m evidence.peers")


@pytest.mark.usefixtures("gpu")
def test_ours_is_told_in_units_of_each_peer(tmp_path: Path) -> None:
    found = measured(tmp_path / "peers.json")

    assert [(each.point, each.peer) for each in found.beside] == [
        (("Matmul", "1024"), "torch"),
        (("Attention", "1024"), "cudnn"),
        (("Attention", "1024"), "flash4"),
    ]
    _, cudnn, flash4 = found.beside
    assert cudnn.case.speed is not None
    assert cudnn.case.speed.estimate == pytest.approx(math.log(2), abs=0.005)
    assert cudnn.case.speed.estimate == pytest.approx(sum(cudnn.log_ratios) / 3)
    assert cudnn.error is not None
    assert 0 < cudnn.error < 0.01
    assert cudnn.case.head.case.provider == "flopwatch"
    assert cudnn.case.head.seconds == pytest.approx(1e-5, rel=0.01)
    assert cudnn.case.base.seconds == pytest.approx(2e-5, rel=0.01)
    assert cudnn.case.head.launch_seconds == pytest.approx(2e-5)
    assert flash4.case.speed is not None
    assert flash4.case.speed.estimate == pytest.approx(-math.log(2), abs=0.005)
    assert flash4.case.head.seconds == cudnn.case.head.seconds
    assert read(tmp_path / "peers.json") == found


@pytest.mark.usefixtures("gpu")
def test_a_measurement_names_what_brought_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "flash_attn_4-4.0.0b36.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: flash-attn-4\nVersion: 4.0.0b36\n")
    monkeypatch.syspath_prepend(tmp_path)

    (sitting,) = measured(tmp_path / "peers.json", only="*torch*").sittings

    assert sitting.machine.versions["flash-attn-4"] == "4.0.0b36"
    assert sitting.machine.versions["triton"]


def test_a_kernel_is_checked_once_for_all_its_peers(gpu: Gpu, tmp_path: Path) -> None:
    measured(tmp_path / "peers.json")

    assert Counter(name for _, name, _ in gpu.ran) == dict.fromkeys((entry.case.id for entry in gpu.declared), 3)


def test_what_the_tuner_chose_first_is_measured_in_every_process(gpu: Gpu, tmp_path: Path) -> None:
    gpu.choices[("Matmul", "head")] = ["tall", "wide", "small"]
    (found,) = measured(tmp_path / "peers.json", only="*torch*").beside

    assert {pins for _, name, pins in gpu.ran if name == "Matmul[1024,flopwatch]"} == {("tall",)}
    assert [(choice.config, choice.timings_us) for choice in found.case.head.choices] == [("tall", {})]


def test_who_fails_beside_others_drops_out_and_they_start_over(gpu: Gpu, tmp_path: Path) -> None:
    gpu.failing_in_pairs["Attention[1024,cudnn]"] = "no memory for it"
    found = measured(tmp_path / "peers.json", only="Attention*")

    assert [(each.peer, each.case.reason) for each in found.beside] == [
        ("cudnn", "cudnn fails (WorkerDied: no memory for it)"),
        ("flash4", ""),
    ]
    assert [len(each.log_ratios) for each in found.beside] == [0, 3]


def test_a_drift_cancels(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.noise = 0.0
    visit = FakeWorker.visit

    def slower_and_slower(self: FakeWorker, case: Case, samples: int) -> tuple[float, ...]:
        return tuple(seconds * (1 + 1e-3 * gpu.visits) for seconds in visit(self, case, samples))

    monkeypatch.setattr(FakeWorker, "visit", slower_and_slower)
    (found,) = measured(tmp_path / "peers.json", only="*torch*").beside

    assert found.log_ratios == pytest.approx([0.0] * 3, abs=1e-12)


def test_nobody_is_timed_who_is_wrong_on_any_inputs(gpu: Gpu, tmp_path: Path) -> None:
    gpu.errors_eps[("Matmul", "torch")] = 7.985  # each seed adds 0.01; the ceiling is 8
    (found,) = measured(tmp_path / "peers.json", only="*torch*").beside

    assert found.case.reason == "torch is wrong: error 8.01 eps, ceiling 8"
    assert (found.log_ratios, found.case.head.seconds) == ((), None)


def test_a_long_kernel_takes_fewer_rounds_at_every_place(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_turns, "POINT_S", 0.0)
    (found,) = measured(tmp_path / "peers.json", only="*torch*").beside

    assert len(found.log_ratios) == peer_turns.PROCESSES
    assert gpu.visits == peer_turns.PROCESSES * 3 * (2 + 4)  # at each of three places all once untimed, and a round


@pytest.mark.usefixtures("gpu")
def test_everybody_is_sampled_alike_where_one_cannot_be_captured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepare, events = FakeWorker.prepare, replace(PLAN, method=Method.EVENTS)
    followed: dict[str, Plan] = {}

    def uncaptured(
        self: FakeWorker, case: Case, plan: Plan | None = None, pins: Sequence[Choice] = (), *, beside: bool = False
    ) -> Prepared:
        done = prepare(self, case, plan, pins, beside=beside)
        done = replace(done, plan=events) if case.provider == "flash4" else done
        followed[case.provider] = done.plan
        return done

    monkeypatch.setattr(FakeWorker, "prepare", uncaptured)
    found = measured(tmp_path / "peers.json", only="Attention*")

    assert followed == dict.fromkeys(NAMES, events)
    assert {each.case.method for each in found.beside} == {"events"}
    assert {each.case.head.launch_seconds for each in found.beside} == {None}


def test_a_peer_that_cannot_run_has_a_reason_and_the_others_are_measured(gpu: Gpu, tmp_path: Path) -> None:
    gpu.failing[("Attention", "cudnn")] = "no kernel for this head_dim\n  of several lines"
    gpu.errors_eps[("Matmul", "torch")] = 300.0
    found = measured(tmp_path / "peers.json")

    assert [each.case.reason for each in found.beside] == [
        "torch is wrong: error 300 eps, ceiling 8",
        "cudnn fails (ArithmeticError: no kernel for this head_dim)",
        "",
    ]
    assert [each.case.speed is None for each in found.beside] == [True, True, False]
    failure = found.beside[1].case.base.failure
    assert failure is not None
    assert (failure.message, failure.traceback) == ("no kernel for this head_dim", "")


def test_a_run_goes_on_where_the_one_before_stopped(
    gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "peers.json"
    first = measured(out, seconds=peers.RECKONED_S["torch"] + 1)
    visits = gpu.visits
    told = capsys.readouterr().out.splitlines()

    assert [each.peer for each in first.beside] == ["torch"]  # the others are to take 3.5 s
    assert told[:2] == [
        "2 points: 1 with torch, 1 with cudnn, 1 with flash4",
        "about 6 s in all, of which this run takes 3 s at most",
    ]
    assert told[-1] == "no time for more; run this again to go on"

    second = measured(out)

    assert second.beside[:1] == first.beside
    assert [each.peer for each in second.beside] == ["torch", "cudnn", "flash4"]
    assert 2 * visits < gpu.visits < 3 * visits  # of three kernels, after two
    measured(out)
    assert capsys.readouterr().out.splitlines()[-1] == "nothing is left to measure"


def test_an_interrupted_batch_is_not_kept(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "BATCH", 1)
    gpu.interrupt_after = 300
    found = measured(tmp_path / "peers.json")

    assert len(found.beside) < 3
    assert read(tmp_path / "peers.json").beside == found.beside


def test_what_a_busy_gpu_measured_is_not_kept(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "BATCH", 1)
    watch = FakeWatch(processes=())
    monkeypatch.setattr(peers, "Watch", lambda _uuid: watch)
    worker = FakeWorker.visit

    def visit(self: FakeWorker, *arguments: object) -> tuple[float, ...]:
        watch.processes = (7, 4711)  # somebody else came
        return worker(self, *arguments)  # type: ignore[arg-type] # as given

    monkeypatch.setattr(FakeWorker, "visit", visit)
    with pytest.raises(MachineError, match="the GPU is unfit"):
        measured(tmp_path / "peers.json")
    assert gpu.visits
    assert not (tmp_path / "peers.json").exists()
    assert capsys.readouterr().out.count("the GPU is unfit: what this batch measured is not kept") == peers.MOST_UNFIT


@pytest.mark.usefixtures("gpu")
def test_a_process_in_which_the_gpu_slowed_down_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = FakeWatch(processes=())
    bits = itertools.chain([0b1000000], itertools.repeat(0))
    monkeypatch.setattr(watch, "reason_bits", lambda: next(bits))
    monkeypatch.setattr(peers, "Watch", lambda _uuid: watch)

    found = measured(tmp_path / "peers.json")

    assert {len(each.log_ratios) for each in found.beside} == {2, 3}
    assert (
        "a process could not be used: the GPU slowed down during the pair: hardware thermal slowdown"
        in capsys.readouterr().out
    )


@pytest.mark.usefixtures("gpu")
def test_measurements_of_other_kernels_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "peers.json"
    measured(out, only="*torch*")
    monkeypatch.setattr(peers, "fingerprint", lambda *_: "another")

    with pytest.raises(UsageError, match="is of other kernels") as caught:
        measured(out)
    assert caught.value.why is not None
    assert caught.value.why.endswith("and this has kernels another: measurements of two are no table")


@pytest.mark.usefixtures("gpu")
def test_what_brought_a_peer_is_part_of_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "peer_versions", dict)
    measured(tmp_path / "peers.json", only="*torch*")
    monkeypatch.setattr(peers, "peer_versions", lambda: {"flash-attn-4": "5"})

    with pytest.raises(UsageError) as caught:
        measured(tmp_path / "peers.json")
    assert caught.value.why is not None
    assert caught.value.why.startswith("that has nothing more, and this has flash-attn-4 5:")


@pytest.mark.usefixtures("gpu")
def test_a_pattern_chooses_and_one_without_a_case_is_refused(tmp_path: Path) -> None:
    assert [each.peer for each in measured(tmp_path / "peers.json", only="*flash4*").beside] == ["flash4"]
    with pytest.raises(UndecidedError, match="no peer's case is called 'cublas'") as caught:
        measured(tmp_path / "others.json", only="cublas")
    assert caught.value.why == "the peers are cudnn, flash4, torch, and their cases Attention[1024,cudnn] and the like"


def test_a_suite_that_cannot_be_imported_is_told(gpu: Gpu) -> None:
    gpu.import_failures = {"suites.attention": "ImportError: no backend"}
    hello = FakeWorker(Arm.HEAD, gpu).hello

    with pytest.raises(SuiteError, match="a suite cannot be imported"):
        peers.points(hello, Peers(), "*", Config(packages=("toy",)))


def test_without_a_gpu_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", dict)

    with pytest.raises(MachineError, match="peers are measured on a GPU") as caught:
        measured(tmp_path / "peers.json")
    assert caught.value.exit_code is ExitCode.UNFIT


def test_what_was_measured_tells_how_long_the_rest_takes(gpu: Gpu) -> None:
    hello = FakeWorker(Arm.HEAD, gpu).hello
    every = peers.points(hello, Peers(), "*", Config(packages=("toy",)))
    cases = {case.base.case.provider: case for point in every for case in point}

    assert peers.expected_s(Peers(), cases["flash4"]) == peers.RECKONED_S["flash4"]
    assert peers.expected_s(Peers(), cases["cudnn"]) == peers.RECKONED_OTHERS_S
    with_one = Peers(beside=(replace(BESIDE, seconds=3.0), replace(BESIDE, seconds=5.0)))
    assert peers.expected_s(with_one, cases["torch"]) == 4.0


def test_a_fingerprint_follows_what_files_say_and_are_called(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n", encoding="utf-8")
    before = peers.fingerprint(tmp_path, ("kernels",))
    (folder / "notes.txt").write_text("x", encoding="utf-8")
    assert peers.fingerprint(tmp_path, ("kernels", "kernels")) == before
    (folder / "a.py").rename(folder / "b.py")
    renamed = peers.fingerprint(tmp_path, ("kernels",))
    (folder / "b.py").write_text("x = 2\n", encoding="utf-8")
    other = peers.fingerprint(tmp_path, ("kernels",))
    (folder / "table.json").write_text("{}", encoding="utf-8")
    assert len({before, renamed, other, peers.fingerprint(tmp_path, ("kernels",))}) == 4


def test_a_page_is_not_emptied_by_a_name_that_is_mistyped(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        peers.main(["plots", str(tmp_path / "peers.json")])
    assert caught.value.code == 2
