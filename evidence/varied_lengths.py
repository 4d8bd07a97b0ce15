"""Race attention of sequences whose lengths differ: ``python -m evidence.varied_lengths OUT.json``, on a Hopper GPU.

Points: head_dim 64, 128, 32 and 256, causal and full, sequences of up to 512, 1024, 2048 and 8192 positions, 32768 in
all and 8192 or less, with heads x head_dim = 2048, float16; lengths are drawn evenly from 1 to the longest, or to a
quarter of it. What lies past them is NaN. Candidates: what those of `HOPPER_ATTENTION` come to with lengths. Peers: the
plain kernel, FlashAttention-2 as torch has it of packed sequences, and "whole", the kernel of calls without lengths on
all positions, which computes something else. What calls take runs in turns with them. What is written can be continued;
see `evidence.candidates`.

``python -m evidence.peers docs`` writes the table of docs/performance.md.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from evidence.attention_candidates import GPU, HIDDEN, PROCESSORS, AttentionExperiment, Compilation
from evidence.candidates import TAKEN, Findings, main
from evidence.page import table
from evidence.race import Contest, Point
from evidence.routes import take_plain_kernels
from flopwatch.kernels import flash_attention
from flopwatch.kernels.hopper_attention import (
    HOPPER_ATTENTION,
    HopperAttentionConfig,
    hopper_attention,
    with_lengths,
)
from flopwatch.kernels.hopper_choice import attention_config, lengths_config
from flopwatch.kernels.known import PLAIN, TABLES
from flopwatch.kernels.reference import attention_reference
from flopwatch.kernels.routes import attention_key
from flopwatch.measure.inputs import input_bytes
from flopwatch.measure.timer import COLD_L2_FACTOR
from flopwatch.model import from_json
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from evidence.race import Call, Maker, Outcome

_PROGRAM = "python -m evidence.varied_lengths"
HEAD_DIMS = (64, 128, 32, 256)
#: Positions, the longest length that is drawn, and how many.
SHAPES = (
    *((512, 512, 64), (2048, 2048, 16), (8192, 8192, 4), (2048, 512, 16)),
    *((512, 512, 16), (512, 512, 4), (1024, 1024, 2), (2048, 2048, 2), (2048, 2048, 1)),
)
PACKED, WHOLE = "fa2", "whole"
#: Of the largest element, in epsilons of float16: half of one for rounding the result, and as much for the weights.
CEILING_EPS = 2.0
CHECKED_HEADS = 4
#: What the table calls peers.
_NAMES = {PLAIN: "the plain kernel", PACKED: "FlashAttention-2"}
_SEED = 20261125


@dataclass(frozen=True, slots=True)
class Batch:
    """Of a call: head_dim D, whether it is causal, positions S, and the length of each batch entry."""

    head_dim: int
    causal: bool
    positions: int
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, head_dim: int, causal: int, positions: int, longest: int, entries: int) -> Batch:
        """Draw the lengths, the same in each run.

        >>> Batch.of(64, 1, 8192, 8192, 4).lengths
        (5597, 4989, 6128, 6147)
        """
        drawn = random.Random(f"{_SEED} {positions} {longest}")  # noqa: S311 - lengths, not a secret
        lengths = tuple(drawn.randint(1, longest) for _ in range(entries))
        return cls(head_dim, bool(causal), positions, lengths)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of each of Q, K and V."""
        return len(self.lengths), HIDDEN // self.head_dim, self.positions, self.head_dim

    @property
    def flops(self) -> float:
        """Of both products, of the positions that count."""
        squares = sum(length**2 for length in self.lengths)
        return 4.0 * HIDDEN * squares * (0.5 if self.causal else 1.0)

    def without_lengths(self) -> str:
        """Return the configuration that calls without lengths take; "" where it is the plain kernel's."""
        q = torch.empty(self.shape, device="meta", dtype=torch.float16)
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else GPU
        return attention_config(attention_key(q, q, q, causal=self.causal), TABLES, gpu=gpu, processors=PROCESSORS)

    def taken(self) -> str:
        """Return the configuration that calls take; "" where it is the plain kernel's."""
        return lengths_config(self.shape, causal=self.causal)


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthsExperiment(AttentionExperiment):
    """All points, with all configurations."""

    def points(self) -> Sequence[Point]:
        """Return all points, by head_dim."""
        return [
            Point(
                name=f"{head_dim} {'causal' if causal else 'full'} {entries}x{positions}, to {longest}",
                group=f"{head_dim} {'causal' if causal else 'full'}",
                flops=Batch.of(head_dim, causal, positions, longest, entries).flops,
                values=(head_dim, causal, positions, longest, entries),
            )
            for head_dim, causal, (positions, longest, entries) in itertools.product(HEAD_DIMS, (1, 0), SHAPES)
        ]

    def compilations(self, point: Point) -> Sequence[Callable[[], object]]:
        """Return what compiles the configurations of a head_dim."""
        batch = batch_of(point)
        return [Compilation(batch.head_dim, batch.causal, config, lengths=True) for config in configs(batch.head_dim)]

    def contest(self, point: Point) -> Contest:
        """Draw the inputs, and compute some heads of the result in float64."""
        batch = batch_of(point)
        generator = torch.Generator(device="cuda").manual_seed(_SEED)
        seq_lens = torch.tensor(batch.lengths, dtype=torch.int32, device="cuda")
        past = torch.arange(batch.positions, device="cuda") >= seq_lens[:, None]

        def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            every = torch.randn(3, *batch.shape, device="cuda", generator=generator).half()
            q, k, v = every.masked_fill_(past[None, :, None, :, None], math.nan)
            return q, k, v

        sets = [drawn(), drawn()]
        cold_bytes = COLD_L2_FACTOR * torch.cuda.get_device_properties().L2_cache_size
        while sum(map(input_bytes, sets)) < cold_bytes:
            sets.append(drawn())
        heads = batch.shape[1]
        checked = sorted({0, heads - 1, *random.Random(_SEED).sample(range(heads), min(heads, CHECKED_HEADS))})  # noqa: S311 - as above
        q, k, v = (tensor[:, checked] for tensor in sets[0])
        expected = attention_reference(q, k, v, causal=batch.causal, seq_lens=seq_lens)
        out = torch.empty(batch.shape, device="cuda", dtype=torch.float16)

        def launched(config: HopperAttentionConfig, index: int) -> torch.Tensor:
            q, k, v = sets[index]
            return hopper_attention(q, k, v, config, causal=batch.causal, seq_lens=seq_lens, out=out)

        def plain(index: int) -> torch.Tensor:
            q, k, v = sets[index]
            return flash_attention(q, k, v, causal=batch.causal, seq_lens=seq_lens)

        take_plain_kernels()
        peers: dict[str, Maker] = {
            PLAIN: partial(partial, plain),
            PACKED: partial(_packed, sets, ~past, batch),
        }
        named = {config.name: config for config in HOPPER_ATTENTION[batch.head_dim]}
        if batch.without_lengths() in named:
            peers[WHOLE] = partial(_whole, batch, sets, named[batch.without_lengths()])
        raced = {config.name: config for config in configs(batch.head_dim)}
        if batch.taken():
            peers[f"{TAKEN}{batch.taken()}"] = partial(partial, launched, raced[batch.taken()])
        candidates: dict[str, Maker] = {
            f"{batch.head_dim}: {name}": partial(partial, launched, config) for name, config in raced.items()
        }
        wrong = partial(_wrong, out, past, checked, expected)
        return Contest(peers=peers, candidates=candidates, wrong=wrong, sets=len(sets))


def configs(head_dim: int) -> list[HopperAttentionConfig]:
    """Return what the configurations come to where there are lengths, each once.

    >>> [config.name for config in configs(256)]
    ['128x64 s2 o2 pp', '128x64 s2 o2', '128x32 s4 o2 pp']
    """
    return list(dict.fromkeys(map(with_lengths, HOPPER_ATTENTION[head_dim])))


def batch_of(point: Point) -> Batch:
    """Return the batch of a point."""
    return Batch.of(*map(int, point.values))


def _wrong(out: torch.Tensor, past: torch.Tensor, checked: list[int], expected: torch.Tensor, call: Call) -> str:
    """Return what is wrong with what a call makes of the first inputs: past a length, and in the heads checked."""
    out.fill_(math.nan)
    found = call(0)
    if isinstance(found, tuple):  # of all positions, which is another function
        return ""
    assert isinstance(found, torch.Tensor)  # noqa: S101 - all others return tensors
    if found.ndim == 3:  # noqa: PLR2004 - packed: (all that count, heads, D)
        padded = torch.zeros_like(out).transpose(1, 2)
        padded[~past] = found
        found = padded.transpose(1, 2)
    if found.masked_fill(~past[:, None, :, None], 0).any():
        return "is wrong: past a length it is not 0"
    error = float((found[:, checked] - expected).abs().max() / expected.abs().max())
    return "" if error <= CEILING_EPS * torch.finfo(torch.float16).eps else f"is wrong: error {error:.1e}"


def _whole(batch: Batch, sets: Sequence[tuple[torch.Tensor, ...]], config: HopperAttentionConfig) -> Call:
    finite = [tuple(tensor.nan_to_num() for tensor in each) for each in sets]
    out = torch.empty(batch.shape, device="cuda", dtype=torch.float16)

    def call(index: int) -> object:
        q, k, v = finite[index]
        return (hopper_attention(q, k, v, config, causal=batch.causal, out=out),)

    return call


def _packed(sets: Sequence[tuple[torch.Tensor, ...]], counted: torch.Tensor, batch: Batch) -> Call:
    """Return FlashAttention-2 of what counts, the sequences one after the other: (all of it, heads, D)."""
    packed = [[tensor.transpose(1, 2)[counted].contiguous() for tensor in each] for each in sets]
    ends = torch.tensor([0, *itertools.accumulate(batch.lengths)], dtype=torch.int32, device="cuda")
    longest = max(batch.lengths)

    def call(index: int) -> object:
        q, k, v = packed[index]
        found = torch.ops.aten._flash_attention_forward(  # noqa: SLF001 - torch has no public function of packed tensors
            q,
            k,
            v,
            ends,
            ends,
            longest,
            longest,
            0.0,
            batch.causal,
            False,  # noqa: FBT003 - by place
        )
        return found[0]

    return call


def kept(folder: Path) -> Findings | None:
    """Read the newest race that a folder has, if it has one."""
    found = [from_json(path.read_bytes(), Findings) for path in sorted(folder.glob("varied-lengths-*.json"))]
    return max(found, key=lambda each: each.date, default=None)


def told(races: Iterable[Findings | None]) -> str:
    """Tell of each race, where there is one, how fast the winners are, and by which part lengths shorten a call."""
    beside = (f"of {name}" for name in _NAMES.values())
    taken = ("taken", f"of {_NAMES[PLAIN]}")
    heads = ("attention", "mean length", "fastest", "a call", *beside, "of all positions' time", *taken)
    parts = [
        (f"{_origin(race)}:", table(heads, [_row(each) for each in race.outcomes if each.ratios], left=1), _means(race))
        for race in races
        if race is not None
    ]
    return "\n\n".join(itertools.chain(*parts)) or f"Not measured yet: `{_PROGRAM} OUT.json`."


def _origin(race: Findings) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in race.about.items() if name != "gpu")
    return f"{race.about.get('gpu', 'no GPU')}; {versions}; {race.date}"


def _row(outcome: Outcome) -> tuple[str, ...]:
    batch = batch_of(outcome.point)
    seconds = next(entry.seconds for entry in outcome.entries if entry.name == outcome.winner)
    speeds = {each.peer: each.speed for each in outcome.ratios}
    taken, of_plain = _taken(outcome)
    return (
        f"{'x'.join(map(str, batch.shape))} {'causal' if batch.causal else 'full'}",
        f"{statistics.fmean(batch.lengths) / batch.positions:.2f}",
        outcome.winner.partition(": ")[2],
        "" if seconds is None else format_seconds(seconds),
        *(f"{speeds[name]:.2f}" if name in speeds else "" for name in _NAMES),
        f"{1 / speeds[WHOLE]:.2f}" if WHOLE in speeds else "",
        taken,
        f"{of_plain:.2f}",
    )


def _taken(outcome: Outcome) -> tuple[str, float]:
    """Return what calls took, and how fast it was in units of the plain kernel."""
    speeds = {each.peer: each.speed for each in outcome.ratios}
    for peer, speed in speeds.items():
        if peer.startswith(TAKEN) and PLAIN in speeds:
            return peer.removeprefix(TAKEN), speeds[PLAIN] / speed
    return PLAIN, 1.0


def _means(race: Findings) -> str:
    """Tell of each peer in which all of a race's speeds have their geometric mean, and of what calls take likewise."""
    raced = [each for each in race.outcomes if each.ratios]
    if not raced:
        return "Nothing was timed."
    speeds = {name: [found.speed for each in raced for found in each.ratios if found.peer == name] for name in _NAMES}
    means = " and ".join(
        f"{statistics.geometric_mean(found):.3f} of {_NAMES[name]}" for name, found in speeds.items() if found
    )
    taken: dict[str, list[float]] = {}
    for each in raced:
        taken.setdefault(each.point.group, []).append(_taken(each)[1])
    every = statistics.geometric_mean(itertools.chain(*taken.values()))
    groups = ", ".join(f"{group} {statistics.geometric_mean(found):.2f}" for group, found in taken.items())
    return (
        f"The geometric mean of the fastest is {means}, and that of what calls take {every:.3f} of {_NAMES[PLAIN]}: "
        f"{groups}."
    )


if __name__ == "__main__":
    if "choose" in sys.argv:
        sys.exit("the table is chosen from the races of evidence.attention_candidates: lengths are no part of its keys")
    if "--table" not in sys.argv and not torch.cuda.is_available():
        sys.exit("there is no GPU here: candidates are raced on one of the capability 9.0")
    main(LengthsExperiment(), sys.argv[1:], _PROGRAM, str(__doc__))
