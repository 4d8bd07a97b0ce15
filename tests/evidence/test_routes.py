"""What a race found becomes a table only where it is plainly worth it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from evidence import candidates
from evidence.attention_candidates import AttentionExperiment
from evidence.candidates import Findings, main
from evidence.matmul_candidates import MatmulExperiment
from evidence.matmul_candidates import candidates as of_shape
from evidence.race import Entry, Outcome, Point, Ratio
from evidence.routes import GAINS, TABLE, choose, take_plain_kernels

from flopwatch.gate.choices import TIE
from flopwatch.kernels import routes
from flopwatch.kernels.hopper_matmul import HopperConfig
from flopwatch.kernels.known import PLAIN, TABLES, known_choices
from flopwatch.kernels.routes import ATTENTION, PRODUCTS, known_routes
from flopwatch.kernels.thin_matmul import ThinConfig
from flopwatch.model import to_json
from flopwatch.tune.table import read_table

if TYPE_CHECKING:
    from pathlib import Path

MATMUL = MatmulExperiment()
POINTS = {point.name: point for point in MATMUL.points()}
GPU = "NVIDIA H200"
LARGE, THIN, ODD = (f"{shape} float16" for shape in ("4096x4096x4096", "16x4096x4096", "777x1234x5678"))


def winner(name: str, kind: type[HopperConfig | ThinConfig]) -> str:
    """Return a candidate of that kind at a point."""
    return next(label for label, config in of_shape(name.partition(" ")[0]).items() if isinstance(config, kind))


def outcome(name: str, fastest: str, lower: float, *, peer: str = PLAIN, points: dict[str, Point] = POINTS) -> Outcome:
    return Outcome(
        point=points[name],
        entries=(Entry(name=fastest, peer=False, seconds=1e-4), Entry(name=peer, peer=True, seconds=1.1e-4)),
        winner=fastest,
        ratios=(Ratio(peer=peer, speed=lower + 0.005, lower=lower, upper=lower + 0.01),),
    )


def findings(*outcomes: Outcome, version: str = "3.6.0") -> Findings:
    about = {"gpu": GPU, "triton": version, "torch": "2.11.0"}
    return Findings(source="", date="2026-11-22", about=about, outcomes=outcomes)


def chosen(path: Path, *outcomes: Outcome, experiment: MatmulExperiment | AttentionExperiment = MATMUL) -> list[str]:
    """Write a table; return what was said of each point."""
    return list(choose(findings(*outcomes), experiment, "the command", path))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "routes.json"


def test_a_winner_that_is_worth_it_is_what_public_functions_take(table: Path) -> None:
    fast = winner(LARGE, HopperConfig)
    (said,) = chosen(table, outcome(LARGE, fast, 1.031))

    key = "4096, 4096, 4096, float16, float16, float16"
    assert known_routes(PRODUCTS, table.parent) == {(GPU, key): ("hopper_matmul_kernel", fast)}
    assert said == f"{LARGE}: hopper_matmul_kernel; {fast} has 1.036 [1.031, 1.041] of the plain kernel's speed"


@pytest.mark.parametrize(
    ("name", "kind", "lower", "taken"),
    [
        (LARGE, HopperConfig, 1.029, False),
        (LARGE, HopperConfig, 1.031, True),
        (THIN, ThinConfig, 1.003, False),
        (THIN, ThinConfig, 1.005, True),
        (THIN, HopperConfig, 1.005, False),
        (ODD, HopperConfig, 1.5, False),  # its operands were copied first
    ],
)
def test_gluon_has_to_be_worth_more_than_plain_triton(
    table: Path, name: str, kind: type[HopperConfig | ThinConfig], lower: float, taken: bool
) -> None:
    chosen(table, outcome(name, winner(name, kind), lower))

    assert bool(known_routes(PRODUCTS, table.parent)) is taken


def test_who_was_not_held_against_the_plain_kernel_is_not_taken(table: Path) -> None:
    fast = winner(LARGE, HopperConfig)

    assert chosen(table, outcome(LARGE, fast, 2.0, peer="torch")) == [f"{LARGE}: plain; {fast} cannot be taken"]
    assert known_choices("hopper_matmul_kernel", table.parent) == {}


def test_a_later_race_takes_the_place_of_an_earlier_one_and_leaves_the_others(table: Path) -> None:
    thin, large = winner(THIN, ThinConfig), winner(LARGE, HopperConfig)
    chosen(table, outcome(THIN, thin, 1.2), outcome(LARGE, large, 1.2))
    known_routes.cache_clear()

    chosen(table, outcome(LARGE, large, 1.01))

    assert [choice for choice, _ in known_routes(PRODUCTS, table.parent).values()] == ["thin_matmul_kernel"]


def test_a_race_with_another_triton_leaves_what_was_chosen_with_the_first(table: Path) -> None:
    first, second = list(of_shape("4096x4096x4096"))[:2]
    chosen(table, outcome(LARGE, first, 1.2))
    newer = findings(outcome(LARGE, second, 1.2), version="3.7.1")

    assert list(choose(newer, MATMUL, "the command", table))
    assert [entry.versions["triton"] for entry in read_table(table).entries] == ["3.6.0", "3.7.1"]


@pytest.mark.parametrize(
    "now",
    [
        Outcome(point=POINTS[LARGE], reason="no candidate is right"),
        outcome(LARGE, winner(LARGE, HopperConfig), 1.2, peer="torch"),
        outcome(LARGE, "a configuration of last year", 1.2),
    ],
    ids=["no winner", "no ratio", "no such candidate"],
)
def test_a_race_that_nobody_wins_takes_an_earlier_choice_back(table: Path, now: Outcome) -> None:
    chosen(table, outcome(LARGE, winner(LARGE, HopperConfig), 1.2))
    assert known_choices("hopper_matmul_kernel", table.parent)

    (said,) = chosen(table, now)

    assert said.startswith(f"{LARGE}: plain; ")
    assert known_choices("hopper_matmul_kernel", table.parent) == {}


def test_attention_is_taken_for_its_sizes(table: Path) -> None:
    experiment = AttentionExperiment()
    points = {point.name: point for point in experiment.points()}
    chosen(table, outcome("64 causal 4096", "64: 192x128 s2", 1.1, points=points), experiment=experiment)

    key = "4, 32, 32, 4096, 4096, 64, True, float16, float16"
    assert known_routes(ATTENTION, table.parent) == {(GPU, key): ("hopper_attention_kernel", "192x128 s2")}


def test_the_command_line_writes_the_table(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = table.with_name("result.json")
    broken = Outcome(point=POINTS[THIN], reason="no candidate is right")
    result.write_bytes(to_json(findings(outcome(LARGE, winner(LARGE, HopperConfig), 1.2), broken)))
    monkeypatch.setattr(candidates, "choose", lambda found, races, command: choose(found, races, command, table))

    main(MATMUL, ["choose", str(result)], "python -m evidence.matmul_candidates", "")

    assert capsys.readouterr().out.splitlines()[1] == f"{THIN}: plain; no candidate is right"
    assert 'python -m evidence.matmul_candidates choose result.json"' in table.read_text()


def test_the_command_line_chooses_for_the_points_that_are_named(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = table.with_name("result.json")
    both = (outcome(LARGE, winner(LARGE, HopperConfig), 1.2), outcome(THIN, winner(THIN, ThinConfig), 1.2))
    result.write_bytes(to_json(findings(*both)))
    monkeypatch.setattr(candidates, "choose", lambda found, races, command: choose(found, races, command, table))

    main(MATMUL, ["choose", str(result), "--only", THIN], "python -m evidence.matmul_candidates", "")

    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith(f"{THIN}: thin_matmul_kernel; ")
    assert f"python -m evidence.matmul_candidates choose result.json --only '{THIN}'" in table.read_text()
    assert LARGE.partition(" ")[0] not in table.read_text()


@pytest.mark.parametrize("raced", [MatmulExperiment(held_out=True), MatmulExperiment(by_columns=True)])
def test_points_of_other_races_choose_nothing(
    raced: MatmulExperiment, table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {point.name: point for point in raced.points()}
    name = "128x8192x8192 bfloat16 columns"
    result = table.with_name("result.json")
    result.write_bytes(to_json(findings(outcome(name, "short 64x128x64 s8 w4 x1 tma", 1.2, points=points))))
    monkeypatch.setattr(candidates, "choose", lambda found, races, command: choose(found, races, command, table))

    with pytest.raises(SystemExit, match=r"(?s)result.json has points .* choose with the options of the race"):
        main(MATMUL, ["choose", str(result)], "python -m evidence.matmul_candidates", "")
    assert not table.exists()
    main(MatmulExperiment(by_columns=True), ["choose", str(result)], "the program", "")
    assert capsys.readouterr().out.startswith(f"{name}: hopper_short_kernel; ")


def test_a_shape_has_a_choice_by_rows_and_one_by_columns(table: Path) -> None:
    races = MatmulExperiment(by_columns=True)
    by_columns = {point.name: point for point in races.points()}
    tile = winner(LARGE, HopperConfig)
    shape = "128x8192x8192 bfloat16"
    rows = outcome(shape, "short 64x128x64 s8 w4 x1 tma", 1.2)
    columns = outcome(f"{shape} columns", "short 64x128x64 s8 w4 x1 tma pdl", 1.2, points=by_columns)
    chosen(table, rows, outcome(LARGE, tile, 1.2))
    chosen(table, columns, experiment=races)

    key = "128, 8192, 8192, bfloat16, bfloat16, bfloat16"
    found = known_routes(PRODUCTS, table.parent)
    assert len(found) == 3
    assert found[GPU, key] == ("hopper_short_kernel", "short 64x128x64 s8 w4 x1 tma")
    assert found[GPU, f"{key}, by columns"] == ("hopper_short_kernel", "short 64x128x64 s8 w4 x1 tma pdl")


def test_what_a_gain_must_be_is_known_of_every_kernel() -> None:
    assert GAINS.keys() == {*PRODUCTS, *ATTENTION}
    assert min(GAINS.values()) == TIE
    assert TABLE.parent == TABLES


def test_those_who_race_take_plain_kernels() -> None:
    take_plain_kernels()

    assert os.environ[routes.KERNELS_VARIABLE] == "plain"
