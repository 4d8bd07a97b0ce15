from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from evidence.page import filled
from evidence.prediction import (
    PAGE,
    PART,
    RECORDED,
    Recording,
    Recordings,
    Shape,
    Tuned,
    config_of,
    fitted,
    lines,
    losses,
    predicted_us,
    recording,
    shapes_of,
    table_of,
)

from flopwatch.gate.result import GateResult
from flopwatch.kernels.configs import MATMUL_AUTOTUNE
from flopwatch.kernels.known import TABLES
from flopwatch.kernels.prediction import HOPPER, TOP_K
from flopwatch.kernels.tuner import TIE
from flopwatch.model import Case, Choice, from_json
from flopwatch.tune.table import read_table

WIDE, *_, NARROW = MATMUL_AUTOTUNE
KEY = "512, 512, 512, float16, float16, float16"
CASE = Case(suite="Matmul", values=("512x512x512", "float16", "flopwatch"))


@pytest.fixture(scope="module")
def recordings() -> tuple[Recording, ...]:
    return from_json(RECORDED.read_bytes(), Recordings).recordings


def text_of(place: int) -> str:
    config = MATMUL_AUTOTUNE[place]
    settings = {**config.constants(), "num_warps": config.num_warps, "num_ctas": 1, "num_stages": config.num_stages}
    return ", ".join(f"{name}: {value}" for name, value in settings.items()) + ", maxnreg: None"


def tuned(*times_us: float, key: str = KEY, suite: str = "Matmul") -> Tuned:
    timings = {text_of(place): time_us for place, time_us in enumerate(times_us)}
    choice = Choice(kernel="matmul_kernel", config=min(timings, key=timings.__getitem__), key=key, timings_us=timings)
    return Tuned(case=replace(CASE, suite=suite), choice=choice)


def recorded(*tunings: Tuned, date: str = "2026-11-22") -> Recording:
    return Recording(gpu="NVIDIA H200", driver="580", versions={}, date=date, commit="a" * 40, tunings=tunings)


def chosen(*recordings: Recording) -> dict[str, int]:
    places = {text_of(place): place for place in range(len(MATMUL_AUTOTUNE))}
    return {choice.key: places[choice.config] for entry in table_of(recordings).entries for choice in entry.choices}


def test_the_short_list_has_the_fastest_of_all_that_was_recorded(recordings: tuple[Recording, ...]) -> None:
    shapes = shapes_of(recordings)
    assert sum(len(shape.times) for shape in shapes) > 90
    assert max(loss for shape in shapes for loss in losses(shape, TOP_K)) == 0
    assert max(loss for shape in shapes for loss in losses(shape, 1)) > 0.05


def test_the_page_and_the_table_are_what_the_recordings_say(recordings: tuple[Recording, ...]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == filled(page, {PART: "\n".join(lines(recordings))})
    assert read_table(TABLES / "h200.json") == table_of(recordings)


def test_a_loss_is_that_of_the_best_that_is_timed() -> None:
    times = {WIDE: 10.0, NARROW: 8.0}
    large = Shape(M=8192, N=8192, K=8192, times=(times, {WIDE: 8.0, NARROW: 10.0}))
    assert losses(large, 1) == [0.25, 0.0]
    assert losses(large, 2) == [0.0, 0.0]


def test_rates_that_made_the_times_are_found_again() -> None:
    rates = replace(HOPPER, dot_flops=4e12, latency_us=1.5)
    shapes = []
    for M, N, K in ((512, 512, 512), (1024, 1024, 8192), (4096, 4096, 4096), (16, 4096, 4096)):  # noqa: N806 - a shape
        shape = Shape(M=M, N=N, K=K, times=({},))
        times = {config: predicted_us(shape, config, rates) for config in MATMUL_AUTOTUNE}
        shapes.append(replace(shape, times=(times,)))
    found, error = fitted(shapes)
    assert error < 0.01
    assert found.dot_flops == pytest.approx(4e12, rel=0.05)
    assert found.latency_us == pytest.approx(1.5, rel=0.05)


def test_a_configuration_is_read_as_triton_writes_it() -> None:
    assert [config_of(text_of(place)) for place in range(len(MATMUL_AUTOTUNE))] == list(MATMUL_AUTOTUNE)


def test_what_the_tuners_of_base_timed_is_kept() -> None:
    gate = from_json((Path(__file__).parents[1] / "report" / "h200" / "gate-slower.json").read_bytes(), GateResult)
    verdict = gate.verdicts[0]
    assert verdict.base is not None
    one = tuned(1.23456, 2.0)
    untimed = Choice(kernel="k", config="c")
    base = replace(verdict.base, choices=(one.choice, untimed))
    found = recording(replace(gate, verdicts=(replace(verdict, base=base, head=verdict.head),)), "2026-11-21")
    assert (found.gpu, found.date, found.commit) == ("NVIDIA H200", "2026-11-21", gate.base)
    kept = replace(one.choice, timings_us={text_of(0): 1.235, text_of(1): 2.0})
    assert found.tunings == (Tuned(case=verdict.case, choice=kept),)


def test_the_first_of_those_that_are_as_fast_is_the_tables() -> None:
    near, far = 10 * (1 + TIE / 2), 10 * (1 + TIE * 2)
    assert chosen(recorded(tuned(near, 10.0, 9.999))) == {KEY: 0}
    assert chosen(recorded(tuned(far, 10.0, 10.01))) == {KEY: 1}


def test_the_table_has_the_usual_choice_of_the_keys_of_today() -> None:
    old = recorded(tuned(1.0, 2.0), tuned(2.0, 1.0, key="1, 2, 3, float16"), date="2026-11-21")
    assert chosen(old, recorded(tuned(2.0, 1.0), tuned(2.0, 1.1, suite="Float32Matmul"))) == {KEY: 1}


def test_products_of_other_layouts_are_not_in_the_table() -> None:
    assert chosen(recorded(tuned(1.0, 2.0, suite="Linear"))) == {}
