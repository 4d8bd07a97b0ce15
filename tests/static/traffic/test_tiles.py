from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flopwatch.static.traffic import tiles
from flopwatch.static.traffic.accesses import Access, Layout
from flopwatch.static.traffic.spans import Spans
from flopwatch.static.traffic.tiles import Array, Tile, TooManyElementsError

PROGRAMS, ROWS, COLUMNS = 3, 4, 5
#: Along which of programs, rows and columns a part of a tile varies.
SHAPES = st.tuples(st.sampled_from((1, PROGRAMS)), st.sampled_from((1, ROWS)), st.sampled_from((1, COLUMNS)))
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def integers(draw: st.DrawFn) -> Tile:
    random = np.random.default_rng(draw(SEEDS))
    parts = [tiles.tile(random.integers(-40, 40, draw(SHAPES))) for _ in range(draw(st.integers(1, 3)))]
    total = parts[0]
    for part in parts[1:]:
        total = tiles.plus(total, part)
    return total


@st.composite
def truths(draw: st.DrawFn) -> Tile:
    random = np.random.default_rng(draw(SEEDS))
    total = Tile({}, 2, truth=True)
    for _ in range(draw(st.integers(1, 3))):
        total = tiles.both(total, tiles.tile(random.random(draw(SHAPES)) < 0.7))
    return total


def dense(tile: Tile, shape: tuple[int, ...] = (ROWS, COLUMNS)) -> Array:
    return np.broadcast_to(tile.whole(), (PROGRAMS, *shape))


@settings(max_examples=60, deadline=None)
@given(integers(), integers())
def test_sums_and_products_are_those_of_the_elements(one: Tile, other: Tile) -> None:
    np.testing.assert_array_equal(dense(one) + dense(other), dense(tiles.plus(one, other)))
    np.testing.assert_array_equal(dense(one) - dense(other), dense(tiles.plus(one, other, -1)))
    np.testing.assert_array_equal(dense(one) * dense(other), dense(tiles.times(one, other)))


@settings(max_examples=60, deadline=None)
@given(integers(), integers())
def test_bounds_hold_for_every_element(one: Tile, other: Tile) -> None:
    for value in (tiles.plus(one, other, -1), tiles.times(one, other), tiles.chosen(np.arange(3) > 1, one, other)):
        assert value.low <= dense(value).min()
        assert value.high >= dense(value).max()


@settings(max_examples=60, deadline=None)
@given(integers(), integers(), SEEDS)
def test_a_choice_is_made_for_each_program(one: Tile, other: Tile, seed: int) -> None:
    condition = np.random.default_rng(seed).random(PROGRAMS) < 0.5
    expected = np.where(condition[:, None, None], dense(one), dense(other))
    np.testing.assert_array_equal(expected, dense(tiles.chosen(condition, one, other)))


@settings(max_examples=60, deadline=None)
@given(integers())
def test_layouts_are_those_of_numpy(value: Tile) -> None:
    whole = dense(value)
    np.testing.assert_array_equal(whole.transpose(0, 2, 1), dense(tiles.transposed(value, (1, 0)), (COLUMNS, ROWS)))
    for shape in ((ROWS * COLUMNS,), (2, 2, COLUMNS), (2, 10), (1, ROWS, 1, COLUMNS)):
        expected = whole.reshape(PROGRAMS, *shape)
        np.testing.assert_array_equal(expected, dense(tiles.reshaped(value, (ROWS, COLUMNS), shape), shape))
    np.testing.assert_array_equal(whole[:, :, 3], dense(tiles.taken(value, 3), (ROWS,)))


@settings(max_examples=60, deadline=None)
@given(integers())
def test_integers_wrap_as_eight_bits_do(value: Tile) -> None:
    shifted = tiles.plus(value, tiles.constant(100, 2))
    np.testing.assert_array_equal(dense(shifted).astype(np.int8), dense(tiles.wrapped(shifted, 8)))


@settings(max_examples=150, deadline=None)
@given(integers(), truths(), st.sampled_from((1, 2, 4)), st.sets(st.integers(0, PROGRAMS - 1), min_size=1))
def test_an_access_touches_the_bytes_of_its_lanes(address: Tile, mask: Tile, size: int, programs: set[int]) -> None:
    access = Access(address, mask, Layout((ROWS, COLUMNS), size))
    chosen = np.array(sorted(programs))
    addresses, lanes = dense(address)[chosen], dense(mask)[chosen].astype(bool)
    np.testing.assert_array_equal(lanes.sum(axis=(1, 2)), np.broadcast_to(access.lanes, PROGRAMS)[chosen])
    spans = Spans()
    spans.add(*access.spans(chosen))
    expected = {byte for first in addresses[lanes].tolist() for byte in range(first, first + size)}
    starts, ends = spans.merged()
    assert expected == {byte for start, end in zip(starts, ends, strict=True) for byte in range(start, end)}
    assert len(expected) == spans.bytes()
    assert len({byte // 32 for byte in expected}) == spans.sectors()
    least, past = (np.broadcast_to(side, PROGRAMS)[chosen] for side in access.reaches())
    for place in range(len(chosen)):
        if lanes[place].any():
            own = addresses[place][lanes[place]]
            assert (own.min(), own.max() + size) == (least[place], past[place])


def test_spans_stay_few_while_many_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.static.traffic.spans._MOST_PENDING", 100)
    spans = Spans()
    for first in range(0, 10_000, 10):
        starts = np.arange(first, first + 10)
        spans.add(starts, starts + 1)
        assert sum(map(len, spans._starts)) <= 111
    assert 10_000 == spans.bytes()


def test_what_would_take_too_much_memory_is_refused() -> None:
    wide = tiles.plus(tiles.tile(np.zeros((1, 1 << 13, 1), np.int64)), tiles.tile(np.arange(1 << 13)[None, None, :]))
    tall = tiles.tile(np.arange(1 << 13)[None, :, None])
    with pytest.raises(TooManyElementsError):
        tiles.plus(wide, tall).whole()
    with pytest.raises(TooManyElementsError):
        tiles.times(wide, tall)
