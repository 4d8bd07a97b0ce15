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

from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION
from flopwatch.kernels.hopper_choice import lengths_config
from flopwatch.model import from_json

ROOT = Path(varied_lengths.__file__).parents[1]
RECORDED = ROOT / "evidence" / "h100" / "varied-lengths-2026-11-25.json"


def test_lengths_are_drawn_within_their_bounds_and_of_all_tokens() -> None:
    for point in LengthsExperiment().points():
        batch = batch_of(point)
        *_, positions, longest = map(int, point.values)
        assert len(batch.lengths) * positions == varied_lengths.TOKENS
        assert all(1 <= length <= longest for length in batch.lengths)
        assert len(set(batch.lengths)) > 1
        assert any(length % 64 for length in batch.lengths)


def test_what_calls_take_is_raced_and_nothing_twice() -> None:
    for head_dim in varied_lengths.HEAD_DIMS:
        names = [config.name for config in configs(head_dim)]
        assert len(set(names)) == len(names)
        taken = {lengths_config("any", 512, head_dim, causal=causal) for causal in (False, True)} - {""}
        assert taken <= set(names)


def test_work_is_counted_without_what_is_past_a_length() -> None:
    first, *_ = LengthsExperiment().points()
    batch = batch_of(first)

    _, heads, _, head_dim = batch.shape
    pairs = sum(length**2 for length in batch.lengths)
    assert math.isclose(first.flops, 0.5 * 4 * heads * head_dim * pairs)


def test_a_race_is_told_by_point_and_as_a_whole() -> None:
    point = LengthsExperiment().points()[0]
    outcome = Outcome(
        point=point,
        winner="64: a",
        entries=(Entry(name="64: a", peer=False, seconds=2e-5),),
        ratios=tuple(
            Ratio(peer=peer, speed=speed, lower=1, upper=9) for peer, speed in (("plain", 2.0), ("whole", 4.0))
        ),
    )
    text = told(
        [None, Findings(source="", about={"gpu": "a GPU"}, outcomes=(outcome, Outcome(point=point, reason="no")))]
    )

    assert "| 64x32x512x64 causal | 0.47 | a | 20.00 µs | 2.00 |  | 0.25 | 128x128 s3 q2 h64 pp |" in text
    assert text.count("512x64") == 1
    assert text.endswith("The geometric mean of all is 2.000 of the plain kernel.")


def test_without_a_race_it_says_how_to_make_one() -> None:
    assert told([None]) == "Not measured yet: `python -m evidence.varied_lengths OUT.json`."


def test_calls_take_what_was_the_fastest_in_the_mean_of_a_mask_and_faster_than_the_plain_kernel() -> None:
    """By medians of rounds."""
    gains: dict[tuple[int, bool], dict[str, list[float]]] = {}
    for outcome in from_json(RECORDED.read_bytes(), Findings).outcomes:
        batch = batch_of(outcome.point)
        seconds = {entry.name.rpartition(": ")[2]: entry.seconds for entry in outcome.entries if entry.seconds}
        for name in {config.name for config in HOPPER_ATTENTION[batch.head_dim]} & seconds.keys():
            of_mask = gains.setdefault((batch.head_dim, batch.causal), {})
            of_mask.setdefault(name, []).append(seconds["plain"] / seconds[name])
    assert len(gains) == 8
    for (head_dim, causal), of_mask in gains.items():
        taken = lengths_config("any", 512, head_dim, causal=causal)
        means = {name: math.prod(found) ** (1 / len(found)) for name, found in of_mask.items() if len(found) == 4}
        if head_dim == 32:
            assert not taken
            assert max(means.values()) < 1.07
        else:
            assert taken == max(means, key=lambda name: means[name])
            assert min(of_mask[taken]) > 1.05


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
