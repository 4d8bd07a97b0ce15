"""Record pairs whose head is slowed on the GPU: ``python -m evidence.record_power OUT.npz --cases 12 --seconds 500``.

Both sides run the suites of evidence/slowed, which append a spin to every call: of no turns on base, on head of as many
as add the slowdown asked for. What a turn takes is calibrated by pairs, behind each case's own kernel and at the clocks
that it runs at, with turns that add about a fifth; half as many must add half as much. A coin says which slot is head;
the file has base as slot 0 and head as slot 1.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import math
import os
import secrets
import shlex
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evidence.record import say
from evidence.samples import Samples
from evidence.slowed import TURNS_VARIABLE
from flopwatch import git
from flopwatch.config import load_config
from flopwatch.measure.client import CaseFailed, Code, Mode, Nursery, Worker
from flopwatch.measure.machine import read_machine
from flopwatch.measure.nvml import Watch
from flopwatch.measure.pair import PairSample, sample_pair
from flopwatch.measure.protocol import Plan
from flopwatch.model import Case, Choice, to_json
from flopwatch.selection import is_selected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLOWDOWNS_PERCENT = (0.25, 0.5, 1.0, 2.0, 5.0)
#: A turn is taken to last so long, as it did on an H200 (2026-11-21), until it is calibrated by a spin that adds this
#: share of the case's time.
GUESSED_TURN_SECONDS = 12e-9
CALIBRATED_SHARE = 0.2
#: For what a case only about takes.
FEW_SAMPLES = 12
#: Half the turns must add half the time to within this share.
LINEAR_WITHIN = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """What a case takes, and what a turn of its spin adds, in seconds; `linear` is 1 if half the turns add half."""

    pins: tuple[Choice, ...]
    plan: Plan
    base_seconds: float
    turn_seconds: float
    linear: float

    def turns(self, slowdown: float) -> int:
        """Return the turns that come nearest to a slowdown."""
        return round(slowdown * self.base_seconds / self.turn_seconds)

    def says(self, slowdown: float) -> dict[str, float]:
        """Describe the spin that comes nearest to a slowdown."""
        turns = self.turns(slowdown)
        return {
            "asked": slowdown,
            "calibrated": turns * self.turn_seconds / self.base_seconds,
            "turns": turns,
            "turn_ns": 1e9 * self.turn_seconds,
            "base_us": 1e6 * self.base_seconds,
            "linear": self.linear,
        }


class Turns:
    """The file that tells one side's processes how long each case spins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set({})

    def set(self, turns: dict[str, int]) -> None:
        """Spin so many turns behind these cases from their next preparation on, and none behind others."""
        self.path.write_text(json.dumps(turns), encoding="utf-8")

    @contextlib.contextmanager
    def nursery(self, code: Code) -> Iterator[Nursery]:
        """Start a nursery whose workers read this file."""
        os.environ[TURNS_VARIABLE] = str(self.path)
        with Nursery(code) as nursery:
            yield nursery


def main() -> None:
    """Calibrate, then record until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", type=int, default=12, help="as many, from the shortest to the longest (12)")
    parser.add_argument("-k", dest="select", default="", help="of those whose name has this in it; 'A or B'")
    parser.add_argument("--slowdowns", default=",".join(f"{percent:g}" for percent in SLOWDOWNS_PERCENT), help="in %%")
    parser.add_argument("--seconds", type=float, default=500.0, help="start no pair after this (500)")
    parser.add_argument("--pairs", type=int, default=1000, help="at most so many")
    options = parser.parse_args()
    start = time.monotonic()
    slowdowns = [float(percent) / 100 for percent in options.slowdowns.split(",")]
    root = git.repository_root(Path())
    config = load_config(root)
    code = Code(
        benchmarks=root / "evidence" / "slowed",
        tree=root,
        source=config.source,
        packages=config.packages,
        device=config.device,
        keep_choices=True,
    )
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        files = (Turns(folder / "0.json"), Turns(folder / "1.json"))
        zero, one = (stack.enter_context(file.nursery(code)) for file in files)
        with Worker(Mode.GPU, code, nursery=zero) as first, Worker(Mode.GPU, code, nursery=one) as second:
            hello = first.hello
            if hello.gpu_uuid is None:
                sys.exit("a recording needs a GPU")
            own = [entry.case for entry in hello.declared if entry.own and is_selected(options.select, entry.case.id)]
            if not own:
                sys.exit(f"no case has {options.select!r} in its name")
            pins = {case: first.tune(case) for case in own}
            cases = spread({case: seconds_of(first, case, pins[case]) for case in own}, options.cases)
            found = {case: calibrate((first, second), case, pins[case], files) for case in cases}
        for case, calibration in found.items():
            say(
                f"{case.id}: {1e6 * calibration.base_seconds:.2f} us, a turn {1e9 * calibration.turn_seconds:.2f} ns,"
                f" half the turns {calibration.linear:.3f} of half the time"
            )
        uncalibrated = [case for case in cases if abs(found[case].linear - 1) > LINEAR_WITHIN]
        if uncalibrated:
            names = ", ".join(case.id for case in uncalibrated)
            say(f"left out, because half the turns do not add half the time: {names}")
        planted = [(case, slowdown) for case in cases if case not in uncalibrated for slowdown in slowdowns]
        pairs: list[dict[str, PairSample]] = []
        watch = stack.enter_context(Watch(hello.gpu_uuid))
        machine = read_machine(watch.gpu(), hello.versions)
        while len(pairs) < options.pairs and time.monotonic() - start < options.seconds:
            begun = time.monotonic()
            with Worker(Mode.GPU, code, nursery=zero) as first, Worker(Mode.GPU, code, nursery=one) as second:
                pairs.append(record_pair((first, second), files, planted, found, watch))
            say(f"pair {len(pairs)}: {time.monotonic() - begun:.1f} s; {watch.snapshot()}")
    about = {
        "machine": to_json(machine).decode(),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "commit": git.resolve("HEAD", cwd=root),
        "command": f"python -m evidence.record_power {shlex.join(sys.argv[1:])}",
        "planted": [{"case": case.id, **found[case].says(slowdown)} for case, slowdown in planted],
    }
    Samples.collect(pairs, [label(*each) for each in planted], about).save(options.out)


def record_pair(
    slots: tuple[Worker, Worker],
    files: tuple[Turns, Turns],
    planted: list[tuple[Case, float]],
    found: dict[Case, Calibration],
    watch: Watch,
) -> dict[str, PairSample]:
    """Let one pair of processes run every case with every slowdown; a coin says which slot spins."""
    head = secrets.randbits(1)
    taken: dict[str, PairSample] = {}
    for case, slowdown in secrets.SystemRandom().sample(planted, len(planted)):
        files[head].set({case.id: found[case].turns(slowdown)})
        files[1 - head].set({})
        try:
            sample = sample_pair(slots, case, plan=found[case].plan, pins=(found[case].pins,) * 2, meter=watch)
        except CaseFailed as error:
            say(f"{case.id}: {error}")
            continue
        if sample.fault:
            say(f"{case.id}: {sample.fault}")
        taken[label(case, slowdown)] = sample if head else turned(sample)
    return taken


def label(case: Case, slowdown: float) -> str:
    """Name a case with its slowdown.

    >>> label(Case(suite="Add", values=("16",)), 0.0025)
    'Add[16] +0.25 %'
    """
    return f"{case.id} +{100 * slowdown:g} %"


def spread(seconds: dict[Case, float], count: int) -> list[Case]:
    """Choose so many cases, from the shortest to the longest, evenly by rank.

    >>> [case.suite for case in spread({Case(suite=name, values=()): len(name) for name in ("aaa", "a", "aa")}, 2)]
    ['a', 'aaa']
    """
    ranked = sorted(seconds, key=lambda case: seconds[case])
    ranks = np.linspace(0, len(ranked) - 1, min(count, len(ranked))).round().astype(int).tolist()
    return [ranked[rank] for rank in ranks]


def turned(sample: PairSample) -> PairSample:
    """Let the slots change places."""
    return replace(
        sample,
        seconds=sample.seconds[::-1],
        launch_seconds=sample.launch_seconds[::-1],
        choices=sample.choices[::-1],
    )


def seconds_of(worker: Worker, case: Case, pins: Sequence[Choice]) -> float:
    """Return about what a call takes, the kernel that spins for no turns included."""
    worker.prepare(case, None, pins)
    return statistics.median(worker.visit(case, FEW_SAMPLES))


def calibrate(
    slots: tuple[Worker, Worker], case: Case, pins: tuple[Choice, ...], files: tuple[Turns, Turns]
) -> Calibration:
    """Find out what a turn adds behind this case's kernel.

    By pairs, as what is recorded: a spin alone would let the GPU rest, so that a kernel at the power limit ran faster
    behind it, and half the turns of 8192 cubed seemed to add a third of what all of them did (H200, 2026-11-23).
    """

    def spun(turns: int) -> PairSample:
        files[0].set({})
        files[1].set({case.id: turns})
        return sample_pair(slots, case, plan=plan, pins=(pins, pins))

    plan = None
    still = spun(0)
    plan, seconds = still.plan, still.median_seconds(0)
    turns = max(2 * round(CALIBRATED_SHARE * seconds / GUESSED_TURN_SECONDS / 2), 2)
    half, whole = (seconds * math.expm1(spun(each).log_ratio) for each in (turns // 2, turns))
    files[1].set({})
    return Calibration(pins=pins, plan=plan, base_seconds=seconds, turn_seconds=whole / turns, linear=2 * half / whole)


if __name__ == "__main__":
    main()
