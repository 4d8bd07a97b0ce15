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


def test_the_pair_that_explains_most_comes_first(facts: Facts) -> None:
    base = [facts(warps=warps) for warps in (1, 2, 4, 8)]
    head = [
        facts(warps=1),
        facts(warps=2, registers=170),
        facts(warps=4, spill_store_bytes=96, spill_load_bytes=96),
        facts(warps=8, instructions={"FFMA": 4096, "all": 5000}),
    ]
    assert [pair.either.num_warps for pair in pair_up(base, head)] == [8, 4, 2, 1]


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
