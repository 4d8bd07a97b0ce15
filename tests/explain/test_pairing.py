from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.explain.pairing import pair_up, running
from flopwatch.model import Choice, Failure, KernelFacts
from flopwatch.static.comparison import FactChange, Severity

if TYPE_CHECKING:
    from collections.abc import Callable

    Facts = Callable[..., KernelFacts]


def test_the_same_configuration_is_one_pair_and_equal_code_has_no_changes(facts: Facts) -> None:
    (pair,) = pair_up([facts()], [facts()])
    assert (pair.base, pair.head, pair.changes, pair.same_code) == (facts(), facts(), (), True)


def test_a_changed_setting_makes_a_pair_of_what_the_tuner_only_tried(facts: Facts) -> None:
    base = [facts(warps=4), facts(chosen=False)]
    head = [facts(warps=4), facts(stages=1, chosen=False)]
    first, second = pair_up(base, head)
    assert first.base is not None
    assert first.head is not None
    assert (first.base.num_stages, first.head.num_stages) == (3, 1)
    assert [change.fact for change in first.changes][:2] == ["configuration", "pipelining"]
    assert second.same_code


def test_what_changed_in_launches_is_told_of_the_configuration_that_is_launched(facts: Facts) -> None:
    both = [facts(warps=4), facts(warps=8)]
    change = FactChange(
        kernel="matmul_kernel",
        device="h200",
        variant=both[0].variant,
        config=both[0].config,
        fact="dot flops",
        base="1 FLOPs",
        head="2 FLOPs, 2.00x",
        severity=Severity.WARN,
    )
    first, second = pair_up(both, both, launches=[change])
    assert (first.either.num_warps, first.changes, second.changes) == (4, (change,), ())
    elsewhere = replace(change, config="chosen by a GPU")
    assert [pair.changes for pair in pair_up(both[1:], both[1:], launches=[elsewhere])] == [(elsewhere,)]
    gone = replace(change, kernel="no_such_kernel")
    assert [pair.changes for pair in pair_up(both, both, launches=[gone])] == [(), ()]
    other = facts(kernel="cast_kernel", config="BLOCK=64", variant="*fp32")
    pairs = pair_up([other, facts(kernel="gone_kernel", variant="*i8")], [other, *both], launches=[elsewhere])
    assert {pair.kernel for pair in pairs if pair.changes} == {"matmul_kernel"}
    alone = replace(change, kernel="gone_kernel")
    assert [pair.changes for pair in pair_up([facts(kernel="gone_kernel")], [], launches=[alone])] == [()]


def test_the_pair_that_explains_most_comes_first(facts: Facts) -> None:
    base = [facts(warps=warps) for warps in (1, 2, 4, 8)]
    head = [
        facts(warps=1),
        facts(warps=2, registers=170),
        facts(warps=4, spill_store_bytes=96, spill_load_bytes=96),
        facts(warps=8, instructions={"FFMA": 4096, "all": 5000}),
    ]
    assert [pair.either.num_warps for pair in pair_up(base, head)] == [8, 4, 2, 1]


def test_a_pair_comes_where_its_likeliest_cause_is(facts: Facts) -> None:
    base = [facts(warps=warps) for warps in (4, 8)]
    head = [
        facts(warps=4, spill_store_bytes=96, spill_load_bytes=96),
        facts(warps=8, instructions={"FFMA": 4096, "all": 5000}, spill_store_bytes=96, spill_load_bytes=96),
    ]
    assert [pair.either.num_warps for pair in pair_up(base, head)] == [8, 4]


def test_of_equals_what_is_launched_comes_before_what_was_tried(facts: Facts) -> None:
    both = [facts(warps=4, chosen=False), facts(warps=8)]
    assert [pair.either.num_warps for pair in pair_up(both, both)] == [8, 4]
    moved = [replace(fact, code_fingerprint=f"moved {fact.config}") for fact in both]
    assert [pair.either.num_warps for pair in pair_up(both, moved)] == [8, 4]


def test_what_only_differs_is_no_suspect(facts: Facts) -> None:
    (pair,) = pair_up([facts()], [facts(registers=170)])
    assert ([change.fact for change in pair.changes], pair.suspects) == (["registers"], ())


def test_what_compiles_on_neither_side_is_not_the_same_code(facts: Facts) -> None:
    failed = facts(registers=None, code_fingerprint="", failure=Failure(kind="OutOfResources", message="shared"))
    (pair,) = pair_up([failed], [failed])
    assert not pair.same_code


def test_trials_that_differ_in_several_settings_are_still_a_pair(facts: Facts) -> None:
    (pair,) = pair_up([facts(chosen=False)], [facts(stages=1, warps=4, chosen=False)])
    told = [change.fact for change in pair.changes]
    assert (told[0], told.count("configuration"), "pipelining" in told) == ("configuration", 1, True)


def test_trials_are_paired_with_the_most_similar(facts: Facts) -> None:
    def tried(block: int, stages: int, warps: int) -> KernelFacts:
        config = f"BLOCK_M={block},num_stages={stages},num_warps={warps}"
        return facts(config=config, chosen=False)

    pairs = pair_up([tried(128, 3, 8), tried(64, 4, 4)], [tried(64, 5, 2), tried(128, 2, 16)])
    blocks = [[side.config.partition(",")[0] for side in (pair.base, pair.head) if side] for pair in pairs]
    assert sorted(blocks) == [["BLOCK_M=128"] * 2, ["BLOCK_M=64"] * 2]


def test_a_choice_that_was_not_compiled_here_leaves_what_is_launched(facts: Facts) -> None:
    choice = Choice(kernel="matmul_kernel", config="BLOCK_M: 256, num_warps: 8, num_stages: 4")
    assert running([facts()], [facts(stages=4, chosen=False)], [choice]) == [facts()]


def test_a_kernel_without_settings_runs_in_none(facts: Facts) -> None:
    bare = facts(config="")
    assert running([bare], [], [Choice(kernel="matmul_kernel", config="")]) == [bare]
    where, other = (facts(config=f"WHERE={value}", chosen=False) for value in ("a=b", "a"))
    (tuned,) = running([replace(other, chosen=True)], [where], [Choice(kernel="matmul_kernel", config="WHERE: a=b")])
    assert tuned.config == "WHERE=a=b"


def test_what_has_no_partner_stands_alone(facts: Facts) -> None:
    extra = facts(kernel="cast_kernel", config="BLOCK=64", variant="*fp32,*fp16,i32,i32")
    pairs = pair_up([facts()], [facts(), extra])
    assert {pair.kernel: pair.base is None for pair in pairs} == {"cast_kernel": True, "matmul_kernel": False}


def test_a_configuration_that_did_not_fit_on_base_explains_nothing(facts: Facts) -> None:
    too_large = facts(registers=None, code_fingerprint="", failure=Failure(kind="OutOfResources", message="shared"))
    first, second = pair_up([too_large, facts(warps=4)], [facts(stages=1), facts(warps=4, registers=170)])
    assert [pair.either.num_warps for pair in (first, second)] == [4, 8]
    assert (second.suspects, bool(second.changes)) == ((), True)


def test_arguments_of_other_types_are_still_a_pair_of_their_kernel(facts: Facts) -> None:
    (pair,) = pair_up([facts(variant="*fp16:16,i32:16")], [facts(variant="*fp8e5,i64", code_fingerprint="x")])
    assert pair.base is not None
    assert pair.head is not None


def test_of_a_tuned_kernel_runs_what_the_gpu_chose_and_of_others_what_is_launched(facts: Facts) -> None:
    untuned = facts(kernel="cast_kernel")
    tried = facts(stages=4, chosen=False)
    choice = Choice(kernel="matmul_kernel", config="BLOCK_M: 128, num_warps: 8, num_stages: 4, maxnreg: None")
    found = running([facts(), untuned], [tried, facts(stages=5, chosen=False)], [choice])
    assert [(fact.kernel, fact.num_stages, fact.chosen) for fact in found] == [
        ("cast_kernel", 3, True),
        ("matmul_kernel", 4, True),
    ]
    assert running([facts()], [tried], []) == [facts()]


def test_a_choice_is_of_each_kernel_of_its_name_that_has_the_configuration(facts: Facts) -> None:
    numbered = "matmul_kernel (2)"
    launched = [facts(), facts(kernel=numbered), facts(kernel="matmul_kernel (3)", config="BLOCK=64")]
    trials = [facts(stages=4, chosen=False), facts(kernel=numbered, stages=4, chosen=False)]
    choice = Choice(kernel="matmul_kernel", config="BLOCK_M: 128, num_warps: 8, num_stages: 4")
    assert {(fact.kernel, fact.num_stages) for fact in running(launched, trials, [choice])} == {
        ("matmul_kernel", 4),
        (numbered, 4),
        ("matmul_kernel (3)", 3),  # which nothing tunes
    }
