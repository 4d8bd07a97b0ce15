"""The process that profiles: ``python -m flopwatch.profile.recorder ASK.json ANSWER.json``.

The checkout under test comes from the environment (`flopwatch.overlay`), as a worker's does.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from flopwatch.errors import FlopwatchError, MachineError
from flopwatch.measure.inputs import make_inputs
from flopwatch.measure.protocol import DeclaredCase, Mode
from flopwatch.measure.session import Session, failure_of
from flopwatch.model import Case, Choice, Memory, from_json, to_json
from flopwatch.profile.request import TIMELINE, TREE, Answer, Ask, choose
from flopwatch.profile.result import ProfiledCase
from flopwatch.static.device import named_dtypes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.model import Failure

#: Of the GPU's time for each case under Proton, unless the user says how many calls.
BUSY_SECONDS = 0.1
CALLS = (8, 1000)
#: The cases of a point take turns, this many each: measured one after the other, the second one of two large products
#: sees the clock that the first one left, 4 to 15 % apart (H200, 2026-11-20).
TURNS = 8
#: Of the gate's timer, and of launches; the median of 20 errs by 1 % at a scatter of 3 %.
SAMPLES = 20
#: Calls of each case in the timeline.
TIMELINE_CALLS = 3
#: Entries of torch's allocator, of which a call makes a few.
SNAPSHOT_ENTRIES = 100_000


@dataclass(kw_only=True)
class Contender:
    """A case that ran: what calls it, and what is known of it by now."""

    declared: DeclaredCase
    call: Callable[..., object]
    choices: tuple[Choice, ...]
    call_seconds: float
    host_seconds: float
    calls: int = 0
    wall_seconds: float = 0.0
    memory: Memory | None = None

    @property
    def case(self) -> Case:
        """The case."""
        return self.declared.case

    @property
    def work(self) -> dict[str, float]:
        """FLOPs and bytes of one call, under Proton's names: those of FLOPs have the bits of the operands."""
        return {flops_name(self.case.values): self.declared.flops, "bytes": self.declared.bytes_moved}


def flops_name(values: Sequence[str]) -> str:
    """Return what Proton calls the FLOPs of a case of these parameters; "flops" where they name no type.

    >>> flops_name(("4096x4096x4096", "float16", "torch")), flops_name(("float8_e5m2",)), flops_name(("full",))
    ('flops16', 'flops8', 'flops')
    """
    widths = {getattr(torch, name).itemsize * 8 for name in named_dtypes(values)}
    return f"flops{min(widths)}" if widths else "flops"


def main(arguments: list[str]) -> None:
    """Do what is asked, and write the answer."""
    asked, answered = map(Path, arguments)
    ask = from_json(asked.read_bytes(), Ask)
    try:
        answer = answer_to(ask)
    except FlopwatchError as error:
        unfit = isinstance(error, MachineError)
        answer = Answer(refusal=error.what, why=error.why, todo=error.todo, unfit=unfit)
    part = answered.with_suffix(".part")
    part.write_bytes(to_json(answer))
    part.replace(answered)  # what is there is complete


def answer_to(ask: Ask) -> Answer:
    """Profile the cases, or call one of them once."""
    session = Session(Mode.GPU, Path(ask.benchmarks), ask.device)
    hello = session.hello()
    if hello.gpu is None:
        raise MachineError("flopwatch profile needs a GPU", why="torch finds none", todo="see flopwatch doctor")
    if ask.once is not None:
        call_once(session, ask.once, ask.pins)
        return Answer(gpu=hello.gpu, versions=hello.versions)
    chosen = choose(hello.declared, ask.select, ask.providers, hello.import_failures)
    contenders, failures = prepare_all(session, chosen, ask.pins)
    profile_all(session, contenders, failures, ask)
    snapshots, notes = [], []
    for contender in contenders if ask.snapshot else ():
        try:
            snapshots.append(take_snapshot(session, contender, ask.folder))
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises is a result
            failure = failure_of(error)
            notes.append(f"no snapshot of {contender.case.id}: {failure.kind}: {failure.message}")
    by_case = {contender.case: contender for contender in contenders}
    return Answer(
        gpu=hello.gpu,
        versions=hello.versions,
        cases=tuple(_profiled(entry, by_case.get(entry.case), failures.get(entry.case)) for entry in chosen),
        snapshots=tuple(snapshots),
        notes=tuple(notes),
    )


def prepare_all(
    session: Session, chosen: Sequence[DeclaredCase], pins: Sequence[Choice]
) -> tuple[list[Contender], dict[Case, Failure]]:
    """Compile and tune each case, and time it as the gate does; return those that ran, and why others did not."""
    contenders = []
    failures: dict[Case, Failure] = {}
    for declared in chosen:
        case = declared.case
        try:
            prepared = session.prepare(case, None, pins)
            seconds = statistics.median(session.prepared(case).sample(SAMPLES))
            host = statistics.median(session.prepared(case).launch(SAMPLES))
            call = session.suite(case).call(case.provider)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises is a result
            failures[case] = failure_of(error)
        else:
            contenders.append(
                Contender(
                    declared=declared, call=call, choices=prepared.choices, call_seconds=seconds, host_seconds=host
                )
            )
        finally:
            session.release()
    return contenders, failures


def profile_all(session: Session, contenders: Sequence[Contender], failures: dict[Case, Failure], ask: Ask) -> None:
    """Call the cases of each point in turns: by the host's clock, for Proton's tree, and for its timeline."""

    def watch(one: Contender, inputs: tuple[Any, ...]) -> None:
        calls = calls_of_turn(one.call_seconds, ask.calls)
        one.wall_seconds += wall(one.call, inputs, calls)
        one.calls += calls

    def profile(one: Contender, inputs: tuple[Any, ...]) -> None:
        proton.record(one, inputs, calls_of_turn(one.call_seconds, ask.calls))

    def trace(one: Contender, inputs: tuple[Any, ...]) -> None:
        proton.record(one, inputs, TIMELINE_CALLS)

    proton = Proton(Path(ask.folder))
    in_turns(session, contenders, failures, watch, turns=TURNS)  # before Proton, whose callbacks slow each launch
    with proton.recording(TREE, data="tree"):
        in_turns(session, contenders, failures, profile, turns=TURNS)
    with proton.recording(TIMELINE, data="trace"):
        in_turns(session, contenders, failures, trace, turns=1)


def in_turns(
    session: Session,
    contenders: Sequence[Contender],
    failures: dict[Case, Failure],
    visit: Callable[[Contender, tuple[Any, ...]], None],
    *,
    turns: int,
) -> None:
    """Visit the cases of each point in turns, on the same inputs; what fails has no more of them."""
    for _, group in itertools.groupby(contenders, lambda one: (one.case.suite, one.case.values[:-1])):
        running = [one for one in group if one.case not in failures]
        if not running:
            continue
        try:
            inputs = make_inputs(session.suite(running[0].case), running[0].case, seed=0)
        except Exception as error:  # noqa: BLE001 - as above
            failures |= dict.fromkeys([one.case for one in running], failure_of(error))
            continue
        for _turn, one in itertools.product(range(turns), running):
            if one.case not in failures:
                try:
                    one.call(*inputs)  # the first call after another's is slow, and sets up what later ones keep
                    torch.cuda.synchronize()
                    visit(one, inputs)
                except Exception as error:  # noqa: BLE001 - as above
                    failures[one.case] = failure_of(error)
        del inputs
        torch.cuda.empty_cache()


def calls_of_turn(call_seconds: float, calls: int | None) -> int:
    """Return how many calls one turn has.

    >>> calls_of_turn(1.5e-3, None), calls_of_turn(4e-6, None), calls_of_turn(1.0, None), calls_of_turn(1.0, 20)
    (9, 125, 1, 3)
    """
    low, high = CALLS
    wanted = calls or min(max(round(BUSY_SECONDS / call_seconds), low), high)
    return -(-wanted // TURNS)


def wall(call: Callable[..., object], inputs: tuple[Any, ...], calls: int) -> float:
    """Return the seconds of calls one after the other, by the host's clock, until the GPU is done."""
    start = time.perf_counter()
    for _ in range(calls):
        call(*inputs)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def call_once(session: Session, case: Case, pins: tuple[Choice, ...]) -> None:
    """Compile and tune the case; then let whatever watches CUDA's profiler range see a single call."""
    session.tune(case, pins)
    suite = session.suite(case)
    call, inputs = suite.call(case.provider), make_inputs(suite, case, seed=0)
    call(*inputs)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call(*inputs)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def take_snapshot(session: Session, contender: Contender, folder: str) -> str:
    """Measure the memory of a case, and save what torch's allocator did meanwhile; return the file."""
    path = Path(folder) / f"memory-{file_name(contender.case)}.pickle"
    torch.cuda.memory._record_memory_history(max_entries=SNAPSHOT_ENTRIES)  # noqa: SLF001 - torch's documented name
    try:
        found = session.memory(contender.case, contender.choices)
        torch.cuda.memory._dump_snapshot(str(path))  # noqa: SLF001 - likewise
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001 - likewise
    contender.memory = found if isinstance(found, Memory) else None
    return str(path)


def file_name(case: Case) -> str:
    """Return a case's name for a file.

    >>> file_name(Case(suite="Add", values=("8", "torch")))
    'Add-8-torch'
    """
    return re.sub(r"[^\w.-]+", "-", case.id).strip("-")


class Proton:
    """One session of Proton after the other, inactive but for what is recorded.

    Args:
        folder: where its files go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._session: int | None = None

    @contextlib.contextmanager
    def recording(self, name: str, *, data: str) -> Iterator[None]:
        """Record to a file of that name, a "tree" or a "trace", which is written in the end.

        Raises:
            MachineError: the installed Proton does not record on this machine.
        """
        try:
            from triton import profiler  # noqa: PLC0415 - where it is needed

            self._session = profiler.start(str(self._folder / name), context="shadow", data=data)
        except Exception as error:
            raise MachineError(
                "Triton's profiler, Proton, does not start",
                why=f"{type(error).__name__}: {error}",
                todo="another profiler may hold CUPTI; TRITON_CUPTI_LIB_PATH names the folder of another libcupti",
            ) from error
        if self._session is None:
            raise MachineError(
                "Triton's profiler, Proton, is switched off",
                why="the environment has TRITON_PROTON_DISABLE",
                todo="unset it",
            )
        profiler.deactivate(self._session)
        try:
            yield
        finally:
            profiler.finalize()

    def record(self, one: Contender, inputs: tuple[Any, ...], calls: int) -> None:
        """Make calls in a scope of the case's name with the work of all of them; the GPU is idle before and after."""
        from triton import profiler  # noqa: PLC0415 - where it is needed

        profiler.activate(self._session)
        try:
            with profiler.scope(one.case.id, {name: work * calls for name, work in one.work.items()}):
                for _ in range(calls):
                    one.call(*inputs)
            torch.cuda.synchronize()
        finally:
            profiler.deactivate(self._session)


def _profiled(declared: DeclaredCase, ran: Contender | None, failure: Failure | None) -> ProfiledCase:
    known: dict[str, Any] = {"case": declared.case, "flops": declared.flops, "bytes_moved": declared.bytes_moved}
    if ran is None:
        return ProfiledCase(**known, failure=failure)
    return ProfiledCase(
        **known,
        calls=ran.calls,
        call_seconds=ran.call_seconds,
        host_seconds=ran.host_seconds,
        wall_seconds=ran.wall_seconds / ran.calls if ran.calls else None,
        choices=ran.choices,
        memory=ran.memory,
        failure=failure,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
