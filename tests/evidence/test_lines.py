from __future__ import annotations

from pathlib import Path

import pytest
import torch
from evidence import lines
from evidence.candidates import Findings
from evidence.lines import AS_IT_IS, InLines, LinesExperiment, gains
from evidence.matmul_candidates import is_by_columns
from evidence.peer_shapes import sizes
from evidence.race import Outcome, Point, Ratio

from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.scratch import is_worth_lines
from flopwatch.model import from_json

RECORDED = Path(lines.__file__).parent / "h100" / "lines-2026-11-26.json"


def test_each_product_has_its_configuration_in_either_way() -> None:
    experiment = LinesExperiment()
    points = experiment.points()
    assert {is_by_columns(point) for point in points} == {False, True}
    for point in points:
        candidates = dict(experiment.candidates(str(point.values[0]), by_columns=is_by_columns(point)))
        as_is = candidates.pop(AS_IT_IS)
        (copied,) = candidates.values()
        assert isinstance(as_is, HopperConfig)
        assert isinstance(copied, InLines)
        assert str(copied) == f"in lines {as_is}"
        m, n, k = sizes(str(point.values[0]))
        assert (k if is_by_columns(point) else n) % 16 == 8, f"a row of {m}x{n}x{k} begins with a sector"


def outcome(**speeds: float) -> Outcome:
    names = {"as_is": AS_IT_IS}
    ratios = [
        Ratio(peer=names.get(name, name), speed=speed, lower=speed - 0.01, upper=speed + 0.01)
        for name, speed in speeds.items()
    ]
    point = Point(name="2000x1000x500", group="", flops=2e9, values=("2000x1000x500", "float16"))
    return Outcome(point=point, winner="in lines tile", ratios=tuple(ratios))


def test_gains_are_of_rounds_in_which_both_were() -> None:
    (line,) = gains([outcome(as_is=1.5, torch=0.9)])

    assert line == "2000x1000x500: 2000 rows, 1 G multiply-adds, 1.500 (1.490 to 1.510); of torch 0.600, 0.900"


@pytest.mark.parametrize("missing", ["as_is", "torch"])
def test_what_was_not_timed_in_both_ways_says_so(missing: str) -> None:
    speeds = {"as_is": 1.5, "torch": 0.9}
    speeds.pop(missing)

    assert list(gains([outcome(**speeds)])) == ["2000x1000x500: not timed"]


def test_copies_are_made_where_they_were_measured_to_gain() -> None:
    """And nowhere where a product took longer by one."""
    outcomes = from_json(RECORDED.read_bytes(), Findings).outcomes
    made, gained, lost = 0, 0, 0
    for each in outcomes:
        rows, columns, depth = sizes(str(each.point.values[0]))
        gain = next(found for found in each.ratios if found.peer == AS_IT_IS)
        b = torch.empty((depth, columns), dtype=torch.float16, device="meta")
        b = b.T.contiguous().T if is_by_columns(each.point) else b
        if is_worth_lines(b, rows):
            made += 1
            assert gain.upper > 1.0, each.point.name
            gained += gain.lower > 1.0
        lost += gain.upper < 1.0

    assert made > 15
    assert gained >= made - 2
    assert lost > 0


def test_without_a_gpu_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    with pytest.raises(SystemExit, match="there is no GPU here"):
        lines.run(["race", str(tmp_path / "out.json")])
    with pytest.raises(SystemExit, match="chosen from the races"):
        lines.run(["race", "choose", str(tmp_path / "out.json")])
