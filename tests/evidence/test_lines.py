from __future__ import annotations

from pathlib import Path

import pytest
from evidence import lines
from evidence.candidates import Findings
from evidence.lines import InLines, LinesExperiment, gains
from evidence.matmul_candidates import is_by_columns
from evidence.peer_shapes import sizes
from evidence.race import Entry, Outcome, Point

from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.scratch import LINES_FROM, LINES_ROWS
from flopwatch.model import from_json

RECORDED = Path(lines.__file__).parent / "h100" / "lines-2026-11-25.json"


def test_each_product_has_its_configuration_in_either_way() -> None:
    experiment = LinesExperiment()
    points = experiment.points()
    assert {is_by_columns(point) for point in points} == {False, True}
    for point in points:
        as_is, copied = experiment.candidates(str(point.values[0]), by_columns=is_by_columns(point)).values()
        assert isinstance(as_is, HopperConfig)
        assert isinstance(copied, InLines)
        assert str(copied) == f"in lines {as_is}"
        m, n, k = sizes(str(point.values[0]))
        assert (k if is_by_columns(point) else n) % 16 == 8, f"a row of {m}x{n}x{k} begins with a sector"


def outcome(**seconds: float) -> Outcome:
    names = {"as_is": "tile", "copied": "in lines tile"}
    entries = [Entry(name=names.get(name, name), peer=name == "torch", seconds=each) for name, each in seconds.items()]
    point = Point(name="2000x1000x500", group="", flops=2e9, values=("2000x1000x500", "float16"))
    return Outcome(point=point, entries=tuple(entries))


def test_gains_are_of_both_ways() -> None:
    (line,) = gains([outcome(as_is=3e-6, copied=2e-6, torch=1e-6)])

    assert line == "2000x1000x500: 2000 rows, 1 G multiply-adds, 1.500; of torch 0.333, 0.500"


@pytest.mark.parametrize("missing", ["as_is", "copied", "torch"])
def test_what_was_not_timed_in_both_ways_says_so(missing: str) -> None:
    seconds = {"as_is": 3e-6, "copied": 2e-6, "torch": 1e-6}
    seconds.pop(missing)

    assert list(gains([outcome(**seconds)])) == ["2000x1000x500: not timed"]


def test_copies_are_made_where_they_were_measured_to_gain() -> None:
    """Or are level, by what medians of different rounds drift; and not where the product took longer by that."""
    outcomes = from_json(RECORDED.read_bytes(), Findings).outcomes
    made, gained, lost = 0, 0, 0
    for each, line in zip(outcomes, gains(outcomes), strict=True):
        rows, gain = sizes(str(each.point.values[0]))[0], float(line.split("; ")[0].split(", ")[-1])
        if rows >= LINES_ROWS and each.point.flops / 2 >= LINES_FROM:
            made += 1
            assert gain > 0.97, line
            gained += gain > 1.03
        lost += gain < 1.0

    assert made > 15
    assert gained >= made - 2
    assert lost > 0


def test_without_a_gpu_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    with pytest.raises(SystemExit, match="there is no GPU here"):
        lines.run(["race", str(tmp_path / "out.json")])
    with pytest.raises(SystemExit, match="chosen from the races"):
        lines.run(["race", "choose", str(tmp_path / "out.json")])
