from __future__ import annotations

import datetime as dt
import json
import math
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from evidence import peer_document, peer_records
from evidence.peer_document import OTHER_DEVICE, PAGE, blocks, plots, standing, write
from evidence.peer_goals import ATTENTION_GROUPS, FP8, PRODUCTS, Group
from evidence.peer_plots import DEVICE, measured_plots
from evidence.peer_recorded import Recorded, read_recordings, recorded
from evidence.peer_records import Peers
from evidence.peer_shapes import MATMUL, peers_at
from evidence.samples import FOLDER
from tests.evidence.test_peer_records import NUMBERS, SITTING, beside

from flopwatch.model import Failure
from flopwatch.record.sidecar import CaseLog, Line, SessionLog, append, read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from evidence.peer_goals import Point
    from evidence.peer_records import Beside

TWO: tuple[Point, ...] = (("PeerMatmul", "256x256x256", "float16"), ("PeerMatmul", "512x512x512", "float16"))
GOAL = Group(name="two", points=TWO, peer="torch", mean=1.05, floor=0.97)


@pytest.fixture(scope="module")
def own() -> Recorded | None:
    return recorded()


def kept(*found: Beside) -> Peers:
    return Peers().added(SITTING, found)


def everything(speed: float) -> Peers:
    """Every point beside every peer."""
    points = dict.fromkeys(point for group in (*PRODUCTS, *FP8, *ATTENTION_GROUPS) for point in group.points)
    return kept(*(beside(point, peer, speed) for point in points for peer in peers_at(*point[:2])))


def test_the_page_is_what_is_kept(own: Recorded | None, tmp_path: Path) -> None:
    page = tmp_path / PAGE.name
    shutil.copy(PAGE, page)
    write(page=page)

    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
    peers, others = (peer_records.kept(FOLDER / device) for device in (DEVICE, OTHER_DEVICE))
    drawn = plots(peers, own, others)
    assert {path.name for path in (PAGE.parent / "images").glob("performance-*")} == drawn.keys()
    for name, text in drawn.items():
        assert (PAGE.parent / "images" / name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("number", range(3))
def test_what_was_measured_elsewhere_is_told_apart(number: int) -> None:
    groups = (PRODUCTS, FP8, ATTENTION_GROUPS)[number]
    point = groups[-1].points[0]
    measured = kept(*(beside(point, peer, 0.1) for peer in peers_at(*point[:2])))
    part = peer_document.elsewhere(measured)

    assert SITTING.command in part
    every = (*PRODUCTS, *FP8, *ATTENTION_GROUPS)
    told = [group for group in every if f"| {group.name} |" in part]
    assert told == [group for group in every if point in group.points]
    assert "1.105 ± " in part
    assert all(f"![](images/{name})" in part for name in measured_plots(measured, OTHER_DEVICE))
    drawn = groups is ATTENTION_GROUPS  # the others' point is no square
    assert part.count("images/") == part.count("images/performance-h100-") == drawn


def test_where_nothing_was_measured_elsewhere_nothing_is_told() -> None:
    assert peer_document.elsewhere(Peers()) == ""


def test_a_run_of_which_nothing_counts_any_more_is_not_told() -> None:
    later = replace(SITTING, date="2026-12-01", command="python -m evidence.peers measure OUT.json --only later")
    found = kept(beside(TWO[0], "torch", 0.1)).added(later, [beside(TWO[1], "torch", 0.1)])

    assert all(text in peer_document.origin(found) for text in (SITTING.date, later.date, later.command))
    told = peer_document.origin(replace(found, beside=found.beside[1:]))
    assert later.command in told
    assert SITTING.date not in told
    assert "Nothing has been measured" in peer_document.origin(replace(found, beside=()))


def test_the_page_shows_plots_that_there_are(own: Recorded | None) -> None:
    for peers in (Peers(), everything(0.1)):
        parts = [*blocks(peers, own).values(), peer_document.elsewhere(peers)]
        shown = re.findall(r"!\[\]\(images/([^)]+)\)", "".join(parts))
        assert sorted(shown) == sorted(plots(peers, own, peers))


def test_a_page_without_a_measurement_says_so(own: Recorded | None) -> None:
    parts = blocks(Peers(), own)

    assert parts["origin"].startswith("Nothing has been measured beside a peer yet.")
    for name in ("matmul", "fp8", "attention", "launch"):
        assert peer_document.NOT_YET in parts[name]
    assert "| float16, all 30 | 0 of 30 |  |  | 1.05, no point below 0.97 | not measured yet |" in parts["matmul"]


@pytest.mark.parametrize(
    ("speeds", "verdict"),
    [
        ((0.10, 0.02), "reached"),
        ((0.10, -0.02), "**not reached**"),  # the mean is 1.041
        ((0.30, -0.04), "**not reached**"),  # the mean is 1.139, the worst 0.961
        ((0.10, None), "open: 1 of 2 points measured; not everywhere beside torch"),
        ((None, None), "not measured yet"),
    ],
)
def test_a_goal_is_reached_by_its_mean_and_its_worst_point(speeds: tuple[float | None, ...], verdict: str) -> None:
    found = [beside(point, "torch", speed) for point, speed in zip(TWO, speeds, strict=True) if speed is not None]

    assert standing(kept(*found), GOAL).verdict == verdict


def test_the_largest_errors_of_a_class_are_told() -> None:
    one, two = (beside(point, "torch", 0.1) for point in TWO)
    worse = replace(one.case.head, numbers=replace(NUMBERS, max_diff_eps=0.75))
    peer = replace(two.case.base, numbers=replace(NUMBERS, max_diff_eps=0.625))
    found = [
        replace(one, case=replace(one.case, head=worse)),
        replace(two, case=replace(two.case, base=peer)),
    ]

    assert standing(kept(*found), GOAL).errors == (0.75, 0.625)
    assert standing(Peers(), GOAL).errors is None
    assert peer_document.section(kept(*found), [GOAL]).splitlines()[2].endswith("| reached | 0.75, 0.62 |")


def test_a_kernel_that_fails_reaches_no_goal() -> None:
    failing = beside(TWO[1], "torch", None, reason="flopwatch is wrong: error 9 eps, ceiling 4")
    wrong = replace(failing.case.head, numbers=replace(NUMBERS, max_diff_eps=9.0))
    failed = replace(failing.case.head, failure=Failure(kind="ValueError", message="no"), numbers=None)
    for head in (wrong, failed):
        found = kept(beside(TWO[0], "torch", 0.5), replace(failing, case=replace(failing.case, head=head)))
        assert standing(found, GOAL).verdict == "**not reached**: 1 fail"


def test_the_fastest_peer_counts_and_one_that_cannot_run_is_left_out() -> None:
    point = ("PeerAttention", "32x8x512x256", "full")
    group = Group(name="one", points=(point,), mean=0.95)
    cudnn = beside(point, "cudnn", None, reason="cudnn fails (RuntimeError: no kernel)")
    found = kept(cudnn, beside(point, "flash2", 0.4), beside(point, "flash4", -0.04))
    part = peer_document.section(found, [group])

    assert standing(found, group).verdict == "reached"
    assert math.isclose(standing(found, group).mean or 0.0, math.exp(-0.04))
    assert "| 32x8x512x256 full | 10.00 µs | 100 | see below | 67.03 | 104.1 | flash4 | 0.961 ± 0.005 |" in part
    assert "- `cudnn fails (RuntimeError: no kernel)`: 32x8x512x256 full" in part


def test_a_goal_against_all_stays_open_until_all_were_tried() -> None:
    point = ("PeerAttention", "32x8x512x256", "full")
    group = Group(name="one", points=(point,), mean=0.95)

    verdict = standing(kept(beside(point, "cudnn", 0.5), beside(point, "flash2", 0.5)), group).verdict
    assert verdict == "open: 1 of 1 points measured; not everywhere beside flash4"


def test_a_whole_measurement_is_tables_and_plots(own: Recorded | None) -> None:
    peers = everything(0.1)
    parts = blocks(peers, own)

    assert "| bfloat16, all 30 | 30 of 30 | **1.105 ± 0.000** | 1.105 ± 0.005 at" in parts["matmul"]
    assert "| head_dim 128, cuDNN | 12 of 12 | **1.105 ± 0.001** |" in parts["attention"]
    assert "not measured" not in parts["matmul"] + parts["fp8"] + parts["attention"]
    assert "| PeerMatmul | flopwatch | 11.00 µs | 11.00 µs | 1.03 |" in parts["launch"]
    assert "| PeerMatmul | torch | 10.70 µs | 10.70 µs |  |" in parts["launch"]
    assert "driver 580.1, power limit 700 W; torch 2.11.0, triton 3.6.0; 2026-11-23; kernels" in parts["origin"]
    assert len(plots(peers, None, Peers())) == len(plots(Peers(), None, peers)) == 2 + 1 + 8


def test_the_error_of_a_mean_is_that_of_independent_points() -> None:
    points = [("PeerMatmul", shape, "float16") for shape in MATMUL[:6]]
    group = Group(name="six", points=tuple(points), peer="torch")
    found = [beside(point, "torch", 0.1) for point in points]

    # 0.2 % from process to process, three of them, six points
    assert standing(kept(*found), group).error == pytest.approx(1.96 * 0.002 / math.sqrt(3 * 6))
    assert standing(kept(*found[:5]), group).error is None
    assert standing(kept(*found[:5], replace(found[5], log_ratios=(0.1,))), group).error is None


def test_a_launch_is_told_in_units_of_the_cheapest_peers() -> None:
    point = ATTENTION_GROUPS[0].points[0]
    costs = {"cudnn": 40e-6, "flash2": 30e-6, "flash4": None}
    found = [beside(point, peer, 0.1) for peer in costs]
    found = [
        replace(each, case=replace(each.case, base=replace(each.case.base, launch_seconds=cost)))
        for each, cost in zip(found, costs.values(), strict=True)
    ]

    assert "| PeerAttention | flopwatch | 11.00 µs | 11.00 µs | 0.37 |" in peer_document.launch(kept(*found))


def test_the_goals_are_of_the_points_that_suites_have() -> None:
    assert [len(group.points) for group in PRODUCTS] == [30, 15, 12, 3] * 2
    assert [len(group.points) for group in FP8] == [20, 15, 5, 10, 5, 5]
    assert [len(group.points) for group in ATTENTION_GROUPS] == [12] * 6


def test_recorded_rates_are_those_of_the_recording(own: Recorded | None) -> None:
    if own is None:
        pytest.skip("no recording is kept")
    case = next(each for each in own.cases if each.name == "Matmul 4096x4096x4096 float16")

    assert case.tflops == pytest.approx(2 * 4096**3 / case.seconds / 1e12)
    assert case.square == 4096
    assert {each.square for each in own.cases if each.name == "Matmul 1000x1000x1000 float16"} == {None}
    row = next(line for line in peer_document.alone(own).splitlines() if line.startswith(f"| {case.name} |"))
    assert f"| {case.tflops:.4g} |" in row


def write_recording(folder: Path, commit: str, date: int, *, speeds: dict[str, float], anchor: str = "a" * 40) -> Path:
    """Write what `flopwatch record` keeps of a commit: asv's result, as far as it is read, and the file beside it."""
    machine = replace(SITTING.machine, versions={"triton": commit[:3]})
    at = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
    path = folder / f"{commit[:8]}-env.jsonl"
    append(path, Line(session=SessionLog(at=at, machine=machine)))
    for name, speed in speeds.items():
        log = CaseLog(
            case=f"{name}[64x64x64,float16,flopwatch]",
            version="1",
            at=at,
            seconds=1.0,
            anchor=anchor,
            anchor_seconds=speed * 1e-5,
            pair_seconds=1e-5,
        )
        append(path, Line(case=log))
    about = {"commit_hash": commit, "date": date * 86_400_000}
    path.with_suffix(".json").write_text(json.dumps(about), encoding="utf-8")
    return path


def test_commits_are_told_in_units_of_the_anchor_of_cases_that_all_have(tmp_path: Path) -> None:
    others = {f"Other{number}": 9.0 for number in range(10)}
    older = {**others, "Matmul": 2.0, "Linear": 8.0, "MatmulFp8": 3.0}
    newer = {**others, "Matmul": 1.0, "Linear": 4.0, "MatmulFp8": 1.5, "GroupedAttention": 7.0}
    write_recording(tmp_path, "b" * 40, 2, speeds=newer)  # recorded first
    write_recording(tmp_path, "c" * 40, 1, speeds=older)
    own = recorded(tmp_path)

    assert own is not None
    assert [each.commit[0] for each in own.history] == ["c", "b"]
    assert {case.suite for case in own.cases} == {"Matmul", "Linear"}
    assert "2026-11-30, commit bbbbbbbbbbbb, driver 580.1, triton bbb" in peer_document.alone(own)
    assert peer_document.commits(own.history).splitlines() == [
        "| commit | date | products in 16 bits, cases: 2 | products in fp8, cases: 1 |",
        "|:--|:--|--:|--:|",
        "| `cccccccccccc` | 1970-01-02 | 4.00 | 3.00 |",
        "| `bbbbbbbbbbbb` | 1970-01-03 | 2.00 | 1.50 |",
        "",
        "```console",
        "$ flopwatch record COMMIT --machine h200 --anchor aaaaaaaaaaaa",
        "```",
    ]


def test_of_recordings_those_count_that_are_whole_and_of_one_anchor(tmp_path: Path) -> None:
    cases = {f"Suite{number}": 2.0 for number in range(10)}
    for date, commit in enumerate("bcd"):
        write_recording(tmp_path, commit * 40, date, speeds=cases)
    write_recording(tmp_path, "e" * 40, 4, speeds={"Suite0": 3.0})
    write_recording(tmp_path, "f" * 40, 0, speeds=cases, anchor="9" * 40)
    (tmp_path / "begun-env.jsonl").write_bytes((tmp_path / "bbbbbbbb-env.jsonl").read_bytes())
    write_recording(tmp_path, "7" * 40, 5, speeds={})

    assert [each.commit[0] for each in read_recordings(tmp_path)] == ["b", "c", "d"]


def test_what_failed_when_it_was_measured_again_is_not_told(tmp_path: Path) -> None:
    path = write_recording(tmp_path, "b" * 40, 1, speeds={"Matmul": 2.0, "Linear": 3.0})
    (linear,) = (case for case in read_cases(path) if case.case.startswith("Linear"))
    append(path, Line(case=replace(linear, anchor_seconds=None, pair_seconds=None)))
    own = recorded(tmp_path)

    assert own is not None
    assert [case.suite for case in own.cases] == ["Matmul"]


def test_where_nothing_is_recorded_there_is_nothing(tmp_path: Path) -> None:
    assert recorded(tmp_path) is None
    assert read_recordings(tmp_path) == ()


def test_lengths_are_told_beside_the_same_attention_without_them(own: Recorded | None) -> None:
    assert own is not None
    (full,) = (each for each in own.cases if each.name == "Attention 4x8x1024x64 full")
    (varied,) = (each for each in own.cases if each.name == "Attention 4x8x1024x64 lengths")
    assert (full.mean_length, varied.mean_length) == (None, 0.625), "256, 512, 768 and 1024"
    pair = replace(own, cases=(replace(full, seconds=20e-6), replace(varied, seconds=15e-6)))

    assert peer_document.lengths(pair).splitlines()[2:] == [
        "| 4x8x1024x64 | 0.62 | 20.00 µs | 15.00 µs | 0.75 | `hopper_attention_kernel` | `attention_kernel` |"
    ]
    assert len(peer_document.lengths(replace(own, cases=(varied,))).splitlines()) == 2, "with nothing beside it"
