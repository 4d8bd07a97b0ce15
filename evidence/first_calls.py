"""What the first call of a size costs, in fresh processes with and without compiled kernels, on a GPU.

::

    python -m evidence.first_calls evidence/h200/first-calls-2026-11-25.json

Each process calls one function with a size that no table has, and then with another such size; one process has an empty
Triton cache, and the next one what that left there. Importing torch, opening the GPU and the start of Triton, which
compiles its driver once a machine, are done before: the start is the first call of `vector_add`, and timed by itself.
What the autotuner takes of a call, to compile its candidates and to time them, is told beside the whole.
Then ``python -m evidence.peers docs`` writes the table of docs/performance.md.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from evidence import call_costs
from evidence.call_costs import newest, present_machine, require_one, run
from flopwatch.errors import FlopwatchError
from flopwatch.kernels import flash_attention, triton_matmul, triton_matmul_fp8, vector_add
from flopwatch.kernels.tuner import Tuner
from flopwatch.measure.machine import Machine
from flopwatch.model import SCHEMA_VERSION, from_json
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_PROGRAM = "evidence.first_calls"
ROOT = Path(__file__).parents[1]
#: The goal of autotuning, in seconds; the whole call is held against it, too.
GOAL_S = 2.0
#: What is called, and two sizes that no table has.
SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "triton_matmul": ((2304, 2304, 2304), (3584, 2560, 1792)),
    "triton_matmul, one round of tiles": ((1088, 1088, 1088), (704, 1408, 896)),
    "triton_matmul, few rows": ((24, 2560, 2560), (12, 3072, 2048)),
    "triton_matmul, float32": ((640, 640, 640), (320, 960, 480)),
    "triton_matmul, small": ((200, 300, 400), (120, 260, 500)),
    "triton_matmul_fp8": ((1152, 1152, 1152), (896, 1408, 640)),
    "flash_attention, 64": ((2, 12, 1536, 64), (3, 8, 2560, 64)),
    "flash_attention, 128": ((2, 12, 1536, 128), (3, 8, 2560, 128)),
    "flash_attention, 256": ((2, 12, 1536, 256), (3, 8, 2560, 256)),
    "flash_attention, 96": ((2, 12, 1536, 96), (3, 8, 2560, 96)),
    "flash_attention, lengths": ((4, 16, 1536, 64), (3, 16, 2560, 64)),
}
#: Elements that the start of Triton adds.
_FEW = 1024
#: A process is killed after so long: it has everything to compile, twice.
LONGEST_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstCall:
    """What two first calls cost, in seconds to the end of the kernel.

    Attributes:
        name: of what is called.
        cold: with nothing compiled: of the first size, and then of the other.
        warm: in a new process, with what the one before left in Triton's cache.
        start: what the start of Triton took before, with an empty cache and in the new process; None where it was not
            timed, and is part of the first of `cold` and of `warm`.
        tuned: what autotuning took of both of `cold`; 0 where nothing was timed, and None in older files.
    """

    name: str
    cold: tuple[float, float]
    warm: tuple[float, float]
    start: tuple[float, float] | None = None
    tuned: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstCalls:
    """All of them, on one machine, and a fingerprint of the kernels; "" in files that are older than this."""

    machine: Machine
    date: str
    calls: tuple[FirstCall, ...]
    kernels: str = ""
    schema_version: int = SCHEMA_VERSION


def call(name: str, sizes: tuple[int, ...]) -> Callable[[], object]:
    """Return the call, its inputs drawn."""
    import torch  # noqa: PLC0415 - not where the table is made

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda")

    if name.startswith("flash_attention"):
        q, k, v = (drawn(*sizes).half() for _ in range(3))
        if not name.endswith("lengths"):
            return lambda: flash_attention(q, k, v, causal=True)
        seq_lens = torch.full((sizes[0],), sizes[2], dtype=torch.int32, device="cuda")
        return lambda: flash_attention(q, k, v, seq_lens=seq_lens)
    m, n, k_size = sizes
    a, b = drawn(m, k_size), drawn(n, k_size)
    if name == "triton_matmul_fp8":
        a8, b8, one = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).T, torch.ones((), device="cuda")
        return lambda: triton_matmul_fp8(a8, b8, one, one)
    a, b = (a, b) if name.endswith("float32") else (a.half(), b.half())
    b = b.T.contiguous()
    return lambda: triton_matmul(a, b)


@contextlib.contextmanager
def tunings() -> Iterator[list[float]]:
    """List the seconds of each choice among several candidates that is made meanwhile."""
    seconds: list[float] = []
    choose = Tuner.check_disk_cache

    def timed(tuner: Tuner, key: tuple[Any, ...], configs: Sequence[Any], bench: Callable[[], None]) -> bool:
        begun = time.perf_counter()
        known = choose(tuner, key, configs, bench)
        if len(configs) > 1:
            seconds.append(time.perf_counter() - begun)
        return known

    with mock.patch.object(Tuner, "check_disk_cache", timed):
        yield seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Of one process, in seconds: Triton's start, both first calls, and what autotuning took of these."""

    start: float
    calls: tuple[float, float]
    tuned: tuple[float, float]


def costs(name: str) -> Costs:
    """Start Triton and make both first calls in this process."""
    import torch  # noqa: PLC0415 - as above

    def cost(first: Callable[[], object]) -> tuple[float, float]:
        torch.cuda.synchronize()
        with tunings() as tuned:
            begun = time.perf_counter()
            first()
            torch.cuda.synchronize()
            return time.perf_counter() - begun, sum(tuned)

    x = torch.zeros(_FEW, device="cuda")
    start, _ = cost(lambda: vector_add(x, x))
    one, other = (cost(call(name, sizes)) for sizes in SIZES[name])
    return Costs(start=start, calls=(one[0], other[0]), tuned=(one[1], other[1]))


def in_a_process(name: str, cache: Path) -> Costs:
    """Start Triton and make both first calls in a fresh process.

    Raises:
        FlopwatchError: it fails.
    """
    told_costs = f"to_json(costs({name!r})).decode()"
    program = f"from evidence.first_calls import costs; from flopwatch.model import to_json; print({told_costs})"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise FlopwatchError(f"the first call of {name} failed", why=why, todo="run it by itself to see more")
    return from_json(done.stdout.splitlines()[-1].encode(), Costs)


def measure() -> Iterator[FirstCalls]:
    """Measure on the present GPU; yield all that there is, after each.

    Raises:
        MachineError: there is none.
        FlopwatchError: a call fails.
    """
    require_one()
    machine, date, kernels = present_machine()
    calls: list[FirstCall] = []
    for name in SIZES:
        with tempfile.TemporaryDirectory(prefix="flopwatch-") as cache:
            cold, warm = (in_a_process(name, Path(cache)) for _ in range(2))
        starts = (cold.start, warm.start)
        found = FirstCall(name=name, cold=cold.calls, warm=warm.calls, start=starts, tuned=cold.tuned)
        calls.append(found)
        one, other = cold.calls
        sys.stderr.write(f"{name}: {one:.2f} s, then {other:.2f} s; compiled before {warm.calls[0]:.2f} s\n")
        yield FirstCalls(machine=machine, date=date, kernels=kernels, calls=tuple(calls))


def kept(folder: Path) -> FirstCalls | None:
    """Read the newest measurement that a folder has, if it has one."""
    return newest(folder, "first-calls", FirstCalls)


def told(measurements: Iterable[FirstCalls | None]) -> str:
    """Tell of each measurement, where there is one, what first calls cost, and which reach the goal."""
    before = ("Triton's start", "nothing compiled", "another size then")
    then = ("Triton's start then", "compiled before", "another")
    heads = ("call", *before, *then, "autotuning", f"goal: {GOAL_S:g} s", f"all in {GOAL_S:g} s")
    return call_costs.told(measurements, _rows, heads) or f"Not measured yet: `python -m {_PROGRAM} OUT.json`."


def _rows(found: FirstCalls) -> list[tuple[str, ...]]:
    return [
        (
            f"{each.name} {'x'.join(map(str, SIZES[each.name][0]))}",
            *_cells(each, 0, each.cold),
            *_cells(each, 1, each.warm),
            *_tuning(each),
            "yes" if max(*each.cold, *each.warm) <= GOAL_S else "**no**",
        )
        for each in found.calls
        if each.name in SIZES
    ]


def _tuning(found: FirstCall) -> tuple[str, str]:
    """Tell what the longer autotuning took, if that is known, and whether it reaches the goal."""
    longest = max(found.tuned or (0.0,))
    if not longest:
        return "" if found.tuned is None else "none", ""
    return format_seconds(longest), "reached" if longest <= GOAL_S else "**not reached**"


def _cells(found: FirstCall, process: int, sizes: tuple[float, float]) -> tuple[str, ...]:
    """Tell of one process what Triton's start took, if that is known, and both sizes."""
    start = "" if found.start is None else format_seconds(found.start[process])
    return start, *map(format_seconds, sizes)


def main(arguments: list[str]) -> None:
    """Measure, print the table and write the file."""
    run(arguments, _PROGRAM, str(__doc__), measure, lambda found: told([found]))


if __name__ == "__main__":
    main(sys.argv[1:])
