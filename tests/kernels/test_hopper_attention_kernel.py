"""What can be known of the device code without a GPU: its numbers, emulated, and its barriers, played through."""

# ruff: noqa: FBT003 - the tiles' functions, which take them by place

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flopwatch.kernels.hopper_attention import ROWS
from flopwatch.kernels.hopper_attention_softmax import lazy_growth
from flopwatch.kernels.hopper_attention_tiles import count_blocks, count_turns, find_tile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    #: Yields what it waits for.
    Process = Generator[Callable[[], bool], None, None]


def emulate(
    q: Floats,
    k: Floats,
    v: Floats,
    *,
    block_n: int,
    groups: int,
    stand_in: float,
    rows_of: int = 0,
    maxima: list[tuple[bool, bool]] | None = None,
) -> Floats:
    """Compute causal attention in the order of the kernel, in float32, products with a sum as one FMA.

    With -inf for the masked scores, as the kernel does; with a finite stand-in as its prototype did, which also let
    each warpgroup take all blocks of its tile. Only the rows below `rows_of`, if it is given. With `maxima`, maxima
    count lazily, and weights are float16; it is told of each block whether one was held, and whether one grew.
    """
    length, head_dim = q.shape
    scale = np.float32(math.log2(math.e) / math.sqrt(head_dim))
    guarded = math.isinf(stand_in)
    out = np.full_like(q, np.nan)
    for first in range(0, min(rows_of or length, length), ROWS):
        tile = first // (ROWS * groups) * ROWS * groups
        ends = (first, first + ROWS) if guarded else (tile, tile + ROWS * groups)
        rows = np.arange(first, min(first + ROWS, length))
        row_max = np.full(len(rows), stand_in, dtype=np.float32)
        row_sum = np.zeros(len(rows), dtype=np.float32)
        accumulator = np.zeros((len(rows), head_dim), dtype=np.float32)
        for block in reversed(range(count_blocks.fn(*ends, length, length, True, block_n))):
            keys = np.arange(block * block_n, min((block + 1) * block_n, length))
            scores = np.where(keys <= rows[:, None], q[rows] @ k[keys].T, np.float32(stand_in))
            new_max = np.maximum(row_max, scores.max(axis=1))
            if maxima is not None:
                largest = new_max
                new_max = np.where((largest - row_max) * scale > lazy_growth(), largest, row_max)
                grew = (new_max > row_max) & np.isfinite(row_max)
                maxima.append((bool((largest > new_max).any()), bool(grew.any())))
            held = np.where(np.isinf(new_max), np.float32(0), new_max) if guarded else new_max
            exponents = scores.astype(np.float64) * scale - (held * scale).astype(np.float64)[:, None]
            p = np.exp2(exponents.astype(np.float32))
            rescale = np.exp2((row_max - held) * scale)
            row_sum = row_sum * rescale + p.sum(axis=1)
            if maxima is not None:
                assert p.max() <= 2.0 ** lazy_growth()
                p = p.astype(np.float16).astype(np.float32)
            accumulator = accumulator * rescale[:, None] + p @ v[keys]
            row_max = new_max
        out[rows] = accumulator / row_sum[:, None]
    return out


def operands(length: int, head_dim: int) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng()
    q, k, v = rng.normal(size=(3, length, head_dim)).astype(np.float32)
    return q, k, v


def attention64(q: Floats, k: Floats, v: Floats) -> NDArray[np.float64]:
    scores = q.astype(np.float64) @ k.T.astype(np.float64) / math.sqrt(q.shape[1])
    scores[np.triu_indices(len(q), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True) @ v
    return found


#: head_dim, block_n and warpgroups of what the smoke test of the prototype ran, and how often (2026-11-20).
PROTOTYPES = [
    (32, 128, 2, 4),
    (32, 128, 3, 2),
    (64, 128, 2, 2),
    (64, 128, 3, 4),
    (128, 128, 2, 3),
    (128, 64, 2, 1),
    (256, 64, 2, 2),
]


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
def test_a_finite_stand_in_explains_the_18_cases_that_gave_nan_on_an_h200() -> None:
    wrong = []
    for head_dim, block_n, groups, times in PROTOTYPES:
        for length in (256, 200, 1024):
            found = emulate(*operands(length, head_dim), block_n=block_n, groups=groups, stand_in=-1.0e30, rows_of=192)[
                :192
            ]
            wrong += [(head_dim, groups)] * (times if np.isnan(found).any() else 0)

    assert 18 == len(wrong)
    assert {(64, 3), (256, 2)} == set(wrong)


@pytest.mark.parametrize("length", [1, 63, 200])
@pytest.mark.parametrize(("head_dim", "block_n", "groups"), [(64, 128, 3), (256, 64, 2), (256, 32, 2), (128, 64, 3)])
def test_with_minus_infinity_the_numbers_are_right(head_dim: int, block_n: int, groups: int, length: int) -> None:
    q, k, v = operands(length, head_dim)

    found = emulate(q, k, v, block_n=block_n, groups=groups, stand_in=-math.inf)

    assert found == pytest.approx(attention64(q, k, v), abs=2e-5)


@pytest.mark.filterwarnings("ignore:invalid value")  # -inf less -inf, of rows that have seen no key
@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize(("head_dim", "block_n"), [(128, 128), (128, 64), (256, 64), (256, 32)])
def test_maxima_that_count_lazily_change_no_more_than_float16_weights_do(
    head_dim: int, block_n: int, size: float
) -> None:
    q, k, v = operands(500, head_dim)
    q *= size

    maxima: list[tuple[bool, bool]] = []
    found = emulate(q, k, v, block_n=block_n, groups=2, stand_in=-math.inf, maxima=maxima)

    # A weight is rounded by up to half a unit in float16's last place, 2**-11 of it.
    assert found == pytest.approx(attention64(q, k, v), abs=1.1 * 2.0**-11 * float(abs(v).max()))
    assert any(held for held, _ in maxima)
    assert size == 1 or any(grew for _, grew in maxima)


def test_a_weight_of_float16_has_room_to_grow() -> None:
    assert 8 == lazy_growth()


def test_scores_of_a_thousand_are_weighed_right() -> None:
    q, k, v = operands(200, 64)
    q *= 1000 / abs(q @ k.T).max()
    q *= math.sqrt(64)

    found = emulate(q, k, v, block_n=128, groups=3, stand_in=-math.inf)

    # The scaled maximum is rounded to 2**-14 there, the weight with it.
    assert found == pytest.approx(attention64(q, k, v), abs=2e-3)


class WrongError(Exception):
    """Something is read before it is there, or overwritten while it is read."""


class Mbarrier:
    """Completes a phase with every `count` arrivals; a wait names the parity of the phase that it waits for."""

    def __init__(self, count: int) -> None:
        self._count = self._pending = count
        self._parity = 0

    def arrive(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._pending = self._count
            self._parity ^= 1

    def passed(self, parity: int) -> Callable[[], bool]:
        return lambda: self._parity != parity


class Turn:
    """A named barrier of one group that arrives and one that waits."""

    def __init__(self) -> None:
        self.given = False

    def give(self) -> None:
        if self.given:
            raise WrongError("two arrivals for one turn: the hardware would take the second one for who waits")
        self.given = True

    def take(self) -> Process:
        yield lambda: self.given
        self.given = False


@dataclass
class Buffer:
    """Shared memory that TMA writes and wgmma reads, both behind the program's back."""

    holds: object = None
    readers: int = 0

    def read(self, expected: object) -> None:
        if self.holds != expected:
            raise WrongError(f"{expected} is read where {self.holds} is")
        self.readers += 1


class Ring:
    """Goes around slots, with the phase of their barriers."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._steps = 0

    def __iter__(self) -> Ring:
        return self

    def place(self) -> tuple[int, int]:
        return self._steps % self._stages, self._steps // self._stages % 2

    def __next__(self) -> tuple[int, int]:
        place = self.place()
        self._steps += 1
        return place


@dataclass
class Played:
    """A program whose producer and consumers run in any order."""

    queries: int
    keys: int
    heads: int
    block_n: int
    stages: int
    groups: int
    causal: bool
    ping_pong: bool
    own_out: bool
    program: int
    programs: int
    q_stages: int = 1
    lengths: tuple[int, ...] = ()
    counter: list[int] = field(default_factory=lambda: [0, 0])
    fault: str = ""
    loads: list[Process] = field(default_factory=list)
    stored: list[tuple[int, int]] = field(default_factory=list)
    zeroed: list[tuple[int, int]] = field(default_factory=list)

    @property
    def tiles_of_q(self) -> int:
        return self.q_stages * self.groups

    def __post_init__(self) -> None:
        self.q, self.k, self.v = ([Buffer() for _ in range(n)] for n in (self.tiles_of_q, self.stages, self.stages))
        self.q_full, self.q_empty = ([Mbarrier(1) for _ in range(self.tiles_of_q)] for _ in range(2))
        self.k_full, self.v_full, self.v_raw = ([Mbarrier(1) for _ in range(self.stages)] for _ in range(3))
        self.k_empty, self.v_empty = ([Mbarrier(self.groups) for _ in range(self.stages)] for _ in range(2))
        self.told = Buffer()
        self.told_full, self.told_empty = Mbarrier(1), Mbarrier(1 if self.fault == "impatient" else self.groups)
        self.turns = [Turn() for _ in range(self.groups)]
        self.block_m = ROWS * self.groups

    def tiles(self) -> Iterator[tuple[int, int]]:
        row_tiles = -(-self.queries // self.block_m)
        for turn in range(count_turns.fn(self.program, self.programs, row_tiles * self.heads)):
            row, head = find_tile.fn(turn, self.program, self.programs, row_tiles, self.heads, self.heads, self.causal)
            yield row * self.block_m, head

    def sizes(self, head: int) -> tuple[int, int]:
        return (self.lengths[head], self.lengths[head]) if self.lengths else (self.queries, self.keys)

    def dealt_tiles(self) -> Iterator[tuple[int, int]]:
        """Mirror `write_zeros`."""
        row_tiles = -(-self.queries // self.block_m)
        for number in range(self.program, row_tiles * self.heads, self.programs):
            yield number % row_tiles * self.block_m, number // row_tiles

    def is_void(self, row: int, head: int) -> bool:
        return bool(self.lengths) and row >= self.lengths[head]

    def blocks(self, head: int, first: int, end: int) -> int:
        found: int = count_blocks.fn(first, end, *self.sizes(head), self.causal, self.block_n)
        return found

    def is_cleared(self, head: int, block: int) -> bool:
        """Tell whether values past a length are cleared in that block."""
        return bool(self.lengths) and (block + 1) * self.block_n > self.lengths[head]

    def load(self, buffer: Buffer, what: object, full: Mbarrier) -> None:
        if buffer.readers:
            raise WrongError(f"{what} overwrites {buffer.holds}, which is read")
        buffer.holds = None

        def arrive() -> Process:
            yield lambda: True
            buffer.holds = what
            full.arrive()

        self.loads.append(arrive())

    def hand_out(self, place: tuple[int, int], phase: int) -> Generator[Callable[[], bool], None, int]:
        if self.fault != "hasty":
            yield self.told_empty.passed(phase)
        if self.told.readers:
            raise WrongError(f"{place} is told where {self.told.holds} has not been taken")
        self.told.holds, self.told.readers = place, self.groups
        self.told_full.arrive()
        return phase if self.fault == "unflipped" else phase ^ 1

    def entry(self, number: int, entry: int, first: int) -> tuple[int, int, int]:
        """Mirror `find_entry`: of as many heads as entries, one each."""
        length = self.lengths[entry] if entry < len(self.lengths) else 0
        tiles = -(-length // self.block_m)
        while entry < len(self.lengths) and number >= first + tiles:
            first, entry = first + tiles, entry + 1
            length = self.lengths[min(entry, len(self.lengths) - 1)]
            tiles = -(-length // self.block_m)
        return entry, first, length

    def produce(self) -> Process:
        rings = Ring(self.stages), Ring(self.q_stages)
        if not self.lengths:
            for row, head in self.tiles():
                yield from self.load_tile(row, head, *rings)
            return
        number, told_phase = self.program, 1
        entry, first, length = self.entry(number, 0, 0)
        while entry < len(self.lengths):
            tile, _ = find_tile.fn(0, number - first, self.programs, -(-length // self.block_m), 1, 1, self.causal)
            told_phase = yield from self.hand_out((tile * self.block_m, entry), told_phase)
            yield from self.load_tile(tile * self.block_m, entry, *rings)
            number = self.programs + self.counter[0]
            self.counter[0] += 1
            entry, first, length = self.entry(number, entry, first)
        yield from self.hand_out((-1, 0), told_phase)
        self.counter[1] += 1
        if self.counter[1] == self.programs:
            self.counter[:] = [0, 0]

    def load_tile(self, row: int, head: int, ring: Ring, q_ring: Ring) -> Process:
        q_slot, q_phase = next(q_ring)
        for group in range(self.groups):
            place = q_slot * self.groups + group
            if self.fault != "unasked":
                yield self.q_empty[place].passed(q_phase ^ 1)
            self.load(self.q[place], (head, row + group * ROWS), self.q_full[place])
        for block in reversed(range(self.blocks(head, row, row + self.block_m))):
            slot, phase = next(ring)
            yield self.k_empty[slot].passed(phase ^ 1)
            self.load(self.k[slot], (head, row, block), self.k_full[slot])
            yield self.v_empty[slot].passed(phase ^ 1)
            full = self.v_raw if self.is_cleared(head, block) else self.v_full
            self.load(self.v[slot], (head, row, block), full[slot])

    def take(self, group: int) -> Process:
        if self.ping_pong:
            yield from self.turns[group].take()

    def give(self, group: int) -> None:
        if self.ping_pong:
            self.turns[group % self.groups].give()

    def clear(self, ring: Ring, block: tuple[int, int, int], cleared: int) -> Generator[Callable[[], bool], None, int]:
        slot, _ = ring.place()
        if self.fault != "uncleared":
            yield self.v_raw[slot].passed((cleared >> slot) & 1 if self.fault != "phaseless" else 0)
        if self.v[slot].holds != block or self.v[slot].readers:
            raise WrongError(f"{block} is cleared where {self.v[slot].holds} is")
        self.v[slot].holds = ("cleared", *block)
        self.v_full[slot].arrive()
        return cleared ^ 1 << slot

    def values(self, head: int, row: int, block: int) -> tuple[object, ...]:
        return ("cleared", head, row, block) if self.is_cleared(head, block) else (head, row, block)

    def take_tile(self, phases: Ring) -> Generator[Callable[[], bool], None, tuple[int, int]]:
        _, phase = next(phases)
        yield self.told_full.passed(phase)
        place = self.told.holds
        assert isinstance(place, tuple)
        self.told.readers -= 1
        self.told_empty.arrive()
        return place

    def consume(self, group: int) -> Process:
        rings, cleared = (Ring(self.stages), Ring(self.q_stages)), 0
        if group == self.groups - 1:
            self.give(0)
        if not self.lengths:
            for row, head in self.tiles():
                yield from self.attend_tile(group, row, head, *rings)
        else:
            self.zeroed += [(head, row + group * ROWS) for row, head in self.dealt_tiles() if self.is_void(row, head)]
            tellings = Ring(1)
            row, head = yield from self.take_tile(tellings)
            while row >= 0:
                loaded = self.blocks(head, row, row + self.block_m)
                if group == self.groups - 1 and self.is_cleared(head, loaded - 1):
                    cleared = yield from self.clear(rings[0], (head, row, loaded - 1), cleared)
                row, head = yield from self.attend_tile(group, row, head, *rings, tellings)
        if group == 0:
            yield from self.take(0)

    def attend_tile(  # noqa: PLR0917 - by place
        self, group: int, row: int, head: int, ring: Ring, q_ring: Ring, tellings: Ring | None = None
    ) -> Generator[Callable[[], bool], None, tuple[int, int]]:
        q_slot, q_phase = next(q_ring)
        place = q_slot * self.groups + group
        first = row + group * ROWS
        loaded, blocks = self.blocks(head, row, row + self.block_m), self.blocks(head, first, first + ROWS)
        for _ in range(loaded - blocks):
            slot, phase = next(ring)
            if self.fault != "turnless":
                yield from self.take(group)
                self.give(group + 1)
            if self.fault != "early":
                yield self.k_full[slot].passed(phase)
            self.k_empty[slot].arrive()
            if self.fault != "early":
                yield self.v_full[slot].passed(phase)
            self.v_empty[slot].arrive()
        yield self.q_full[place].passed(q_phase)
        slot, phase = next(ring)
        yield self.k_full[slot].passed(phase)
        yield from self.take(group)
        self.q[place].read((head, first))
        self.k[slot].read((head, row, blocks - 1))
        self.give(group + 1)
        yield lambda: True
        self.done(self.q[place], self.k[slot], self.k_empty[slot])
        for block in reversed(range(blocks - 1)):
            v_slot, v_phase = slot, phase
            slot, phase = next(ring)
            yield self.k_full[slot].passed(phase)
            yield from self.take(group)
            self.q[place].read((head, first))
            self.k[slot].read((head, row, block))
            yield self.v_full[v_slot].passed(v_phase)
            self.v[v_slot].read(self.values(head, row, block + 1))
            self.give(group + 1)
            yield lambda: True
            self.done(self.q[place], self.k[slot], self.k_empty[slot])
            yield lambda: True
            self.done(self.v[v_slot], None, self.v_empty[v_slot])
        if self.own_out:
            self.q_empty[place].arrive()
        yield self.v_full[slot].passed(phase)
        self.v[slot].read(self.values(head, row, 0))
        following = (yield from self.take_tile(tellings)) if tellings is not None else (-1, 0)
        yield lambda: True
        self.done(self.v[slot], None, self.v_empty[slot])
        if not self.own_out:
            self.q[place].read((head, first))
            self.q[place].holds = "the output"
            yield lambda: True
            self.done(self.q[place], None, self.q_empty[place])
        self.stored.append((head, first))
        return following

    @staticmethod
    def done(buffer: Buffer, other: Buffer | None, empty: Mbarrier) -> None:
        buffer.readers -= 1
        if other is not None:
            other.readers -= 1
        empty.arrive()

    def play(self, rng: random.Random) -> None:
        """Run until all have ended; raise if nobody can go on."""
        play_together([self], rng)


def play_together(played: Sequence[Played], rng: random.Random) -> None:
    """Run programs that share a counter, as `Played.play` does."""
    waits: dict[Process, Callable[[], bool]] = {}
    for one in played:
        one.loads += [one.produce(), *map(one.consume, range(one.groups))]
    while waits or any(one.loads for one in played):
        for one in played:
            waits |= {process: next(process) for process in one.loads[:]}
            one.loads.clear()
        able = [process for process, may_go in waits.items() if may_go()]
        if not able:
            raise WrongError("everyone waits")
        process = rng.choice(able)
        try:
            waits[process] = next(process)
        except StopIteration:
            del waits[process]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ping_pong", [False, True])
@pytest.mark.parametrize(
    ("groups", "block_n", "stages", "own_out", "q_stages"),
    [
        (2, 128, 2, True, 1),
        (3, 128, 2, True, 1),
        (3, 64, 4, True, 1),
        (2, 64, 2, False, 1),
        (2, 32, 3, False, 1),
        (2, 128, 3, True, 2),
        (3, 128, 2, True, 2),
    ],
)
def test_barriers_let_everyone_go_on_and_nobody_read_what_is_not_there(  # noqa: PLR0917 - by name
    groups: int, block_n: int, stages: int, own_out: bool, q_stages: int, ping_pong: bool, causal: bool
) -> None:
    rng = random.Random(f"{groups} {block_n} {stages} {ping_pong} {causal}")
    for queries, keys in [(500, 500), (1, 300), (400, 130), (130, 400)]:
        played = [
            Played(queries, keys, 4, block_n, stages, groups, causal, ping_pong, own_out, program, 3, q_stages)
            for program in range(3)
        ]
        for one in played:
            one.play(rng)
        rows = range(0, -(-queries // (ROWS * groups)) * ROWS * groups, ROWS)
        assert sorted(itertools.product(range(4), rows)) == sorted(itertools.chain(*(one.stored for one in played)))


#: Of four heads: nothing, less than a block, whole blocks, and all of 500 positions.
LENGTHS = [(0, 1, 256, 500), (500, 129, 64, 0), (300, 300, 70, 70), (0, 0, 0, 0), (0, 0, 0, 3)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ping_pong", [False, True])
@pytest.mark.parametrize(
    ("groups", "block_n", "stages", "q_stages"),
    [(2, 128, 2, 1), (3, 128, 2, 2), (3, 64, 4, 1), (2, 64, 2, 1), (2, 128, 3, 2)],
)
def test_values_past_a_length_are_cleared_before_anyone_reads_them(  # noqa: PLR0917 - by name
    groups: int, block_n: int, stages: int, q_stages: int, ping_pong: bool, causal: bool
) -> None:
    rng = random.Random(f"{groups} {block_n} {stages} {ping_pong} {causal}")
    for lengths in LENGTHS:
        counter = [0, 0]
        played = [
            Played(
                500, 500, 4, block_n, stages, groups, causal, ping_pong, True, program, 3, q_stages, lengths, counter
            )
            for program in range(3)
        ]
        play_together(played, rng)
        rows = range(0, -(-500 // (ROWS * groups)) * ROWS * groups, ROWS)
        written = itertools.chain(*(one.stored + one.zeroed for one in played))
        assert sorted(itertools.product(range(4), rows)) == sorted(written)
        assert counter == [0, 0]


def test_counters_are_reset_though_lengths_are_written_meanwhile() -> None:
    """By another stream: how many tiles there are then no program can tell, and each has its own count of them."""
    counter = [0, 0]
    played = [
        Played(500, 500, 4, 128, 2, 2, False, False, True, program, 3, 1, lengths, counter)
        for program, lengths in enumerate(LENGTHS[:3])
    ]

    play_together(played, random.Random(7))

    assert counter == [0, 0]


@pytest.mark.parametrize("fault", ["uncleared", "phaseless", "hasty", "impatient", "unflipped"])
def test_values_cleared_too_early_or_without_a_phase_and_tiles_told_too_early_are_noticed(fault: str) -> None:
    with pytest.raises(WrongError):  # noqa: PT012 - in any order of events
        for seed in range(20):
            one = Played(500, 500, 4, 128, 2, 2, False, False, True, 0, 1, 1, LENGTHS[2], fault=fault)
            one.play(random.Random(seed))


@pytest.mark.parametrize(("fault", "ping_pong"), [("early", False), ("turnless", True)])
def test_a_skipped_block_that_is_given_back_too_early_or_without_its_turns_is_noticed(
    fault: str, ping_pong: bool
) -> None:
    with pytest.raises(WrongError):  # noqa: PT012 - in any order of events
        for seed in range(20):
            Played(500, 500, 4, 64, 2, 2, True, ping_pong, True, 0, 1, fault=fault).play(random.Random(seed))


@pytest.mark.parametrize("q_stages", [1, 2])
def test_a_q_that_is_loaded_before_its_room_is_given_back_is_noticed(q_stages: int) -> None:
    with pytest.raises(WrongError):  # noqa: PT012 - in any order of events
        for seed in range(20):
            one = Played(500, 500, 4, 64, 2, 2, True, False, True, 0, 1, q_stages, fault="unasked")
            one.play(random.Random(seed))
