from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tests.tune.test_table import CASE, FASTER, NEW, OLD, RESULT, SLOWER

from flopwatch.tune.report import SHOWN, headline, left_out, print_tune, told
from flopwatch.tune.result import By, Candidate, Regret, TuneResult

TIMED = replace(
    CASE,
    candidates=(
        Candidate(
            config=OLD, own=True, registers=32, shared_bytes=1024, occupancy=0.5, estimate_seconds=8e-6, log_ratio=0.0
        ),
        Candidate(config=NEW, own=True, occupancy=0.25, log_ratio=-0.055, rounds=4),
        Candidate(config="B: 16, num_warps: 4", own=False, log_ratio=0.4, rounds=1, dropped=1),
        Candidate(config="B: 512, num_warps: 4", own=False, pruned="spills 96 bytes a thread"),
        Candidate(config="B: 1024, num_warps: 4", own=False, pruned="spills 640 bytes a thread"),
    ),
)
FOUND = replace(RESULT, cases=(TIMED,))


def printed(result: TuneResult, *, everything: bool = False) -> str:
    console = Console(file=io.StringIO(), width=140)
    print_tune(result, console, everything=everything)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_choice_is_told_with_both_passes() -> None:
    assert list(told(TIMED)) == [
        "choice: B=128 num_warps=8",
        "autotuner: B=64 num_warps=4",
        "gain: 1.051x (1.041x to 1.062x) on 8 fresh samples, each of a process of its own",
        "the samples that chose it said 1.057x: they flatter it by 0.50 %",
    ]


def test_a_choice_that_fresh_samples_refuse_is_told_as_such() -> None:
    refused = replace(TIMED, regrets=(Regret(by=By.AUTOTUNER, config=OLD, speed=SLOWER),))
    assert list(told(refused))[-1] == "so the fresh samples refuse it: the autotuner's choice stays"
    assert headline(replace(FOUND, cases=(refused,))).endswith(
        "in 0 a configuration other than the autotuner's is chosen."
    )


UNTIMED = replace(
    TIMED,
    case=replace(CASE.case, values=("4096", "flopwatch")),
    chosen=None,
    current=None,
    first_pass=None,
    regrets=(),
    candidates=(replace(TIMED.candidates[0], log_ratio=None),),
    reason="does not run",
    notes=("its numbers differ",),
)
TIE = replace(
    TIMED,
    case=replace(CASE.case, values=("2048", "flopwatch")),
    chosen=OLD,
    candidates=TIMED.candidates[:1],
    regrets=(
        Regret(by=By.AUTOTUNER, config=OLD, seconds=1e-5),
        Regret(by=By.FIRST, config=NEW),
        Regret(by=By.PROVIDER, name="heuristics", seconds=2e-5, speed=FASTER),
    ),
)


def test_a_report_is_written_like_this() -> None:
    found = replace(FOUND, cases=(TIMED, TIE, UNTIMED), notes=("a note",))
    assert (
        "\n".join(line.rstrip() for line in printed(found).splitlines())
        == """\
2 cases searched: in 1 a configuration other than the autotuner's is chosen.
NVIDIA H200; 2026-11-22; triton 3.6.0

Add[1024,flopwatch]
  choice: B=128 num_warps=8
  autotuner: B=64 num_warps=4
  gain: 1.051x (1.041x to 1.062x) on 8 fresh samples, each of a process of its own
  the samples that chose it said 1.057x: they flatter it by 0.50 %
   configuration      registers  shared  occupancy  estimate  against current      rounds
*  B=128 num_warps=8                         25.0%              5.35 % faster           4
   B=64 num_warps=4          32   1 KiB      50.0%  8.000 µs          current
   B=16 num_warps=4                                              1.49x slower  1, dropped
  pruned: B=512 num_warps=4 and 1 more: spills 96 bytes a thread, and the like

Add[2048,flopwatch]
  choice: B=64 num_warps=4
  which is what the autotuner chooses
   configuration     registers  shared  occupancy  estimate  against current  rounds
*  B=64 num_warps=4         32   1 KiB      50.0%  8.000 µs          current

Add[4096,flopwatch]
  not tuned: does not run
  configuration     registers  shared  occupancy  estimate
  B=64 num_warps=4         32   1 KiB      50.0%  8.000 µs
  note: its numbers differ

What is lost without a search, on fresh samples
┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃ case                ┃ rule                      ┃ chooses           ┃     time ┃ speed of the search's choice ┃
┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
│ Add[1024,flopwatch] │ the autotuner's first run │ B=64 num_warps=4  │ 10.00 µs │    1.051x (1.041x to 1.062x) │
│ Add[2048,flopwatch] │ the autotuner's first run │ B=64 num_warps=4  │ 10.00 µs │              the same choice │
│ Add[2048,flopwatch] │ the first of its list     │ B=128 num_warps=8 │          │                 not measured │
│ Add[2048,flopwatch] │ heuristics                │                   │ 20.00 µs │    1.051x (1.041x to 1.062x) │
└─────────────────────┴───────────────────────────┴───────────────────┴──────────┴──────────────────────────────┘
note: a note
Repeat: flopwatch tune Add"""
    )


def test_an_unfit_machine_s_report_is_written_like_this() -> None:
    found = replace(FOUND, cases=(TIE,), unfit="another process on the GPU")
    assert (
        "\n".join(line.rstrip() for line in printed(found).splitlines())
        == """\
The machine is unfit: what it measured is worth nothing.
  why: another process on the GPU
  do:  flopwatch doctor tells when the machine is fit again; then repeat this
NVIDIA H200; 2026-11-22; triton 3.6.0

Add[2048,flopwatch]
   configuration     registers  shared  occupancy  estimate
*  B=64 num_warps=4         32   1 KiB      50.0%  8.000 µs
Repeat: flopwatch tune Add"""
    )


@pytest.mark.parametrize(("optimism", "words"), [(0.01, "flatter it by 1.01 %"), (-0.01, "underrate it by 1.00 %")])
def test_the_samples_that_chose_flatter_or_underrate(optimism: float, words: str) -> None:
    found = replace(TIMED, first_pass=-0.05 - optimism)
    assert list(told(found))[-1].endswith(f"they {words}")


def test_one_of_a_kind_is_not_said_to_have_others_like_it() -> None:
    lone = replace(TIMED, candidates=(*TIMED.candidates[:4], replace(TIMED.candidates[4], pruned="not compiled")))
    assert list(left_out(lone, everything=False)) == [
        "pruned: B=512 num_warps=4: spills 96 bytes a thread",
        "pruned: B=1024 num_warps=4: not compiled",
    ]


@pytest.mark.parametrize(("shown", "said"), [(SHOWN, []), (SHOWN + 1, ["1 further configuration not shown: --all"])])
def test_no_more_is_said_to_be_hidden_than_is(shown: int, said: list[str]) -> None:
    many = replace(TIMED, candidates=tuple(Candidate(config=f"B: {n}", own=True) for n in range(shown)))
    assert list(left_out(many, everything=False)) == said
    assert list(left_out(many, everything=True)) == []


def test_a_candidate_without_a_time_comes_last_and_is_listed_with_all() -> None:
    late = replace(
        TIMED, candidates=(Candidate(config="B: 8", own=True, rounds=2, estimate_seconds=1e-6), *TIMED.candidates)
    )
    rows = [line for line in printed(replace(FOUND, cases=(late,))).splitlines() if line.lstrip(" *").startswith("B=")]
    assert [row.split()[0] for row in rows] == ["*", "B=64", "B=16", "B=8"]


def test_long_lines_are_not_broken() -> None:
    long = "x" * 300
    lines = printed(
        replace(
            FOUND,
            command=long,
            notes=(long,),
            unfit=long,
            versions={"triton": long},
            cases=(replace(TIE, reason=long),),
        )
    ).splitlines()
    assert len([line for line in lines if long in line]) == 5


def test_where_the_autotuner_is_right_that_is_told() -> None:
    assert list(told(replace(TIMED, chosen=OLD)))[-1] == "which is what the autotuner chooses"


def test_a_gain_that_was_not_measured_is_not_made_up() -> None:
    assert list(told(replace(TIMED, regrets=())))[-1] == "its gain was not measured on fresh samples"


def test_the_fastest_comes_first_and_the_choice_is_marked() -> None:
    rows = [line.strip() for line in printed(FOUND).splitlines() if line.lstrip(" *").startswith("B=")]
    assert [row.split()[0] for row in rows] == ["*", "B=64", "B=16"]
    assert "5.35 % faster" in rows[0]
    assert "current" in rows[1]
    assert rows[2].endswith("1, dropped")


def test_what_was_pruned_is_summed_up_by_its_reason_or_listed() -> None:
    assert list(left_out(TIMED, everything=False)) == [
        "pruned: B=512 num_warps=4 and 1 more: spills 96 bytes a thread, and the like"
    ]
    assert list(left_out(TIMED, everything=True)) == [
        "pruned: B=512 num_warps=4: spills 96 bytes a thread",
        "pruned: B=1024 num_warps=4: spills 640 bytes a thread",
    ]


def test_long_lists_are_cut_and_said_to_be() -> None:
    twenty = tuple(Candidate(config=f"B: {n}", own=True, log_ratio=0.1) for n in range(20))
    many = replace(TIMED, candidates=twenty, regrets=())
    assert "12 further configurations not shown: --all" in printed(replace(FOUND, cases=(many,)))
    assert printed(replace(FOUND, cases=(many,))).count(" B=") == SHOWN + 2  # and the choice, and what it replaces
    assert "not shown" not in printed(replace(FOUND, cases=(many,)), everything=True)
    assert printed(replace(FOUND, cases=(many,)), everything=True).count(" B=") == 20 + 2


def test_what_rules_lose_is_a_table() -> None:
    text = printed(FOUND)
    assert "What is lost without a search" in text
    assert "the autotuner's first run" in text
    assert "1.051x (1.041x to 1.062x)" in text


def test_without_a_gpu_the_ranking_is_told_and_no_time() -> None:
    untimed = replace(TIMED, chosen=None, current=None, regrets=(), candidates=TIMED.candidates[:1])
    text = printed(replace(FOUND, gpu=None, cases=(untimed,), notes=("nothing was timed: there is no GPU here",)))
    assert text.startswith("Nothing was timed: 1 of 1 configurations are worth timing on a GPU.\ncompiled for h200;")
    assert "8.000 µs" in text
    assert "note: nothing was timed" in text
    assert "What is lost" not in text
    assert "against current" not in text


def test_an_unfit_machine_shows_no_time_and_no_regret() -> None:
    text = printed(replace(FOUND, unfit="another process on the GPU"))
    assert text.startswith("The machine is unfit")
    assert "why: another process on the GPU" in text
    assert "gain:" not in text
    assert "against current" not in text
    assert "What is lost" not in text


def test_an_interrupt_is_told() -> None:
    assert headline(replace(FOUND, interrupted=True)).startswith("Interrupted. 1 case searched")


def test_markup_in_names_is_text() -> None:
    odd = replace(TIMED, reason="fails ([red]no[/red])")
    assert "not tuned: fails ([red]no[/red])" in printed(replace(FOUND, cases=(odd,)))
