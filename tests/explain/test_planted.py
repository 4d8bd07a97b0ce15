"""The first line names the cause of each planted regression, from the facts that the calibration keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from evidence.regressions import REGRESSIONS, Regression, Sight
from evidence.static_document import Calibration

from flopwatch.explain import run
from flopwatch.explain.ranking import _PLAIN
from flopwatch.gate.sides import Arm
from flopwatch.measure.protocol import Compiled
from flopwatch.static.comparison import LOADS
from flopwatch.static.launches import Launched, compare_launches

if TYPE_CHECKING:
    from evidence.static_records import Compilation

#: Where another fact comes first: of full float32 precision the tile that is tried first does not fit an A100, and on a
#: B200 products of float16 and of TF32 are the same instructions.
OTHERWISE = {
    ("a100", "full-precision"): "it no longer compiles or fits",
    ("b200", "float32-weights"): "fewer of its warps are resident",
}
#: What a person changed, which says it all where its effect shows in no fact.
BY_HAND = {"narrow-step": "BLOCK_K=64 -> BLOCK_K=16"}


def cause(kept: Compilation, planted: Regression) -> str:
    """Say what `flopwatch explain` would, of what is kept."""
    sides = [
        Compiled(facts=tuple(kept._at(facts)), traffic=kept._launches_at(launches))
        for facts, launches in (
            (kept.base[planted.case], kept.base_launches.get(planted.case, ())),
            (kept.heads[planted.name][planted.case], kept.head_launches.get(planted.name, {}).get(planted.case, ())),
        )
    ]
    base, head = (list(side.facts) for side in sides)
    launches = compare_launches(*(Launched(facts=side.facts, traffic=side.traffic) for side in sides))
    return run._cause(run._stories(base, head, launches), dict(zip(Arm, sides, strict=True)))


def words(fact: str) -> str:
    return "it no longer compiles or fits" if fact == LOADS else _PLAIN[fact]


@pytest.mark.parametrize(
    "kept", Calibration.read().compilations, ids=lambda kept: f"{kept.device}-{kept.versions['triton']}"
)
@pytest.mark.parametrize(
    "planted", [each for each in REGRESSIONS if each.sight is not Sight.HOST], ids=lambda planted: planted.name
)
def test_the_first_line_names_the_cause_of_each_planted_regression(kept: Compilation, planted: Regression) -> None:
    told = cause(kept, planted)
    expected = [words(fact) for fact in planted.facts]
    expected += [found for found in (OTHERWISE.get((kept.device, planted.name)), BY_HAND.get(planted.name)) if found]
    assert [text for text in expected if text in told] != [], told


def test_what_shows_in_no_kernel_is_left_to_the_torch_functions_that_are_called() -> None:
    """`second-pass` calls `clone` twice; tests/explain/test_run.py has what is said of that."""
    (planted,) = (each for each in REGRESSIONS if each.sight is Sight.HOST)
    assert planted.name == "second-pass"
    assert "x, y = x.clone(), y.clone()" in planted.changes[0].new  # type: ignore[union-attr] # an edit
