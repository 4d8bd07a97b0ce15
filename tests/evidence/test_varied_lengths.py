from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from evidence import varied_lengths
from evidence.candidates import Findings
from evidence.race import Entry, Outcome, Ratio
from evidence.varied_lengths import LengthsExperiment, batch_of, configs, told

from flopwatch.model import from_json

ROOT = Path(varied_lengths.__file__).parents[1]
RECORDED = ROOT / "evidence" / "h100" / "varied-lengths-2026-11-26.json"


def test_lengths_are_drawn_within_their_bounds() -> None:
    for point in LengthsExperiment().points():
        batch = batch_of(point)
        *_, longest, entries = map(int, point.values)
        assert entries * batch.positions <= 32768
        assert all(1 <= length <= longest for length in batch.lengths)
        assert len(set(batch.lengths)) > 1 or entries == 1
        assert any(length % 64 for length in batch.lengths)


def test_what_calls_take_is_raced_and_nothing_twice() -> None:
    taken: dict[int, set[str]] = {}
    for point in LengthsExperiment().points():
        batch = batch_of(point)
        taken.setdefault(batch.head_dim, set()).add(batch.taken())
    for head_dim in varied_lengths.HEAD_DIMS:
        names = [config.name for config in configs(head_dim)]
        assert len(set(names)) == len(names)
        assert len(taken[head_dim] - {""}) > 1
        assert taken[head_dim] - {""} <= set(names)


def test_work_is_counted_without_what_is_past_a_length() -> None:
    first, *_ = LengthsExperiment().points()
    batch = batch_of(first)

    _, heads, _, head_dim = batch.shape
    pairs = sum(length**2 for length in batch.lengths)
    assert math.isclose(first.flops, 0.5 * 4 * heads * head_dim * pairs)


def told_of(**speeds: float) -> str:
    point = LengthsExperiment().points()[0]
    outcome = Outcome(
        point=point,
        winner="64: a",
        entries=(Entry(name="64: a", peer=False, seconds=2e-5),),
        ratios=tuple(
            Ratio(peer="taken: a b" if peer == "taken" else peer, speed=speed, lower=1, upper=9)
            for peer, speed in speeds.items()
        ),
    )
    outcomes = (outcome, Outcome(point=point, reason="no"))
    return told([None, Findings(source="", about={"gpu": "a GPU"}, outcomes=outcomes)])


def test_a_race_is_told_by_point_and_as_a_whole() -> None:
    text = told_of(plain=2.0, whole=4.0, taken=1.25)

    assert "| 64x32x512x64 causal | 0.47 | a | 20.00 µs | 2.00 |  | 0.25 | a b | 1.60 |" in text
    assert text.count("512x64") == 1
    assert "The geometric mean of the fastest is 2.000 of the plain kernel" in text
    assert text.endswith("and that of what calls take 1.600 of the plain kernel: 64 causal 1.60.")


def test_where_nothing_else_is_taken_it_is_the_plain_kernel() -> None:
    assert "| 2.00 |  |  | plain | 1.00 |" in told_of(plain=2.0)


def test_without_a_race_it_says_how_to_make_one() -> None:
    assert told([None]) == "Not measured yet: `python -m evidence.varied_lengths OUT.json`."


def test_calls_take_what_is_about_the_fastest_and_nowhere_slower_than_the_plain_kernel() -> None:
    """By ratios to the winner, which ran in turns with all of them."""
    outcomes = from_json(RECORDED.read_bytes(), Findings).outcomes
    assert len(outcomes) == len(LengthsExperiment().points())
    of_plain, of_fastest = [], []
    for outcome in outcomes:
        speeds = {ratio.peer: ratio.speed for ratio in outcome.ratios}
        name = batch_of(outcome.point).taken()
        taken = speeds[f"taken: {name}" if name else "plain"]
        of_plain.append(speeds["plain"] / taken)
        of_fastest.append(1 / taken)

    assert min(of_plain) >= 1
    slowest, *others = sorted(of_fastest)  # of head_dim 32 without a mask, where most of 2048 positions are void
    assert slowest > 0.75
    assert min(others) > 0.95
    assert math.prod(of_fastest) ** (1 / len(of_fastest)) > 0.99


@pytest.mark.parametrize(("argument", "why"), [("choose", "lengths are no part"), ("out.json", "there is no GPU here")])
def test_where_it_cannot_race_it_says_so(argument: str, why: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evidence.varied_lengths", argument.replace("out", str(tmp_path / "out"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert why in done.stderr
