"""What calls of the public functions cost the host after the first, in turns with torch.matmul, on a GPU.

::

    python -m evidence.launch_costs evidence/h200/launch-2026-11-25.json

Then ``python -m evidence.peers docs`` writes the table of docs/performance.md. A round is `CALLS` calls of each, fewer
than a GPU's queue holds, after which the GPU is waited for; of all rounds the least counts, for whatever else the host
does takes time away and gives none.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evidence import call_costs
from evidence.call_costs import newest, present_machine, require_one, run
from flopwatch.kernels import flash_attention, triton_matmul, triton_matmul_fp8, vector_add
from flopwatch.measure.machine import Machine
from flopwatch.model import SCHEMA_VERSION
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

_PROGRAM = "evidence.launch_costs"
CALLS, ROUNDS = 100, 40
#: What the goal is stated of: calls of torch.matmul took 10.7 us on the first H200's host, and ours are to take 12 us
#: there (2026-11-20). Another host is slower or faster at both.
YARDSTICK, YARDSTICK_S, GOAL_S = "torch.matmul 256x256x256", 10.7e-6, 12e-6
_SEED = 20261125
#: What is said of calls with float32, which have no goal: each input is converted first, by a call of torch.
_CONVERTED = " of float32, converted"


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchCosts:
    """What calls cost.

    Attributes:
        machine: whose host it is.
        date: of the measurement.
        seconds: of a call, by what is called.
        kernels: a fingerprint of them; "" in files that are older than this.
    """

    machine: Machine
    date: str
    seconds: dict[str, float]
    kernels: str = ""
    schema_version: int = SCHEMA_VERSION


def calls() -> dict[str, Callable[[], object]]:
    """Return what is called: each kind of kernel, and what torch has for the same."""
    import torch  # noqa: PLC0415 - not where the table is made

    def half(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda").half()

    def eighth(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda").to(torch.float8_e4m3fn)

    def product(m: int, n: int, k: int) -> Callable[[], object]:
        a, b = half(m, k), half(k, n)
        return lambda: triton_matmul(a, b)

    small, x = half(256, 256), half(4096)
    q, padded = half(1, 16, 1024, 128), half(4, 16, 1024, 64)
    single, single_q = torch.randn(1024, 1024, device="cuda"), torch.randn(q.shape, device="cuda")
    seq_lens = torch.tensor([1024, 700, 300, 100], dtype=torch.int32, device="cuda")
    a8, b8, thin8, wide8 = eighth(1024, 1024), eighth(1024, 1024).T, eighth(16, 4096), eighth(4096, 4096).T
    one, rows, columns = (torch.ones(shape, device="cuda") for shape in ((), (16, 1), (1, 4096)))
    attend = torch.nn.functional.scaled_dot_product_attention
    return {
        YARDSTICK: lambda: torch.matmul(small, small),
        "triton_matmul 128x128x128, the plain kernel": product(128, 128, 128),
        "triton_matmul 1024x1024x1024, by tensor maps": product(1024, 1024, 1024),
        "triton_matmul 2560x2560x2560, tiles shared": product(2560, 2560, 2560),
        "triton_matmul 16x4096x4096, of few rows": product(16, 4096, 4096),
        "triton_matmul 4095x4097x4099, of copies": product(4095, 4097, 4099),
        "triton_matmul 777x1234x5678, of copies, short": product(777, 1234, 5678),
        "triton_matmul 300x4097x4099, of copies, few rows": product(300, 4097, 4099),
        "triton_matmul 2504x2504x2504, of a copy of B": product(2504, 2504, 2504),
        "triton_matmul_fp8 1024x1024x1024": lambda: triton_matmul_fp8(a8, b8, one, one),
        "triton_matmul_fp8 16x4096x4096, a scale a row": lambda: triton_matmul_fp8(thin8, wide8, rows, columns),
        "torch._scaled_mm 1024x1024x1024": lambda: torch._scaled_mm(a8, b8, one, one, out_dtype=torch.bfloat16),  # noqa: SLF001 - has no public name
        "flash_attention 1x16x1024x128 causal": lambda: flash_attention(q, q, q, causal=True),
        "flash_attention 4x16x1024x64, lengths": lambda: flash_attention(padded, padded, padded, seq_lens=seq_lens),
        "torch's attention 1x16x1024x128 causal": lambda: attend(q, q, q, is_causal=True),
        "vector_add 4096": lambda: vector_add(x, x),
        f"triton_matmul 1024x1024x1024{_CONVERTED}": lambda: triton_matmul(single, single),
        f"torch.matmul 1024x1024x1024{_CONVERTED}": lambda: torch.matmul(single.half(), single.half()),
        f"flash_attention 1x16x1024x128{_CONVERTED}": lambda: flash_attention(single_q, single_q, single_q),
        f"torch's attention 1x16x1024x128{_CONVERTED}": lambda: attend(
            single_q.half(), single_q.half(), single_q.half()
        ),
    }


def least_seconds(
    each: Mapping[str, Callable[[], object]], wait: Callable[[], None], clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Have calls take turns; return the least that one of each took.

    Args:
        each: what is called, by name; the first calls of each are not counted.
        wait: waits for the GPU.
        clock: seconds of the host.
    """
    for call in each.values():
        call()
        call()  # past what the first one has left to do, such as a workspace
    order = random.Random(_SEED)  # noqa: S311 - an order, not a secret
    least = dict.fromkeys(each, float("inf"))
    for _ in range(ROUNDS):
        for name in order.sample(list(each), len(each)):
            wait()
            begun = clock()
            for _ in range(CALLS):
                each[name]()
            least[name] = min(least[name], (clock() - begun) / CALLS)
    wait()
    return least


def measure() -> Iterator[LaunchCosts]:
    """Measure on the present GPU.

    Raises:
        MachineError: there is none.
    """
    require_one()
    import torch  # noqa: PLC0415 - as above

    seconds = least_seconds(calls(), torch.cuda.synchronize)
    machine, date, kernels = present_machine()
    yield LaunchCosts(machine=machine, date=date, kernels=kernels, seconds=seconds)


def kept(folder: Path) -> LaunchCosts | None:
    """Read the newest measurement that a folder has, if it has one."""
    return newest(folder, "launch", LaunchCosts)


def told(measurements: Iterable[LaunchCosts | None]) -> str:
    """Tell of each measurement, where there is one, what calls cost, and which reach the goal."""
    heads = ("call", "of the host", "of torch.matmul's", f"goal: {GOAL_S / YARDSTICK_S:.2f}")
    return call_costs.told(measurements, _rows, heads) or f"Not measured yet: `python -m {_PROGRAM} OUT.json`."


def _rows(found: LaunchCosts) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, seconds in found.seconds.items():
        ratio = seconds / found.seconds[YARDSTICK]
        verdict = "reached" if ratio <= GOAL_S / YARDSTICK_S else "**not reached**"
        has_goal = not name.startswith("torch") and not name.endswith(_CONVERTED)
        rows.append((name, format_seconds(seconds), f"{ratio:.2f}", verdict if has_goal else ""))
    return rows


def main(arguments: list[str]) -> None:
    """Measure, print the table and write the file."""
    run(arguments, _PROGRAM, str(__doc__), measure, lambda found: told([found]))


if __name__ == "__main__":
    main(sys.argv[1:])
