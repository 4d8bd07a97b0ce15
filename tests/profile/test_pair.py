from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.profile.test_run import NCU

from flopwatch.errors import MachineError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm
from flopwatch.measure.process import Code
from flopwatch.measure.protocol import DeclaredCase
from flopwatch.model import Case, Choice, Failure, from_json, to_json
from flopwatch.profile import ProfiledCase, ProfiledPair
from flopwatch.profile.pair import averaged, profile_pair, spread
from flopwatch.profile.request import Answer, Ask

if TYPE_CHECKING:
    from flopwatch.profile.comparison import FramePair

CASE = Case(suite="Matmul", values=("8192x8192x8192", "float16", "flopwatch"))
DECLARED = DeclaredCase(case=CASE, small=CASE, own=True, max_diff_eps=None, flops=1e12, bytes_moved=4e8)
CHOICE = Choice(kernel="matmul_kernel", config="BLOCK_M: 128")
RAN = ProfiledCase(
    case=CASE,
    flops=1e12,
    bytes_moved=4e8,
    calls=6,
    call_seconds=1.52e-3,
    host_seconds=2e-5,
    wall_seconds=1.6e-3,
    choices=(CHOICE,),
)
CODES = {arm: Code(benchmarks=Path("benchmarks"), tree=Path(arm.value)) for arm in Arm}
NO_PINS: dict[Arm, tuple[Choice, ...]] = dict.fromkeys(Arm, ())


@dataclass
class Processes:
    """Stand for the processes that profile: each leaves the tree that Proton recorded, as its side changed it."""

    tree: str
    asked: list[tuple[str, Ask]] = field(default_factory=list)
    answers: dict[str, Answer | None] = field(default_factory=dict)
    slower: list[float] = field(default_factory=lambda: [1.0, 1.5, 1.5, 1.0])

    def __call__(self, ask: Ask, code: Code, folder: Path) -> tuple[list[str], Path]:
        side, answered = str(code.tree), folder / "answer.json"
        self.asked.append((side, ask))
        answer = self.answers.get(side, Answer(gpu="NVIDIA H200", cases=(RAN,)))
        if answer is not None:
            answered.write_bytes(to_json(answer))
        if ask.folder:
            tree = self._of(side, self.slower[len(self.asked) - 1])
            (Path(ask.folder) / "profile.hatchet").write_text(json.dumps(tree), encoding="utf-8")
        return [sys.executable, "-c", "print('Segmentation fault')"], answered

    def _of(self, side: str, slower: float) -> list[Any]:
        tree: list[Any] = json.loads(self.tree)
        scope = next(frame for frame in tree[0]["children"] if frame["frame"]["name"] == CASE.id)
        (kernel,) = scope["children"]
        if side == "head":
            scope["children"].append(json.loads(json.dumps(kernel).replace("matmul_kernel", "cast_kernel")))
        kernel["metrics"]["time (ns)"] *= slower
        return tree


@pytest.fixture
def processes(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    stand_in = Processes((recorded / "profile.hatchet").read_text(encoding="utf-8"))
    monkeypatch.setattr("flopwatch.profile.process.program_of", stand_in)
    monkeypatch.setattr("flopwatch.profile.counters.shutil.which", lambda _name: None)
    monkeypatch.setattr("flopwatch.profile.counters.USUAL_PLACES", ())
    return stand_in


def profiled(pins: dict[Arm, tuple[Choice, ...]] = NO_PINS) -> ProfiledPair:
    return profile_pair(DECLARED, CODES, pins, observer=Observer())


def times(pair: FramePair) -> tuple[float | None, ...]:
    return tuple(round(side.seconds * 1e6, 3) if side else None for side in (pair.base, pair.head))


@pytest.mark.usefixtures("processes")
def test_kernels_of_both_sides_stand_beside_each_other() -> None:
    found = profiled()
    assert [("/".join(pair.path), *times(pair)) for pair in found.frames] == [
        ("", 1500.0, 3750.0),
        ("matmul_kernel", 1500.0, 2250.0),
        ("cast_kernel", None, 1500.0),
    ]
    assert found.gpu == "NVIDIA H200"
    assert (found.base.calls, found.base.host_seconds) == (12, 2e-5)
    assert found.base.kernel_seconds is not None
    assert math.isclose(found.base.kernel_seconds, 1.5e-3)
    assert found.spread == 0.0
    assert from_json(to_json(found), ProfiledPair) == found


def test_the_sides_take_turns_in_processes_of_their_own(processes: Processes) -> None:
    profiled()
    assert [side for side, _ in processes.asked] == ["base", "head", "head", "base"]
    assert {ask.select for _, ask in processes.asked} == {CASE.id}
    assert len({ask.folder for _, ask in processes.asked}) == 4


def test_what_drifts_falls_on_both_sides_alike(processes: Processes) -> None:
    processes.slower = [1.0, 1.1, 1.2, 1.3]
    found = profiled()
    assert times(found.frames[1]) == (1725.0, 1725.0)
    assert found.spread is not None
    assert math.isclose(found.spread, 0.3)


def test_the_first_process_of_a_side_chooses_for_both_and_pins_choose_for_all(processes: Processes) -> None:
    profiled()
    assert [ask.pins for _, ask in processes.asked] == [(), (), (CHOICE,), (CHOICE,)]
    processes.asked.clear()
    other = (replace(CHOICE, config="BLOCK_M: 64"),)
    profiled({Arm.BASE: (CHOICE,), Arm.HEAD: other})
    assert [ask.pins for _, ask in processes.asked] == [(CHOICE,), other, other, (CHOICE,)]


def test_a_side_that_dies_is_not_asked_again_and_costs_not_the_other(processes: Processes) -> None:
    processes.answers["head"] = None
    processes.slower = [1.0] * 3
    found = profiled()
    assert [side for side, _ in processes.asked] == ["base", "head", "base"]
    assert found.head.failure == Failure(
        kind="ProfileFailed", message="the process that profiles died (Segmentation fault)"
    )
    assert [("/".join(pair.path), *times(pair)) for pair in found.frames] == [
        ("", 1500.0, None),
        ("matmul_kernel", 1500.0, None),
    ]
    assert found.notes == ()


def test_a_case_that_fails_has_no_frames_but_its_cause(processes: Processes) -> None:
    failure = Failure(kind="RuntimeError", message="an illegal address")
    failed = Answer(gpu="NVIDIA H200", cases=(replace(RAN, failure=failure),))
    processes.answers |= {"base": failed, "head": failed}
    found = profiled()
    assert (found.base.failure, found.head.failure, found.frames) == (failure, failure, ())
    assert found.spread is None


def test_another_case_whose_name_has_the_case_s_in_it_is_not_taken_for_it(processes: Processes) -> None:
    other = replace(RAN, case=replace(CASE, suite="SparseMatmul"))
    processes.answers["base"] = Answer(gpu="NVIDIA H200", cases=(other,))
    failure = profiled().base.failure
    assert failure is not None
    assert failure.message == f"the suites do not declare {CASE.id} here"


def test_a_machine_that_cannot_profile_is_no_fault_of_a_side(processes: Processes) -> None:
    processes.answers["base"] = Answer(refusal="Triton's profiler, Proton, does not start", unfit=True)
    with pytest.raises(MachineError, match="Proton, does not start"):
        profiled()


@pytest.mark.usefixtures("processes")
def test_why_there_are_no_counters_is_said_in_a_line() -> None:
    (note,) = profiled().notes
    assert note.startswith("no counters: there is no Nsight Compute (ncu is neither on PATH, nor")
    assert "\n" not in note


@pytest.fixture
def ncu(processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Nsight Compute."""
    program = tmp_path / "ncu"
    program.write_text(NCU.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr("flopwatch.profile.counters.shutil.which", lambda _name: str(program))
    assert processes.asked == []
    return program


@pytest.mark.usefixtures("ncu")
def test_counters_are_read_of_each_side_in_what_it_was_profiled_in(processes: Processes) -> None:
    found = profiled()
    for case in (found.base, found.head):
        assert [(launch.kernel, launch.counters["lts__t_sector_hit_rate.pct"]) for launch in case.counters] == [
            ("matmul_kernel", 81.5)
        ]
    assert [(side, ask.once, ask.pins) for side, ask in processes.asked[4:]] == [
        ("base", CASE, (CHOICE,)),
        ("head", CASE, (CHOICE,)),
    ]
    assert len(found.notes) == 1
    assert found.notes[0].startswith("this GPU has no ")


def test_counters_that_are_refused_are_asked_for_once(ncu: Path, processes: Processes) -> None:
    refusing = "raise SystemExit('==ERROR== ERR_NVGPUCTRPERM - no permission')\n"
    text = ncu.read_text(encoding="utf-8").replace("assert sys.argv", f"{refusing}assert sys.argv")
    ncu.write_text(text, encoding="utf-8")
    found = profiled()
    assert (found.base.counters, found.head.counters) == ((), ())
    assert [side for side, ask in processes.asked if ask.once] == ["base"]
    refusals = [note for note in found.notes if "ERR_NVGPUCTRPERM - no permission" in note]
    assert [note.startswith(f"no counters of {CASE.id}: the counters cannot be read (") for note in refusals] == [True]
    assert "\n" not in refusals[0]


def test_a_profiler_that_does_not_start_costs_not_the_times(ncu: Path) -> None:
    ncu.write_bytes(b"\x7fELF of another machine")
    found = profiled()
    assert found.frames != ()
    assert found.base.kernel_seconds is not None
    (note,) = found.notes
    assert note.startswith("no counters: ")
    assert str(ncu) in note


def test_what_only_one_process_measured_is_its_mean() -> None:
    runs = [replace(RAN, kernel_seconds=1e-3), replace(RAN, kernel_seconds=3e-3, host_seconds=None)]
    found = averaged(runs)
    assert (found.kernel_seconds, found.host_seconds, found.calls) == (2e-3, 2e-5, 12)


def test_the_spread_is_that_of_the_side_where_it_is_most() -> None:
    def run(seconds: float) -> ProfiledCase:
        return replace(RAN, kernel_seconds=seconds)

    found = spread([run(1.0), run(1.01)], [run(3.0), run(2.0)])
    assert found is not None
    assert math.isclose(found, 0.5)
    assert spread([run(1.0)], []) is None
