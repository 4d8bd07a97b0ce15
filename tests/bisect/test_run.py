from __future__ import annotations

import math
import random
import shlex
from typing import TYPE_CHECKING

import pytest
from tests.bisect.conftest import CASE, FAST, SLOW, Line, Machine

from flopwatch.bisect import Bisection, BisectOptions, Commit, Effect, Outcome, Step, run_bisect
from flopwatch.bisect.judge import Difference
from flopwatch.bisect.times import Times
from flopwatch.errors import ExitCode, MachineError, UndecidedError, UsageError
from flopwatch.measure.nvml import present_gpus
from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

EFFECT = math.log(SLOW / FAST)


def bisect(line: Line, good: str, bad: str = "HEAD", *, case: str = CASE, pairs: int | None = None) -> Bisection:
    coin = random.Random(4)  # and with the noise of the workers, which is seeded too, each test is the same each time
    options = BisectOptions(case=case, good=good, bad=bad, pairs=pairs)
    return run_bisect(options, line.toy.root, toss=lambda: coin.random() < 0.5)


def culprit(found: Bisection) -> str:
    assert found.culprit is not None
    return found.culprit.hash


@pytest.mark.usefixtures("machine")
def test_the_commit_that_made_a_case_slower_is_found(line: Line) -> None:
    good, *_, slow = [line.takes(seconds) for seconds in (FAST, FAST, FAST, FAST, SLOW)]
    for _ in range(3):
        line.takes(SLOW)
    found = bisect(line, good)
    assert culprit(found) == slow
    assert found.culprit is not None
    assert found.culprit.subject == "takes 1.02e-05 s"
    assert found.change is not None
    assert found.change.estimate == pytest.approx(EFFECT, abs=0.001)
    assert found.change.differs
    assert len(found.steps) == 3  # of 7 commits
    assert {step.effect.pairs for step in found.steps if step.effect} == {8}
    assert {log.stage for log in found.pairs} == {"differ", "step", "change"}
    assert (found.reason, found.device, found.exit_code) == ("", "NVIDIA H200", ExitCode.OK)
    assert from_json(to_json(found), Bisection) == found


@pytest.mark.usefixtures("machine")
def test_the_commit_that_made_a_case_faster_is_found_too(line: Line) -> None:
    good, _, fast, _ = [line.takes(seconds) for seconds in (SLOW, SLOW, FAST, FAST)]
    found = bisect(line, good)
    assert culprit(found) == fast
    assert found.change is not None
    assert found.change.estimate == pytest.approx(-EFFECT, abs=0.001)


@pytest.mark.usefixtures("machine")
def test_neighbours_need_no_step_and_no_further_pairs(line: Line) -> None:
    good, slow = line.takes(FAST), line.takes(SLOW)
    found = bisect(line, good)
    assert culprit(found) == slow
    assert found.steps == ()
    assert {log.stage for log in found.pairs} == {"differ"}
    assert found.change == found.difference


@pytest.mark.usefixtures("machine")
def test_a_slow_commit_on_a_merged_branch_is_found_and_not_its_merge(line: Line) -> None:
    good = line.takes(FAST)
    line.toy.git("checkout", "-q", "-b", "topic")
    line.also_writes("before")
    slow = line.takes(SLOW)
    line.also_writes("after")
    line.toy.git("checkout", "-q", "main")
    for name in ("one", "two", "three"):
        line.also_writes(name)
    line.toy.git("merge", "-q", "--no-ff", "-m", "merge topic", "topic")
    line.also_writes("four")
    assert culprit(bisect(line, good)) == slow


@pytest.mark.usefixtures("machine")
def test_a_merge_that_brings_the_slowness_itself_is_found(line: Line) -> None:
    good = line.takes(FAST)
    line.toy.git("checkout", "-q", "-b", "topic")
    line.also_writes("there")
    line.toy.git("checkout", "-q", "main")
    line.also_writes("here")
    line.toy.git("merge", "-q", "--no-ff", "--no-commit", "topic")
    merge = line.takes(SLOW, "an evil merge")
    line.also_writes("after")
    found = bisect(line, good)
    assert culprit(found) == merge
    assert found.parent is not None
    assert found.parent.subject == "add here"


@pytest.mark.usefixtures("machine")
def test_a_commit_that_does_not_import_is_skipped_with_its_cause(line: Line) -> None:
    good, _ = line.takes(FAST), line.takes(FAST)
    broken = line.fails()
    line.takes(FAST)
    slow = line.takes(SLOW)
    found = bisect(line, good)
    assert culprit(found) == slow
    (skipped,) = [step for step in found.steps if step.outcome is Outcome.SKIPPED]
    assert skipped.commit.hash == broken
    assert skipped.reason == "fails (SuiteError: no suite 'Add')"


@pytest.mark.usefixtures("machine")
def test_skipped_neighbours_leave_several_candidates(line: Line) -> None:
    good, *_ = line.takes(FAST), line.takes(FAST)
    broken = line.fails()
    slow = line.takes(SLOW)
    line.takes(SLOW)
    found = bisect(line, good)
    assert found.culprit is None
    assert [commit.hash for commit in found.candidates] == [slow, broken]
    assert found.reason == "the commits that were skipped leave several"
    assert found.exit_code == ExitCode.UNDECIDED


def test_code_that_is_the_same_but_for_comments_is_not_measured_again(line: Line, machine: Machine) -> None:
    good = line.takes(FAST)
    source = line.toy.kernel.read_text(encoding="utf-8")
    line.write(f"# words\n{source}", "a comment")
    line.toy.commit("nothing at all")
    slow = line.takes(SLOW)
    found = bisect(line, good)
    assert culprit(found) == slow
    assert {step.effect for step in found.steps} == {None}
    assert found.steps[0].reason == f"the code of {good[:12]}"
    # Of the first comparison, and of the culprit with its parent: three seeds a side.
    assert len(machine.gpu.ran) == 2 * 6


@pytest.mark.usefixtures("machine")
def test_a_change_in_two_halves_leaves_both(line: Line) -> None:
    good = line.takes(FAST)
    half, whole = line.takes(math.sqrt(FAST * SLOW)), line.takes(SLOW)
    found = bisect(line, good)
    assert [commit.hash for commit in found.candidates] == [whole, half]
    assert found.steps[0].reason == "between good and bad, as far as the pairs tell"
    assert found.steps[0].effect is not None
    assert found.steps[0].effect.pairs == 44


@pytest.mark.usefixtures("machine")
def test_commits_that_do_not_differ_are_no_case_for_a_bisection(line: Line) -> None:
    good, _, bad = line.takes(FAST), line.takes(FAST), line.takes(FAST)
    found = bisect(line, good, bad)
    assert (found.differs, found.candidates, found.steps) == (False, (), ())
    assert found.difference is not None
    assert found.difference.lower is not None
    assert found.difference.upper is not None
    assert found.difference.lower < 0 < found.difference.upper
    assert found.exit_code == ExitCode.UNDECIDED


def test_doubt_comes_with_the_pairs_that_would_settle_it(line: Line, machine: Machine) -> None:
    machine.gpu.noise = 0.02
    good, bad = line.takes(FAST), line.takes(SLOW)
    found = bisect(line, good, bad)
    assert not found.differs
    assert found.settling_pairs is not None
    assert found.settling_pairs > 13
    assert found.exit_code == ExitCode.UNDECIDED


def test_more_pairs_prove_what_few_do_not(line: Line, machine: Machine) -> None:
    machine.gpu.noise = 0.01
    good, bad = line.takes(FAST), line.takes(SLOW)
    found = bisect(line, good, bad, pairs=50)
    assert found.differs
    assert found.difference is not None
    assert found.difference.pairs == 50
    assert found.command.endswith("--pairs 50")


def test_the_same_code_at_both_ends_is_not_measured(line: Line, machine: Machine) -> None:
    good = line.takes(FAST)
    line.toy.commit("words alone")
    found = bisect(line, good)
    assert machine.gpu.visits == 0
    assert found.reason == "good and bad run the same code, but for comments"
    assert found.exit_code == ExitCode.UNDECIDED


def test_an_interrupted_bisection_tells_what_it_knows_and_how_to_go_on(line: Line, machine: Machine) -> None:
    good, *_ = [line.takes(FAST) for _ in range(5)]
    slow = line.takes(SLOW)
    line.takes(SLOW)
    whole = bisect(line, good)
    before_last_step = sum(log.stage != "change" for log in whole.pairs) - 2
    machine.gpu.interrupt_after = round(machine.gpu.visits * (1 + before_last_step / len(whole.pairs)))
    machine.watch.taken = 0
    stopped = bisect(line, good)
    assert stopped.interrupted
    assert stopped.differs
    assert 1 <= len(stopped.steps) < len(whole.steps)
    assert slow in [commit.hash for commit in stopped.candidates]
    assert len(stopped.candidates) < 6
    assert stopped.exit_code == ExitCode.UNDECIDED
    machine.gpu.interrupt_after = 10**9
    machine.watch.taken = 0
    _, _, case, good, bad = shlex.split(stopped.command)
    assert culprit(bisect(line, good, bad, case=case)) == slow


def test_interrupted_before_it_is_proved_the_pairs_so_far_are_told(line: Line, machine: Machine) -> None:
    good, bad = line.takes(FAST), line.takes(SLOW)
    machine.gpu.interrupt_after = 100
    found = bisect(line, good, bad)
    assert found.interrupted
    assert not found.differs
    assert found.difference is not None
    assert found.difference.estimate == pytest.approx(EFFECT, abs=0.005)
    assert found.candidates == ()


def test_a_machine_that_becomes_unfit_ends_it_with_what_is_known(line: Line, machine: Machine) -> None:
    good, *_ = [line.takes(FAST) for _ in range(4)]
    slow = line.takes(SLOW)
    machine.watch.intruder_after = 40  # the first comparison reads it 33 times, a step 9 times
    found = bisect(line, good)
    assert "99" in found.unfit
    assert found.differs
    assert slow in [commit.hash for commit in found.candidates]
    assert found.exit_code == ExitCode.UNFIT


@pytest.mark.usefixtures("machine")
def test_where_the_histories_part_must_be_good(line: Line) -> None:
    line.takes(FAST)
    line.toy.git("checkout", "-q", "-b", "release")
    good = line.also_writes("fix")
    line.toy.git("checkout", "-q", "main")
    slow = line.takes(SLOW)
    line.also_writes("more")
    found = bisect(line, good)
    assert culprit(found) == slow
    assert found.steps[0].outcome is Outcome.GOOD


@pytest.mark.usefixtures("machine")
def test_a_change_on_the_side_of_good_is_told(line: Line) -> None:
    base = line.takes(SLOW)
    line.toy.git("checkout", "-q", "-b", "release")
    good = line.takes(FAST)
    line.toy.git("checkout", "-q", "main")
    line.also_writes("more")
    found = bisect(line, good)
    assert found.candidates == ()
    assert found.reason.startswith(f"{base[:12]}, from which both descend, is as bad")
    assert found.exit_code == ExitCode.UNDECIDED


@pytest.mark.usefixtures("machine")
def test_a_culprit_that_does_not_show_the_change_is_doubted(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    good, _, slow = line.takes(FAST), line.takes(FAST), line.takes(SLOW)

    def nothing(_times: Times, _culprit: Commit, _parent: Commit) -> Difference:
        return Difference(effect=Effect(estimate=0.001, lower=-0.001, upper=0.003, pairs=18))

    monkeypatch.setattr(Times, "change", nothing)
    found = bisect(line, good)
    assert culprit(found) == slow
    assert found.reason == "held against its parent it does not show the change"
    assert found.exit_code == ExitCode.UNDECIDED


def test_the_ends_in_the_wrong_order_are_refused(line: Line) -> None:
    good, bad = line.takes(FAST), line.takes(SLOW)
    with pytest.raises(UsageError, match=f"no commit leads from {bad[:12]} to {good[:12]}") as caught:
        bisect(line, bad, good)
    assert caught.value.why == "BAD is part of GOOD's history"


def test_histories_without_a_common_commit_are_refused(line: Line) -> None:
    good = line.takes(FAST)
    line.toy.git("checkout", "-q", "--orphan", "other")
    with pytest.raises(UsageError, match="no common history"):
        bisect(line, good, line.takes(SLOW))


@pytest.mark.usefixtures("machine")
def test_a_name_that_several_cases_have_is_refused(line: Line) -> None:
    good, bad = line.takes(FAST), line.takes(SLOW)
    with pytest.raises(UsageError) as caught:
        bisect(line, good, bad, case="1024")
    assert caught.value.what == "2 cases match '1024', and one is bisected at a time"
    assert caught.value.why == "Add[1024,flopwatch], Matmul[1024,flopwatch]"
    with pytest.raises(UndecidedError, match="no case matches 'Softmax'"):
        bisect(line, good, bad, case="Softmax")


def test_without_a_gpu_nothing_is_checked_out_and_facts_are_offered(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver() -> None:
        raise MachineError("no NVIDIA driver answers")

    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", no_driver)
    monkeypatch.setattr("flopwatch.bisect.run.checkout", lambda *_, **__: pytest.fail("it was checked out"))
    good, bad = line.takes(FAST), line.takes(SLOW)
    with pytest.raises(MachineError, match="needs a GPU") as caught:
        bisect(line, good, bad)
    assert "--fact registers" in caught.value.todo


@pytest.mark.usefixtures("machine")
def test_no_worktree_is_left_behind(line: Line) -> None:
    good, _, bad = line.takes(FAST), line.fails(), line.takes(SLOW)
    bisect(line, good, bad)
    assert len(line.toy.git("worktree", "list").splitlines()) == 1


@pytest.mark.gpu
def test_on_a_gpu_a_kernel_that_does_its_work_twice_is_found(toy: ToyRepository) -> None:
    assert present_gpus()
    good = toy.git("rev-parse", "HEAD").strip()
    toy.edit("triton.cdiv(x.numel(), 256)", "triton.cdiv(x.numel(), 256) + 0")
    toy.commit("the same, in other words")
    toy.edit(
        "    return out", "    scale_kernel[grid](x, out, x.numel(), factor, BLOCK=256, num_warps=4)\n    return out"
    )
    slow = toy.commit("twice")
    toy.edit("num_warps=4)\n    return out", "num_warps=4)\n    assert out.is_cuda\n    return out")
    toy.commit("and one more")
    found = run_bisect(BisectOptions(case="float16", good=good, bad="HEAD"), toy.root)
    assert culprit(found) == slow
    assert found.change is not None
    assert found.change.estimate > 0.1
    assert found.exit_code == ExitCode.OK


def test_a_step_can_be_read_again() -> None:
    step = Step(commit=_commit(), outcome=Outcome.BAD, effect=Effect(estimate=0.02, lower=None, upper=None, pairs=3))
    assert from_json(to_json(step), Step) == step


def _commit() -> Commit:
    return Commit(hash="0" * 40, date="2026-11-21", subject="x")
