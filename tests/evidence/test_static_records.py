from __future__ import annotations

import math
from dataclasses import replace

import pytest
from evidence.planted import PLANTED
from evidence.static_records import MARGIN, Compilation, Measurement, Slowdown

from flopwatch.measure.machine import Gpu, Machine
from flopwatch.model import KernelFacts, from_json, to_json
from flopwatch.static.comparison import Severity
from flopwatch.static.traffic import Traffic

FACT = KernelFacts(
    kernel="k",
    device="h200",
    config="M=1",
    variant="*fp16",
    chosen=True,
    spill_store_bytes=0,
    spill_load_bytes=0,
    code_fingerprint="a",
)
SPILLS = replace(FACT, spill_store_bytes=8, code_fingerprint="b")
EMPTY = Compilation(commit="c", kernels="t", device="h200", versions={"triton": "3.7.1"}, date="2026-11-21")
MACHINE = Machine(
    gpu=Gpu(name="NVIDIA H200", uuid="GPU-4a1f6e2c", driver="580.159.04"),
    versions={"triton": "3.6.0"},
    cpu_model="Intel",
    cpu_count=16,
)
FIRST, SECOND = list(PLANTED)[:2]


def compiled() -> Compilation:
    return EMPTY.added("", {"Case[1]": [FACT]}).added(FIRST, {"Case[1]": [SPILLS]}).added(SECOND, {"Case[1]": [FACT]})


def test_each_fact_is_kept_once_and_read_again() -> None:
    found = from_json(to_json(compiled()), Compilation)

    assert found == compiled()
    assert found.facts == (FACT, SPILLS)
    assert (found.base, found.heads) == (
        {"Case[1]": (0,)},
        {FIRST: {"Case[1]": (1,)}, SECOND: {"Case[1]": (0,)}},
    )


def test_findings_are_what_the_rules_say_now() -> None:
    assert [(each.fact, each.severity) for each in compiled().findings(FIRST)] == [("spills", Severity.WARN)]
    assert compiled().changes(SECOND) == ()


def test_what_was_compiled_again_leaves_nothing_behind_and_the_order_is_always_the_same() -> None:
    again = compiled().added(FIRST, {"Case[1]": [FACT]}).compact()
    reverse = EMPTY.added(SECOND, {"Case[1]": [FACT]}).added(FIRST, {"Case[1]": [SPILLS]})

    assert again.facts == (FACT,)
    assert to_json(reverse.added("", {"Case[1]": [FACT]}).compact()) == to_json(compiled().compact())


def test_a_slowdown_has_an_interval_of_its_pairs() -> None:
    slowdown = Slowdown(name=FIRST, case="Case[1]", log_ratios=tuple(math.log(1 + each / 100) for each in range(8, 13)))
    low, middle, high = slowdown.bounds

    assert (low, high) == pytest.approx((0.08, 0.12), abs=1e-4)
    assert middle == pytest.approx(0.10, abs=0.002)
    assert slowdown.is_slower is True
    assert slowdown.text == "+10.0 % (+8.0 to +12.0 %)"


@pytest.mark.parametrize("share", [0.0, MARGIN / 2, -0.2])
def test_what_is_not_slower_by_the_margin_is_not_slower(share: float) -> None:
    slowdown = Slowdown(name=FIRST, case="Case[1]", log_ratios=(math.log1p(share),) * 5)
    assert slowdown.is_slower is False


def test_an_unfit_machine_says_nothing() -> None:
    slowdown = Slowdown(name=FIRST, case="Case[1]", log_ratios=(0.1,) * 5, unfit="busy")
    assert slowdown.is_slower is None


def test_what_no_longer_runs_is_a_regression() -> None:
    slowdown = Slowdown(name=FIRST, case="Case[1]", failure="OutOfResources: shared memory")
    assert slowdown.is_slower is True
    assert slowdown.text == "does not run: OutOfResources: shared memory"


def test_slowdowns_are_kept_by_name_in_the_order_in_which_they_are_planted() -> None:
    found = Measurement(commit="c", kernels="t", date="2026-11-21", machine=MACHINE)
    for name, seconds in ((SECOND, 1.0), (FIRST, 2.0), (SECOND, 3.0)):
        slowdown = Slowdown(name=name, case="Case[1]", seconds=seconds)
        found = found.added(slowdown, command=f"of {name}", commit="d", date="2026-11-22")

    assert [(each.name, each.seconds) for each in found.slowdowns] == [(FIRST, 2.0), (SECOND, 3.0)]
    assert found.commands == (f"of {SECOND}", f"of {FIRST}")
    assert (found.commit, found.date) == ("d", "2026-11-22")
    assert from_json(to_json(found), Measurement) == found


def test_pairs_that_all_failed_say_nothing() -> None:
    slowdown = Slowdown(name=FIRST, case="Case[1]")
    assert (slowdown.is_slower, slowdown.text) == (None, "not measured")


def test_launches_are_kept_once_and_compared_where_both_sides_have_them() -> None:
    launch = Traffic(
        kernel="k", device="h200", config="M=1", variant="*fp16", grid=(1,), programs=1, dot_flops={"f16": 1000}
    )
    more = replace(launch, dot_flops={"f16": 2000})
    found = EMPTY.added("", {"Case[1]": [FACT]}, {"Case[1]": [launch]})
    found = found.added(FIRST, {"Case[1]": [FACT]}, {"Case[1]": [more]}).added(SECOND, {"Case[1]": [FACT]})

    assert [(each.fact, each.severity) for each in found.findings(FIRST)] == [("dot flops", Severity.WARN)]
    assert found.findings(SECOND) == ()
    assert from_json(to_json(found), Compilation) == found == found.compact()
    assert found.added(FIRST, {"Case[1]": [FACT]}).compact().launches == (launch,)
