from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.tune.conftest import CASE, CONFIG, TunedGpu, compiled, config, make_rounds, slow, subject

from flopwatch.tune.client import in_config
from flopwatch.tune.result import By, TunedCase
from flopwatch.tune.run import TuneOptions, search

if TYPE_CHECKING:
    from flopwatch.tune.times import Rounds

OPTIONS = TuneOptions(select="Add")


def searched(
    gpu: TunedGpu, numbers: range, *, current: int = 0, options: TuneOptions = OPTIONS, seed: int = 2
) -> tuple[TunedCase, Rounds]:
    gpu.choices["Add", "head"] = [config(current)]
    gpu.random.seed(seed)
    rounds = make_rounds(gpu, random.Random(seed))
    of = subject(numbers, ceiling=8.0)
    (found,) = search(rounds, [of], [compiled(of)], options, CONFIG)
    return found, rounds


@pytest.fixture
def gpu() -> TunedGpu:
    """Ten configurations; 0 takes 10 us, 7 a twentieth less, the others more."""
    gpu = TunedGpu()
    for number in range(10):
        slow(gpu, number, 1e-5 * (1 + 0.05 * number))
    slow(gpu, 7, 0.95e-5)
    return gpu


def test_the_planted_best_is_chosen_and_its_gain_is_measured_anew(gpu: TunedGpu) -> None:
    found, rounds = searched(gpu, range(10))
    assert found.chosen == config(7)
    gain = found.gain
    assert gain is not None
    assert gain.pairs == 8
    assert gain.lower is not None
    assert gain.upper is not None
    assert gain.lower < -math.log(0.95) < gain.upper
    assert found.seconds == pytest.approx(0.95e-5, rel=0.01)
    assert [log.stage for log in rounds.logs] == ["choose"] * found.rounds + ["estimate"] * 8


def test_no_sample_that_chose_is_in_the_estimate(gpu: TunedGpu) -> None:
    found, rounds = searched(gpu, range(10))
    current, best = (in_config(CASE, config(number)) for number in (0, 7))
    assert all(set(log.log_ratios) == {current.id} for log in rounds.logs if log.stage == "estimate")
    assert all(best.id in log.log_ratios for log in rounds.logs if log.stage == "choose")
    (gain,) = [regret.speed for regret in found.regrets if regret.by is By.AUTOTUNER]
    fresh = [log.log_ratios[current.id] for log in rounds.logs if log.stage == "estimate"]
    assert gain is not None
    assert min(fresh) <= gain.estimate <= max(fresh)


def test_hopeless_candidates_are_timed_once(gpu: TunedGpu) -> None:
    found, _ = searched(gpu, range(10))
    taken = {one.config: one.rounds for one in found.candidates}
    assert {taken[config(number)] for number in (4, 5, 6, 8, 9)} == {1}
    assert taken[config(7)] == found.rounds >= 2


def test_the_winner_of_equals_is_flattered_and_fresh_samples_say_by_how_much() -> None:
    """Modes of processes of 1 % make the luckiest of 12 equal configurations look faster."""
    optimism, gains = [], []
    for seed in range(4):
        gpu = TunedGpu()
        gpu.modes = 0.01
        options = replace(OPTIONS, rounds=2, resolution_percent=0.0)
        found, _ = searched(gpu, range(12), options=options, seed=seed)
        if found.optimism is None or found.gain is None:
            continue
        optimism.append(found.optimism)
        gains.append(found.gain.estimate)
    assert len(optimism) >= 3
    assert sum(optimism) / len(optimism) > 0.005
    assert abs(sum(gains) / len(gains)) < 0.01


def test_near_ties_are_resolved_by_the_declared_order() -> None:
    gpu = TunedGpu()
    for number in range(5):
        slow(gpu, number, 1e-5 if number == 0 else 0.9e-5 * (1 - 0.0005 * number))
    assert {searched(gpu, range(5), seed=seed)[0].chosen for seed in range(3)} == {config(1)}


def test_the_current_choice_wins_ties_where_it_is_declared_first(gpu: TunedGpu) -> None:
    slow(gpu, 7, 0.998e-5)
    found, rounds = searched(gpu, range(10))
    assert found.chosen == found.current == config(0)
    assert found.gain is None
    assert all(log.stage == "choose" for log in rounds.logs)


def test_what_is_fast_and_wrong_is_not_timed(gpu: TunedGpu) -> None:
    gpu.errors_eps["Add", in_config(CASE, config(7)).provider] = 100.0
    found, rounds = searched(gpu, range(10))
    (wrong,) = [one for one in found.candidates if one.config == config(7)]
    assert wrong.pruned.startswith("is wrong: error 100 eps, ceiling 8")
    assert not any(in_config(CASE, config(7)).id in log.log_ratios for log in rounds.logs)
    assert found.chosen == config(0)


def test_what_returns_nan_is_not_timed(gpu: TunedGpu) -> None:
    gpu.errors_eps["Add", in_config(CASE, config(7)).provider] = math.inf
    found, _ = searched(gpu, range(10))
    assert [one.pruned for one in found.candidates if one.config == config(7)] == ["returns NaN or infinity"]


def test_a_candidate_that_fails_while_it_is_timed_is_dropped(gpu: TunedGpu) -> None:
    gpu.failing_in_pairs[in_config(CASE, config(7)).id] = "exit status -11"
    found, rounds = searched(gpu, range(10))
    (failed,) = [one for one in found.candidates if one.config == config(7)]
    assert (failed.log_ratio, failed.dropped) == (None, 2)
    assert found.chosen == config(0)
    assert any("exit status -11" in note for note in found.notes)
    assert rounds.unfit() == ""


def test_each_rule_that_does_not_search_is_held_against_the_choice(gpu: TunedGpu) -> None:
    gpu.seconds["Add", "heuristics"] = 1.9e-5
    found, _ = searched(gpu, range(10), current=1, options=replace(OPTIONS, providers=("heuristics",)))
    loss = {regret.by: regret.speed for regret in found.regrets}
    expected = {By.AUTOTUNER: 1.05 / 0.95, By.FIRST: 1 / 0.95, By.PROVIDER: 2.0}
    assert loss.keys() == expected.keys()
    for by, factor in expected.items():
        speed = loss[by]
        assert speed is not None
        assert speed.pairs == 8  # and none of those in which the first of the list was a candidate
        assert math.exp(speed.estimate) == pytest.approx(factor, rel=0.005)


def test_a_provider_that_is_wrong_is_no_rule_to_be_held_against(gpu: TunedGpu) -> None:
    gpu.errors_eps["Add", "heuristics"] = 100.0
    found, rounds = searched(gpu, range(10), options=replace(OPTIONS, providers=("heuristics",)))
    assert found.regrets[-1].speed is None
    assert found.notes == ("heuristics is wrong: error 100 eps, ceiling 8",)
    assert not any("heuristics" in name for log in rounds.logs for name in log.log_ratios)


def test_a_rule_that_chooses_the_same_has_no_regret(gpu: TunedGpu) -> None:
    found, _ = searched(gpu, range(10), current=7)
    same = next(regret for regret in found.regrets if regret.by is By.AUTOTUNER)
    assert found.chosen == config(7)
    assert same.speed is None
    assert same.seconds == found.seconds is not None


def test_an_interrupt_keeps_what_was_compiled_and_chooses_nothing(gpu: TunedGpu) -> None:
    gpu.interrupt_after = 100
    found, rounds = searched(gpu, range(10))
    assert rounds.interrupted
    assert found.chosen is None
    assert len(found.candidates) == 10


def test_an_interrupt_before_any_time_keeps_what_was_compiled(gpu: TunedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flopwatch.tune.run.check_numbers", interrupted)
    found, rounds = searched(gpu, range(10))
    assert rounds.interrupted
    assert (found.chosen, len(found.candidates)) == (None, 10)


def test_an_interrupt_of_the_second_pass_keeps_the_choice(gpu: TunedGpu) -> None:
    _, before = searched(gpu, range(10))
    visits = gpu.visits
    gpu.visits, gpu.interrupt_after = 0, visits - 20
    found, rounds = searched(gpu, range(10))
    assert rounds.interrupted
    assert found.chosen == config(7)
    assert len(rounds.logs) < len(before.logs)


def test_a_kernel_that_cannot_be_tuned_says_why(gpu: TunedGpu) -> None:
    gpu.failing["Add", "head"] = "no scale today"
    found, _ = searched(gpu, range(10))
    assert found.reason == "fails (ArithmeticError: no scale today)"


def test_a_choice_that_the_pretended_gpu_did_not_see_is_told(gpu: TunedGpu) -> None:
    found, _ = searched(gpu, range(10), current=77)
    assert found.reason.startswith(f"runs in {config(77)} here, which is not in the list")


def test_the_current_choice_is_timed_even_if_the_facts_speak_against_it(gpu: TunedGpu) -> None:
    gpu.choices["Add", "head"] = [config(0)]
    of = subject(range(10), ceiling=8.0)
    case = compiled(of, lambda one: "spills 8 bytes a thread" if one == config(0) else "")
    (found,) = search(make_rounds(gpu, random.Random(1)), [of], [case], OPTIONS, CONFIG)
    assert found.current == config(0)
    assert found.chosen == config(7)
