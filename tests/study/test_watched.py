from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Self, cast

import pytest
from tests.study.conftest import DECLARATION, SCALED, SWIZZLE, UUID, WITHIN, FakeWatch, FakeWorker, Gpu

from flopwatch.config import Config, WatchedClaim
from flopwatch.errors import MachineError, SuiteError
from flopwatch.gate.conclusions import (
    CONFIRM,
    CONFIRM_ALPHA,
    CONFIRM_ROUNDS,
    PATH,
    SCREEN_ROUNDS,
    Outcome,
    Verdict,
    confirm_alpha,
)
from flopwatch.gate.pairs import Observer
from flopwatch.gate.run import GateOptions, run_gate
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.machine import Snapshot
from flopwatch.model import Case
from flopwatch.report.agreement import contradictions
from flopwatch.report.headline import headline
from flopwatch.report.recompute import differences
from flopwatch.study.decisions import REFUTED_ALPHA, verdict_on
from flopwatch.study.watched import watch_conclusions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conftest import ToyRepository

    from flopwatch.gate.conclusions import WatchedConclusion
    from flopwatch.measure.client import Mode, Worker
    from flopwatch.measure.protocol import Hello

CLAIM = WatchedClaim(study="Swizzle", says=WITHIN.says)
SLOW: dict[tuple[str, ...], float] = {("2", "8", "flopwatch"): 1.05e-2}


@dataclass(kw_only=True)
class Machine:
    """Both sides' stand-ins, and what the compiler says of them.

    Attributes:
        base: runs base's cases.
        head: runs head's.
        identical: the cases whose both sides are proved to run the very same.
        processes: of the GPU, that are not ours.
        started: whose workers, in order.
    """

    root: Path
    base: Gpu
    head: Gpu
    identical: frozenset[Case] = frozenset()
    processes: tuple[int, ...] = ()
    selected: list[str] = field(default_factory=list)
    started: list[Arm] = field(default_factory=list)

    def watch(self, *claims: WatchedClaim) -> tuple[WatchedConclusion, ...]:
        config = Config(packages=("toy",), conclusions=claims or (CLAIM,))
        trees = [self.root / arm.value for arm in Arm]
        with Sides(config, device="h200", base_tree=trees[0], head_tree=trees[1]) as sides:
            return watch_conclusions(sides, UUID, Observer())


@pytest.fixture
def machine(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose workers are stand-ins; the code under test differs, and nothing takes longer for it."""
    found = Machine(root=tmp_path, base=gpu, head=replace(gpu, random=random.Random(2)))
    for arm in Arm:
        (tmp_path / arm.value / "src").mkdir(parents=True)
        (tmp_path / arm.value / "src" / "toy.py").write_text(f"SIDE = {arm.value!r}\n", encoding="utf-8")

    class Named(FakeWorker):
        def __init__(self, arm: Arm) -> None:
            super().__init__(found.head if arm is Arm.HEAD else found.base)
            self.arm = arm

        def __enter__(self) -> Self:
            found.started.append(self.arm)
            return super().__enter__()

    def worker(sides: Sides, _mode: Mode, arm: Arm) -> Worker:
        assert sides.code(arm).benchmarks == tmp_path / "head" / "benchmarks" / "studies"
        return cast("Worker", Named(arm))

    def find_static(_sides: Sides, select: str) -> SimpleNamespace:
        found.selected.append(select)
        return SimpleNamespace(identical=found.identical)

    monkeypatch.setattr(Sides, "worker", worker)
    monkeypatch.setattr("flopwatch.study.watched.find_static", find_static)
    monkeypatch.setattr("flopwatch.study.watched.Watch", lambda _uuid: FakeWatch(processes=found.processes))
    monkeypatch.setattr("flopwatch.study.watched.settle", lambda *_: {})
    return found


def looks(found: WatchedConclusion) -> list[tuple[str, str, Verdict]]:
    return [(look.stage, look.side, look.verdict) for look in found.looks]


def test_what_holds_on_head_is_not_looked_at_on_base(machine: Machine) -> None:
    (found,) = machine.watch()
    assert (found.outcome, looks(found)) == (Outcome.HOLDS, [("screen", "head", Verdict.HOLDS)])
    assert found.seconds > 0
    assert (found.id, found.percent) == ("Swizzle[flopwatch 8]", 1.0)
    assert {len(row.log_ratios) for row in found.looks[0].beside} == {SCREEN_ROUNDS}
    assert machine.started == [Arm.HEAD] * (2 + SCREEN_ROUNDS)  # to ask what there is, and to check the numbers


def test_a_planted_loss_is_confirmed_in_rounds_of_both_sides_and_found(machine: Machine) -> None:
    machine.head.seconds = SLOW
    (found,) = machine.watch()
    assert (found.outcome, looks(found)) == (Outcome.LOST, list(PATH))
    worst = found.looks[-1].worst
    assert (worst.at, len(worst.log_ratios)) == ("2", CONFIRM_ROUNDS)
    assert worst.median == pytest.approx(math.log(1.05), abs=0.002)
    turns = machine.started[-2 * CONFIRM_ROUNDS :]
    assert [set(turns[place : place + 2]) for place in range(0, len(turns), 2)] == [set(Arm)] * CONFIRM_ROUNDS


def test_what_does_not_hold_on_base_either_is_not_lost(machine: Machine) -> None:
    machine.base.seconds = machine.head.seconds = SLOW
    (found,) = machine.watch()
    assert (found.outcome, len(found.looks)) == (Outcome.NEITHER, 2)


def test_what_is_at_its_margin_is_unsure_after_one_look(machine: Machine) -> None:
    machine.head.seconds = {("2", "8", "flopwatch"): 1.01e-2}
    (found,) = machine.watch()
    assert (found.outcome, looks(found), found.reason) == (
        Outcome.UNSURE,
        [("screen", "head", Verdict.UNSURE)],
        "",
    )


def test_sides_of_the_same_code_measure_nothing(machine: Machine) -> None:
    (machine.root / "head" / "src" / "toy.py").write_text("SIDE = 'base'  # but for this\n", encoding="utf-8")
    (found,) = machine.watch()
    assert (found.outcome, machine.started, machine.selected) == (Outcome.UNCHANGED, [], [])


def test_sides_that_compile_to_the_same_measure_nothing(machine: Machine) -> None:
    machine.head.seconds = SLOW
    machine.identical = frozenset(entry.case for entry in SWIZZLE if entry.own)
    (found,) = machine.watch()
    assert (found.outcome, machine.started) == (Outcome.UNCHANGED, [Arm.HEAD])
    assert machine.selected == [" or ".join(entry.case.id for entry in SWIZZLE if entry.own)]
    machine.identical -= {SWIZZLE[2].case}
    assert machine.watch()[0].outcome is Outcome.LOST


def test_only_the_points_that_are_named_are_watched(machine: Machine) -> None:
    machine.head.seconds = SLOW
    (found,) = machine.watch(replace(CLAIM, at=("1",)))
    assert found.outcome is Outcome.HOLDS
    assert {row.at for row in found.looks[0].beside} == {"1"}
    assert machine.selected[0].count("Swizzle[") == 3


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (replace(CLAIM, study="Other"), "there is no study Other (there are Swizzle)"),
        (replace(CLAIM, says="torch is slow"), f"the study concludes something else: {WITHIN.says}"),
        (replace(CLAIM, at=("3", "4")), "none of its points is 3 or 4"),
    ],
)
def test_what_the_study_does_not_say_is_unsure_and_the_others_are_watched(
    claim: WatchedClaim, reason: str, machine: Machine
) -> None:
    wrong, right = machine.watch(claim, CLAIM)
    assert (wrong.outcome, wrong.reason) == (Outcome.UNSURE, reason)
    assert right.outcome is Outcome.HOLDS


def test_a_machine_that_is_unfit_leaves_it_unsure(machine: Machine) -> None:
    machine.processes = (4711,)
    (found,) = machine.watch()
    assert found.outcome is Outcome.UNSURE
    assert "process" in found.reason


def test_a_machine_that_becomes_unfit_among_the_rounds_does_likewise(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = iter([(), (), *[(7, 4711)] * 100])
    monkeypatch.setattr(FakeWatch, "snapshot", lambda _: Snapshot(time_s=0.0, processes=next(taken)))
    (found,) = machine.watch()
    assert (found.outcome, found.looks, len(machine.started)) == (Outcome.UNSURE, (), 2 + SCREEN_ROUNDS)
    assert found.reason.startswith("the machine is unfit (")


def test_a_line_that_fails_on_one_side_leaves_it_unsure_and_keeps_what_was_seen(machine: Machine) -> None:
    machine.head.seconds = SLOW
    machine.base.failing = {("1", "8", "flopwatch"): "no such kernel"}
    (found,) = machine.watch()
    assert (found.outcome, found.reason) == (Outcome.UNSURE, "on base flopwatch 8 was not measured at 1")
    assert len(found.looks) == 1


def test_studies_that_cannot_be_imported_cost_the_gate_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hello(_worker: FakeWorker) -> Hello:
        raise SuiteError("a suite cannot be imported", why="swizzle.py: SyntaxError")

    monkeypatch.setattr(FakeWorker, "hello", property(hello))
    found = machine.watch(CLAIM, replace(CLAIM, says="another"))
    assert [each.reason for each in found] == ["a suite cannot be imported (swizzle.py: SyntaxError)"] * 2


def test_a_gpu_that_is_lost_or_an_interruption_leaves_the_rest_unsure(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = (CLAIM, replace(CLAIM, at=("2",)))
    machine.head.interrupt_after = SCREEN_ROUNDS * 2 * 3 * 5 + 3
    first, second = machine.watch(*both)
    assert (first.outcome, second.reason) == (Outcome.HOLDS, "interrupted")

    def lost(_watch: FakeWatch) -> None:
        raise MachineError("the GPU is lost")

    monkeypatch.setattr(FakeWatch, "snapshot", lost)
    assert [each.reason for each in machine.watch(*both)] == ["the GPU is lost"] * 2


def test_tuners_that_chose_differently_are_settled_before_what_was_lost_is_confirmed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.head.seconds = SLOW
    case = SWIZZLE[2].case
    asked = []

    def settle(_sides: Sides, base: dict[Case, object], head: dict[Case, object]) -> dict[Case, SimpleNamespace]:
        asked.append((base.keys(), head.keys()))
        machine.base.seconds = SLOW  # what base's tuner chose was chance, and is as slow
        return {case: SimpleNamespace(base=base[case], head=head[case])}

    monkeypatch.setattr("flopwatch.study.watched.settle", settle)
    (found,) = machine.watch()
    assert len(asked) == 1
    assert (found.outcome, [look.stage for look in found.looks][2:]) == (Outcome.UNSURE, [CONFIRM] * 2)


def test_a_study_without_cases_under_test_has_nothing_to_lose(machine: Machine) -> None:
    peers = tuple(replace(entry, own=False) for entry in SWIZZLE)
    machine.head.declared = machine.base.declared = peers
    machine.head.studies = {"Swizzle": DECLARATION}
    (found,) = machine.watch()
    assert (found.outcome, machine.selected) == (Outcome.UNCHANGED, [])


#: Log ratios of a round, about what is true: normal, with heavy tails, and of two modes.
NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda chance: chance.gauss(0, 0.002),
    "tails": lambda chance: 0.001 * math.tan(math.pi * (chance.random() - 0.5)),
    "modes": lambda chance: chance.choice((-0.004, 0.004)) + chance.gauss(0, 0.0002),
}
MARGIN = math.log1p(0.01)


def drawn(
    chance: random.Random, noise: str, truths: Sequence[float], number: int, alpha: float | None = None
) -> Verdict:
    rows = [[truth + NOISES[noise](chance) for _ in range(number)] for truth in truths]
    return verdict_on(rows, 1.0, alpha=alpha)


@pytest.mark.parametrize("noise", NOISES)
def test_at_the_margin_each_stage_errs_no_more_often_than_it_may(noise: str) -> None:
    # At the margin both verdicts are wrong by a hair, as often as they ever are: LOST needs one of them twice, and its
    # rate is the product of those of the stages, whose rounds are drawn apart.
    chance, runs = random.Random(3), 1500
    for number, alpha, may in ((SCREEN_ROUNDS, None, REFUTED_ALPHA), (CONFIRM_ROUNDS, CONFIRM_ALPHA, CONFIRM_ALPHA)):
        found = [drawn(chance, noise, (MARGIN, -0.05), number, alpha) for _ in range(runs)]
        for wrong in (Verdict.HOLDS, Verdict.FAILS):
            # Three standard deviations: a level that is kept is not seen past it in 999 of 1000 simulations.
            assert found.count(wrong) <= runs * may + 3 * math.sqrt(runs * may)


def lost_in(runs: int, base: float, head: float, *, seed: int) -> int:
    """Count the runs in which all four looks agree, by what is true on either side."""
    chance = random.Random(seed)
    truths = {"base": base, "head": head}

    def agrees(step: tuple[str, str, Verdict]) -> bool:
        number, alpha = (CONFIRM_ROUNDS, confirm_alpha(1)) if step[0] == CONFIRM else (SCREEN_ROUNDS, None)
        truth = truths[step[1]]
        return drawn(chance, "normal", (truth, truth - 0.02), number, alpha) is step[2]

    return sum(all(map(agrees, PATH)) for _ in range(runs))


@pytest.mark.parametrize("truth", [MARGIN - 0.001, MARGIN, MARGIN + 0.001])
def test_where_nothing_changed_no_conclusion_is_lost_in_thousands_of_runs(truth: float) -> None:
    assert lost_in(2000, truth, truth, seed=5) == 0


def test_what_half_a_percent_on_either_side_of_the_margin_divides_is_lost() -> None:
    assert lost_in(100, MARGIN - 0.005, MARGIN + 0.005, seed=6) >= 95


TOY_STUDY = (
    '''\
"""Is the kernel as fast as torch?"""

import torch
from flopwatch.study import Conclusion, Study
from toykernels import scale


class Race(Study):
    """out = 2 * x."""

    params = (["33554432"], ["all"])
    param_names = ("n", "kind")
    small = {"n": "1000"}
    providers = {"torch": lambda x, kind: x * 2.0}
    line = "kind"
    conclusions = (Conclusion(says="not half as fast again", line="flopwatch", than=("torch",), percent=50.0),)

    def run(self, x, kind):
        return scale(x, 2.0)
'''
    + SCALED
)


@pytest.mark.gpu
@pytest.mark.timeout(900)  # two gates, of which the second looks four times
def test_on_a_gpu_a_planted_loss_fails_the_gate_and_a_harmless_edit_does_not(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flopwatch.study.turns.TURNS_S", 0.3)  # of 50 rounds; both edits are far from the margin
    path = toy.root / "benchmarks" / "studies" / "race.py"
    path.parent.mkdir()
    path.write_text(TOY_STUDY, encoding="utf-8")
    project = toy.root / "pyproject.toml"
    claim = '[[tool.flopwatch.conclusions]]\nstudy = "Race"\nsays = "not half as fast again"\n'
    project.write_text(project.read_text(encoding="utf-8") + claim, encoding="utf-8")
    toy.commit("a race")
    toy.edit("num_warps=4", "num_warps=2")  # 16 bytes to a thread; with 8 warps it took half as long again
    (fine,) = run_gate(GateOptions(), toy.root, conclude=watch_conclusions).conclusions
    assert (fine.outcome, fine.reason) == (Outcome.HOLDS, "")
    # Each element is loaded eight times, and not from a register.
    toy.edit(
        "    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)",
        "    total = tl.load(x + offsets, mask=mask, volatile=True)\n"
        "    for _ in range(7):\n"
        "        total += tl.load(x + offsets, mask=mask, volatile=True)\n"
        "    tl.store(out + offsets, total * (factor / 8), mask=mask)",
    )
    result = run_gate(GateOptions(), toy.root, conclude=watch_conclusions)
    assert [found.outcome for found in result.conclusions] == [Outcome.LOST]
    assert "1 conclusion no longer holds (Race[flopwatch])" in headline(result)
    assert list(contradictions(result)) + list(differences(result, Config())) == []
