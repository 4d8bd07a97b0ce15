"""What the static rules say of planted regressions and of harmless refactorings, and what these cost on a GPU.

::

    python -m evidence.static_calibration compile evidence/static/h200-triton-3.7.1.json      # anywhere, 4 minutes
    python -m evidence.static_calibration measure evidence/static/measured-2026-11-22.json    # on a GPU, 5 minutes
    python -m evidence.static_calibration docs                                                # writes the page again

The kernels at HEAD are edited as `evidence.planted` says. What is kept of compiling are facts, not findings: the rules
may change, and are held against the same facts. What each change costs is measured as the gate does, in pairs of
processes that take turns; every result is written as it comes, so that a run that is stopped can be resumed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime as dt
import os
import secrets
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from evidence import static_document
from evidence.edits import KERNELS
from evidence.planted import PLANTED
from evidence.regressions import REGRESSIONS
from evidence.routes import take_plain_kernels
from evidence.static_records import Compilation, Measurement, Slowdown
from flopwatch import git
from flopwatch.checkout import checkout
from flopwatch.config import Config, load_config
from flopwatch.errors import FlopwatchError, MachineError, UndecidedError, UsageError
from flopwatch.gate import CaseVerdict
from flopwatch.gate.pairs import Observer, Pairs
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure import fitness
from flopwatch.measure.client import CaseFailed, Code, Mode, Worker
from flopwatch.measure.machine import read_machine, toolchain_versions
from flopwatch.measure.nvml import Watch
from flopwatch.model import Case, Choice, from_json, to_json
from flopwatch.verdict import Side

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evidence.edits import Change
    from flopwatch.measure.protocol import Compiled

T = TypeVar("T")
#: Of each change. Five pairs have 32 sign vectors: the interval that they give holds with 94 %. What is planted costs
#: more than 1 % or nothing that a rule should speak of, and pairs of such kernels err by 0.1 %.
PAIRS = 5
#: At once, while nothing is timed.
WORKERS = max((os.cpu_count() or 1) // 2, 1)
_DEFAULT_DEVICE = "h200"


def main(arguments: list[str]) -> None:
    """Do what is asked for."""
    take_plain_kernels()  # changes are planted into these
    parser = argparse.ArgumentParser(
        prog="python -m evidence.static_calibration",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    compiling, measuring = verbs.add_parser("compile"), verbs.add_parser("measure")
    for options, known in ((compiling, PLANTED.values()), (measuring, REGRESSIONS)):
        options.add_argument("out", type=Path, metavar="OUT.json", help="what it has of other names is kept")
        names = tuple(each.name for each in known)
        options.add_argument("--only", type=_names, default=names, metavar="NAME,...", help=", ".join(PLANTED))
        options.add_argument("--resume", action="store_true", help="leave out the names that the file has")
    compiling.add_argument("--device", default=_DEFAULT_DEVICE, help="the GPU to compile for")
    measuring.add_argument("--pairs", type=int, default=PAIRS, help=f"of each change; {PAIRS} if not given")
    measuring.add_argument("--seconds", type=float, help="begin nothing that would not be done by then")
    verbs.add_parser("docs")
    chosen = parser.parse_args(arguments)
    command = " ".join(["python -m evidence.static_calibration", *arguments])
    try:
        if chosen.verb == "compile":
            compile_planted(chosen.out, chosen.only, device=chosen.device, resume=chosen.resume)
        elif chosen.verb == "measure":
            budget = Budget(seconds=chosen.seconds)
            measure_planted(
                chosen.out, chosen.only, command=command, pairs=chosen.pairs, budget=budget, resume=chosen.resume
            )
        else:
            static_document.write()
    except FlopwatchError as error:
        sys.exit(str(error))


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """The checkout whose HEAD is edited.

    Attributes:
        root: its folder.
        commit: HEAD.
        kernels: git's name of the folder of kernels there; two commits that have the same were calibrated alike.
        config: its settings.
    """

    root: Path
    commit: str
    kernels: str
    config: Config

    @classmethod
    def here(cls) -> Repository:
        """Return the one that this file is in."""
        root = git.repository_root(Path(__file__).parent)
        return cls(
            root=root,
            commit=git.resolve("HEAD", cwd=root),
            kernels=git.git("rev-parse", f"HEAD:{KERNELS}", cwd=root),
            config=load_config(root),
        )

    def edited(self, changes: Sequence[Change], stack: contextlib.ExitStack) -> Path:
        """Check HEAD out into a temporary folder, and edit it."""
        tree = stack.enter_context(checkout(self.commit, self.config, root=self.root))
        for change in changes:
            change.apply(tree)
        return tree

    def code(self, tree: Path, device: str) -> Code:
        """Return what a worker imports of a checkout."""
        return Code(
            benchmarks=tree / self.config.benchmarks,
            tree=tree,
            source=self.config.source,
            packages=self.config.packages,
            device=device,
        )


def compile_planted(out: Path, names: Sequence[str], *, device: str = _DEFAULT_DEVICE, resume: bool = False) -> None:
    """Compile the kernels of the planted cases with each change, and without any; write down their facts.

    Raises:
        UsageError: the file has other kernels, or was compiled otherwise.
        UndecidedError: a case cannot be compiled.
    """
    repository = Repository.here()
    found = _kept(out, Compilation)
    versions = toolchain_versions()
    if found is None:
        found = Compilation(
            commit=repository.commit, kernels=repository.kernels, device=device, versions=versions, date=_today()
        )
    _require_equal(out, found.origin, (repository.kernels, device, *sorted(versions.items())))
    bases = sorted({case for name in names for case in PLANTED[name].cases} - found.base_launches.keys())
    waiting = [name for name in names if not (resume and name in found.head_launches)]
    with contextlib.ExitStack() as stack:
        trees = {name: repository.edited(PLANTED[name].changes, stack) for name in waiting}
        jobs = {name: (repository.code(tree, device), PLANTED[name].cases) for name, tree in trees.items()}
        if bases:
            jobs[""] = (repository.code(repository.edited((), stack), device), tuple(bases))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(WORKERS))
        tasks = {pool.submit(_compile, *job): name for name, job in jobs.items()}
        for task in concurrent.futures.as_completed(tasks):
            compiled = task.result()
            found = found.added(
                tasks[task],
                {case: [replace(fact, compile_seconds={}) for fact in each.facts] for case, each in compiled.items()},
                {case: each.traffic for case, each in compiled.items()},
            )
            found = replace(found, commit=repository.commit, date=_today())
            _write(out, found.compact())
            sys.stdout.write(f"compiled {tasks[task] or 'what is at HEAD'}\n")
            sys.stdout.flush()


def _compile(code: Code, cases: Sequence[str]) -> dict[str, Compiled]:
    with Worker(Mode.STATIC, code) as worker:
        declared = {entry.case.id: entry.case for entry in worker.hello.declared}
        try:
            return {name: worker.compile(_declared(declared, name)) for name in cases}
        except CaseFailed as error:
            raise UndecidedError("a case cannot be compiled", why=str(error)) from None


def _declared(declared: dict[str, Case], name: str) -> Case:
    if name not in declared:
        raise UsageError(f"the suites declare no {name}", todo="name one that they do in evidence/regressions.py")
    return declared[name]


@dataclass(kw_only=True)
class Budget:
    """How long all of it may take, and the longest that a step has taken so far."""

    seconds: float | None = None
    longest: float = 0.0
    begun: float = field(default_factory=time.monotonic)

    def has_time(self) -> bool:
        """Tell whether another step would be done in time."""
        return self.seconds is None or time.monotonic() - self.begun + self.longest < self.seconds

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Take the time of a step."""
        begun = time.monotonic()
        yield
        self.longest = max(self.longest, time.monotonic() - begun)


def measure_planted(
    out: Path, names: Sequence[str], *, command: str, pairs: int, budget: Budget, resume: bool = False
) -> None:
    """Measure what each change costs, in pairs of processes that take turns, and write it down as it ends.

    Raises:
        MachineError: there is no GPU, or it is busy.
        UsageError: the file is of other kernels, or of another machine.
    """
    repository = Repository.here()
    found = _kept(out, Measurement)
    known = {each.name for each in found.slowdowns} if found and resume else set()
    waiting = [name for name in names if name not in known]
    with contextlib.ExitStack() as stack:
        base = repository.edited((), stack)
        planted: dict[str, Sides] = {}
        for name in waiting:
            tree = repository.edited(PLANTED[name].changes, stack)
            planted[name] = stack.enter_context(
                Sides(repository.config, device=_DEFAULT_DEVICE, base_tree=base, head_tree=tree)
            )
            planted[name].start_nurseries()  # they import beside each other, and touch no GPU
        if not planted:
            return
        with planted[waiting[0]].worker(Mode.GPU, Arm.BASE) as worker:
            hello = worker.hello
        if hello.gpu_uuid is None:
            raise MachineError("there is no GPU", todo="measure where there is one; compile needs none")
        cases = {entry.case.id: entry.case for entry in hello.declared}
        with Watch(hello.gpu_uuid) as watch:
            machine = read_machine(watch.gpu(), hello.versions)
            if found is None:
                found = Measurement(
                    commit=repository.commit, kernels=repository.kernels, date=_today(), machine=machine
                )
            _require_equal(out, found.origin, Measurement.origin_of(repository.kernels, machine))
            fitness.require(fitness.before(watch.gpu(), watch.snapshot()))
            jobs = [(sides, _declared(cases, PLANTED[name].cases[0])) for name, sides in planted.items()]
            _compile_ahead(jobs)
            tuned: dict[Case, tuple[Choice, ...]] = {}
            for name, (sides, case) in zip(planted, jobs, strict=True):
                if not budget.has_time():
                    sys.stdout.write(f"no time for {name} and what is after it; go on with --resume\n")
                    break
                with budget.step():
                    slowdown = _measure(name, case, sides, watch, pairs=pairs, tuned=tuned)
                found = found.added(slowdown, command=command, commit=repository.commit, date=_today())
                _write(out, found, indent=1)
                sys.stdout.write(f"{name}: {slowdown.text}, {slowdown.seconds:.0f} s\n")
                sys.stdout.flush()


def _compile_ahead(jobs: Sequence[tuple[Sides, Case]]) -> None:
    """Fill Triton's cache, many at once; what is chosen meanwhile is forgotten, and failures come back later."""
    arms = [(sides, Arm.HEAD, case) for sides, case in jobs]
    arms += [(sides, Arm.BASE, case) for case, sides in {case: sides for sides, case in jobs}.items()]

    def tune(job: tuple[Sides, Arm, Case]) -> None:
        sides, arm, case = job
        with sides.worker(Mode.GPU, arm) as worker, contextlib.suppress(CaseFailed):
            worker.tune(case)

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(tune, arms))


def _measure(
    name: str, case: Case, sides: Sides, watch: Watch, *, pairs: int, tuned: dict[Case, tuple[Choice, ...]]
) -> Slowdown:
    begun = time.monotonic()
    empty = Slowdown(name=name, case=case.id)
    try:
        if case not in tuned:
            with sides.worker(Mode.GPU, Arm.BASE) as worker:
                tuned[case] = worker.tune(case)
        with sides.worker(Mode.GPU, Arm.HEAD) as worker:
            head = worker.tune(case)
            numbers = worker.numbers(case, pins=head)
    except CaseFailed as error:
        return replace(empty, failure=str(error).splitlines()[0], seconds=time.monotonic() - begun)
    verdict = CaseVerdict(case=case, base=Side(choices=tuned[case]), head=Side(choices=head))
    measured = Pairs(
        sides=sides,
        verdicts={case: verdict},
        watch=watch,
        observer=Observer(),
        toss=lambda: bool(secrets.randbits(1)),
        stage="calibration",
    )
    logs = measured.measure([case], pairs)
    return replace(
        empty,
        base_seconds=measured.medians(case, Arm.BASE)[0],
        head_seconds=measured.medians(case, Arm.HEAD)[0],
        log_ratios=tuple(log.log_ratios[case.id] for log in logs if case.id in log.log_ratios),
        base_choices=tuple(choice.config for choice in tuned[case]),
        head_choices=tuple(choice.config for choice in head),
        max_diff_eps=numbers.max_diff_eps,
        clocks=measured.clocks(case),
        failure=measured.given_up(case),
        unfit=measured.unfit(),
        seconds=time.monotonic() - begun,
    )


def _names(text: str) -> tuple[str, ...]:
    """Read names of what is planted."""
    names = text.split(",")
    if unknown := [name for name in names if name not in PLANTED]:
        raise argparse.ArgumentTypeError(f"nothing that is called {unknown[0]!r} is planted: {', '.join(PLANTED)}")
    return tuple(names)


def _kept(out: Path, record: type[T]) -> T | None:
    if not out.exists():
        return None
    try:
        return from_json(out.read_bytes(), record)
    except msgspec.DecodeError as error:
        raise UsageError(f"{out} has something else", why=str(error), todo="name another file") from None


def _write(out: Path, found: Compilation | Measurement, *, indent: int = 0) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(to_json(found, indent=indent) + b"\n")


def _require_equal(out: Path, kept: object, now: object) -> None:
    if kept != now:
        raise UsageError(
            f"{out} is of other kernels or of another machine",
            why=f"it has {kept}, and this would be {now}",
            todo="name another file",
        )


def _today() -> str:
    return dt.datetime.now(tz=dt.UTC).date().isoformat()


if __name__ == "__main__":
    main(sys.argv[1:])
