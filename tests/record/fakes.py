"""A GPU that is not there: workers that take the times from the checkout, and a driver that is content with them.

``python -m tests.record.fakes RANGE`` records with them in the working directory, to be stopped from outside.
"""

from __future__ import annotations

import math
import re
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from flopwatch.asv import environment, machine
from flopwatch.asv.interpreter import Interpreter
from flopwatch.errors import FlopwatchError, MachineError
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.machine import Gpu, Snapshot
from flopwatch.measure.protocol import DeclaredCase, Hello, Method, Plan, Prepared
from flopwatch.model import Case, Choice, Failure, KernelFacts, Memory, Numbers, Timing
from flopwatch.record import RecordOptions, recorder, run, run_record, store
from flopwatch.record.checkouts import Checkouts

if TYPE_CHECKING:
    from collections.abc import Sequence

UUID = "GPU-4a1f6e2c-0000-1111-2222-333344445555"
H200 = Interpreter(python="3.11", torch="2.11.0", triton="3.6.0", gpu="NVIDIA H200")
PLAN = Plan(method=Method.GRAPH, calls=16, input_sets=16)
FACT = KernelFacts(
    kernel="k",
    device="h200",
    config="BLOCK=64,num_stages=3,num_warps=4",
    variant="*fp16:16",
    chosen=True,
    registers=64,
    occupancy=0.25,
    shared_bytes=1024,
    spill_store_bytes=4,
    spill_load_bytes=8,
)
#: What the tuner chose.
TUNED = "BLOCK: 128, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None"
#: In the order of the suite's parameters; the peer of "rare" does not exist.
CASES = tuple(
    Case(suite="Scale", values=(size, provider))
    for size in ("small", "large", "rare")
    for provider in ("flopwatch", "torch")
    if (size, provider) != ("rare", "torch")
)
SUITE = """\
from flopwatch import Suite
from toykernels import SECONDS


class Scale(Suite):
    params = (["small", "large", "rare"],)
    param_names = ("size",)
    providers = {"torch": None}
    skip_params = [("rare", "torch")]

    def flops(self, size):
        return 1e12

    def bytes_moved(self, size):
        return 4e6
"""


@dataclass(kw_only=True)
class Board:
    """What the stand-ins share: what goes wrong, and what was asked.

    Attributes:
        failing: message of the failure of a case, by its size; of a pair, by arm and size; of its static facts
            ("static") and of the call that tells the tuner's choice ("uncaptured") by that word and size.
        clocks_mhz: of the two arms in pairs.
        clock_mhz: read last.
        lost: the driver no longer answers.
        interrupt_at: a case at which the user presses Ctrl-C.
        hang_at: a case that never ends.
        asked: for each timing, the checkout's seconds and the case.
        visited: for each visit of a pair, the arm and the case.
        working: processes on the GPU.
        compiled: for each case that was compiled ahead, the arm, the case, and how many were timed before.
        foreign: processes of others on the GPU.
    """

    failing: dict[str, str] = field(default_factory=dict)
    clocks_mhz: dict[Arm, int] = field(default_factory=lambda: dict.fromkeys(Arm, 1980))
    lost: bool = False
    interrupt_at: str = ""
    hang_at: str = ""
    asked: list[tuple[float, str]] = field(default_factory=list)
    visited: list[tuple[Arm, str]] = field(default_factory=list)
    clock_mhz: int = 1980
    working: int = 0
    compiled: list[tuple[Arm, str, int]] = field(default_factory=list)
    foreign: tuple[int, ...] = ()


BOARD = Board()


class FakeWorker:
    """Runs nothing."""

    def __init__(self, arm: Arm, tree: Path, board: Board) -> None:
        self.arm, self.board, self.pid = arm, board, 7
        self.kernel = (tree / "src" / "toykernels" / "__init__.py").read_text(encoding="utf-8")

    def __enter__(self) -> Self:
        self.board.working += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.board.working -= 1

    @property
    def seconds(self) -> float:
        found = re.search(r"^SECONDS = (\S+)$", self.kernel, re.MULTILINE)
        assert found
        return float(found[1])

    @property
    def hello(self) -> Hello:
        if "os._exit" in self.kernel:
            raise FlopwatchError("the gpu worker does not start", why="exit status 7 during hello", todo="last words")
        broken = "raise" in self.kernel
        return Hello(
            gpu="NVIDIA H200",
            gpu_uuid=UUID,
            compute_capability=(9, 0),
            versions={"triton": "3.6.0"},
            declared=()
            if broken
            else tuple(
                DeclaredCase(
                    case=case,
                    small=case,
                    own=case.provider == "flopwatch",
                    max_diff_eps=None,
                    flops=1e12,
                    bytes_moved=4e6,
                )
                for case in CASES
            ),
            import_failures={"benchmarks.scale": "RuntimeError: planted at import"} if broken else {},
        )

    def time(self, case: Case) -> Timing:
        self.board.asked.append((self.seconds, case.id))
        if case.id == self.board.hang_at:
            print("hanging", flush=True)  # noqa: T201 - whoever stops this process waits for it
            time.sleep(60)
        if case.id == self.board.interrupt_at:
            raise KeyboardInterrupt
        self._fail(case)
        scatter = [1 + 1e-3 * math.sin(3 * launch) for launch in range(40)]
        return Timing(seconds=tuple(self.seconds * factor for factor in scatter), method="graph")

    def numbers(self, _case: Case) -> Numbers:
        return Numbers(dtype="float32", max_diff=1e-3, max_diff_eps=2.0, finite=True, bitwise="")

    def memory(self, _case: Case) -> Memory:
        return Memory(peak_bytes=4096, growth_bytes=0.0)

    def compile(self, case: Case, *, identify: bool) -> None:
        assert not identify
        self.board.compiled.append((self.arm, case.id, len(self.board.asked)))
        self._fail_as("static", case)

    def facts(self, case: Case) -> tuple[KernelFacts, ...]:
        self._fail_as("static", case)
        found = re.search(r"^WARPS = (\d+)$", self.kernel, re.MULTILINE)
        fact = replace(FACT, config=FACT.config[:-1] + found[1], registers=128) if found else FACT
        return (fact, replace(FACT, config=TUNED, chosen=False))

    def prepare(self, case: Case, plan: Plan | None = None, pins: Sequence[Choice] = (), *, lent: str = "") -> Prepared:
        if plan == recorder.UNCAPTURED:
            self._fail_as("uncaptured", case)
        if f"{self.arm.value} {case.values[0]}" in self.board.failing:
            message = self.board.failing[f"{self.arm.value} {case.values[0]}"]
            raise CaseFailed(Failure(kind="OutOfResources", message=message), cast("Worker", self))
        choices = (Choice(kernel="k", key="1024", config=TUNED, timings_us={TUNED: 7.0}),)
        return Prepared(plan=plan or PLAN, choices=tuple(pins) or choices, borrowed=bool(lent))

    def lend(self, case: Case, _to: Worker) -> str:
        return case.id

    def place(self, _case: Case) -> None:
        pass

    def release(self, _case: Case) -> None:
        pass

    def visit(self, case: Case, samples: int) -> tuple[float, ...]:
        self.board.visited.append((self.arm, case.id))
        self.board.clock_mhz = self.board.clocks_mhz[self.arm]
        return (self.seconds,) * samples

    def launch(self, _case: Case, samples: int) -> tuple[float, ...]:
        return (1e-5,) * samples

    def _fail_as(self, what: str, case: Case) -> None:
        if message := self.board.failing.get(f"{what} {case.values[0]}"):
            raise CaseFailed(Failure(kind="OutOfResources", message=message), cast("Worker", self))

    def _fail(self, case: Case) -> None:
        if message := self.board.failing.get(case.values[0]):
            raise CaseFailed(Failure(kind="OutOfResources", message=message), cast("Worker", self))


class FakeCheckouts(Checkouts):
    """Real checkouts, stand-ins for their workers."""

    def start_nurseries(self) -> None:
        pass

    def worker(self, mode: Mode, arm: Arm, *, anew: bool = False) -> Worker:
        assert mode is not Mode.INTERPRET
        assert not anew
        return cast("Worker", FakeWorker(arm, self.trees[arm], BOARD))


class FakeWatch:
    """Reads a healthy H200."""

    def __init__(self, uuid: str) -> None:
        assert uuid == UUID

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def gpu(self) -> Gpu:
        return Gpu(name="NVIDIA H200", uuid=UUID, driver="580.65")

    def clock(self) -> int:
        return BOARD.clock_mhz

    def reason_bits(self) -> int:
        return 0

    def snapshot(self) -> Snapshot:
        if BOARD.lost:
            raise MachineError("the GPU no longer answers")
        return Snapshot(
            time_s=time.monotonic(), temperature_c=40, processes=(7, *BOARD.foreign) if BOARD.working else ()
        )


#: What takes the place of what needs a GPU: module, name, stand-in.
STAND_INS = (
    (environment, "probe_interpreter", lambda _python: H200),
    (machine, "probe_interpreter", lambda _python: H200),
    (store, "probe_interpreter", lambda _python: H200),
    (recorder, "Checkouts", FakeCheckouts),
    (run, "Watch", FakeWatch),
)


def main(revisions: str, hang_at: str) -> int:
    """Record with the stand-ins; hang at a case."""
    for module, name, stand_in in STAND_INS:
        setattr(module, name, stand_in)
    BOARD.hang_at = hang_at
    recording = run_record(RecordOptions(revisions=revisions), Path.cwd())
    print(f"interrupted: {recording.interrupted}", flush=True)  # noqa: T201 - read by the test
    return recording.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
