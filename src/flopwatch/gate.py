"""The gate: base against head, by static facts, by numbers, and, where there is a GPU, by time in pairs.

A run is a list of steps, each a function that takes what the steps before it found out.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import secrets
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from flopwatch import git
from flopwatch.config import Config, load_config
from flopwatch.errors import SuiteError, UndecidedError
from flopwatch.measure.client import CaseFailed, Mode, Worker
from flopwatch.measure.pair import PairSample, sample_pair
from flopwatch.model import SCHEMA_VERSION, Case, KernelFacts, Mark
from flopwatch.static.comparison import FactChange, Severity, compare_facts, merge_facts
from flopwatch.static.devices import find_device
from flopwatch.stats import PAIRS, estimate
from flopwatch.verdict import CaseVerdict, Side, exit_code, judge_numbers, judge_time, margin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flopwatch.measure.protocol import DeclaredCase, Hello

T = TypeVar("T")
#: A case that a set of pairs leaves undecided gets another, all fresh, up to this many sets in all. About one process
#: in twenty runs one of the attention cases 5 to 30 % slower than the others with the same binary, which spoils a set.
LOOKS = 3
#: Failures that a busy machine can bring about; the case is tried once more.
PERHAPS_BY_ACCIDENT = frozenset({"TimedOut", "WorkerDied", "OutOfMemoryError"})


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOptions:
    """What the user asked for; None chooses."""

    base: str | None = None
    head: str | None = None
    select: str = ""
    device: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Uncovered:
    """A case whose kernels could not be compiled without running: it has no static facts on that side."""

    side: str
    case: Case
    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """All that a gate found out.

    Attributes:
        base: hash of the base commit.
        head: hash of the head commit, or "working tree".
        gpu: the GPU that measured; None where there was none.
        device: the GPU that the static facts were compiled for.
        versions: of Python, torch and Triton.
        facts: what the compiler made of head's kernels.
        base_facts: likewise of base's.
        fact_changes: how they differ.
        verdicts: one a case.
        uncovered: what could not be compiled for the device, with the cause.
    """

    base: str
    head: str
    gpu: str | None
    device: str
    versions: dict[str, str]
    facts: tuple[KernelFacts, ...]
    base_facts: tuple[KernelFacts, ...]
    fact_changes: tuple[FactChange, ...]
    verdicts: tuple[CaseVerdict, ...]
    uncovered: tuple[Uncovered, ...]
    schema_version: int = SCHEMA_VERSION

    @property
    def exit_code(self) -> int:
        """What the process should tell its caller."""
        broken = sum(change.severity is Severity.FAIL for change in self.fact_changes)
        return int(exit_code(self.verdicts, broken_code=broken, undecided_code=len(self.newly_uncovered)))

    @property
    def newly_uncovered(self) -> tuple[Uncovered, ...]:
        """The cases that base could compile without running and head cannot."""
        before = {entry.case for entry in self.uncovered if entry.side == "base"}
        return tuple(entry for entry in self.uncovered if entry.side == "head" and entry.case not in before)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sides:
    """The two checkouts, and how to start a worker on either."""

    config: Config
    device: str
    base_tree: Path
    head_tree: Path

    def worker(self, mode: Mode, tree: Path) -> Worker:
        return Worker(
            mode,
            benchmarks=self.head_tree / self.config.benchmarks,
            tree=tree,
            source=self.config.source,
            packages=self.config.packages,
            device=self.device,
        )

    def pair(self, mode: Mode, stack: contextlib.ExitStack) -> tuple[Worker, Worker]:
        """Start base's and head's worker side by side."""
        workers = [stack.enter_context(self.worker(mode, tree)) for tree in (self.base_tree, self.head_tree)]
        _side_by_side(lambda worker: worker.hello, workers)
        return workers[0], workers[1]


def run_gate(
    options: GateOptions, root: Path, *, progress: Callable[[str], None], toss: Callable[[], bool] | None = None
) -> GateResult:
    """Compare head with base.

    Args:
        options: what to compare.
        root: the repository.
        progress: called with a line for each step.
        toss: a fair coin; which side takes the first turn of each cycle. The operating system's by default.

    Raises:
        FlopwatchError: nothing could be compared.
    """
    toss = toss or (lambda: bool(secrets.randbits(1)))
    config = load_config(root)
    device = find_device(options.device or config.device).key
    base = git.resolve(options.base or git.default_base(config.main, options.head, cwd=root), cwd=root)
    head = git.resolve(options.head, cwd=root) if options.head else None
    with contextlib.ExitStack() as stack:
        progress(f"checking out {base[:8]}" + (f" and {head[:8]}" if head else ""))
        sides = _Sides(
            config=config,
            device=device,
            base_tree=stack.enter_context(git.worktree(base, cwd=root)),
            head_tree=stack.enter_context(git.worktree(head, cwd=root)) if head else root,
        )
        progress(f"compiling for {sides.device}")
        hello, base_facts, head_facts = _static(sides, options.select)
        gpu = hello.gpu
        progress("checking numbers " + ("on the GPU" if gpu else "through the interpreter"))
        verdicts = _numbers(sides, _selected(hello, options.select), gpu=gpu is not None)
        if gpu:
            verdicts = _times(sides, verdicts, progress=progress, toss=toss)
    return GateResult(
        base=base,
        head=head or "working tree",
        gpu=gpu,
        device=sides.device,
        versions=hello.versions,
        facts=head_facts.facts,
        base_facts=base_facts.facts,
        fact_changes=compare_facts(base_facts.facts, head_facts.facts),
        verdicts=verdicts,
        uncovered=base_facts.uncovered + head_facts.uncovered,
    )


def _selected(hello: Hello, select: str) -> tuple[DeclaredCase, ...]:
    """Choose the cases of kernels under test whose name, or whose small case's, has `select` in it.

    Raises:
        SuiteError: head cannot import one of its own suites.
        UndecidedError: there is none.
    """
    if hello.import_failures:
        causes = "; ".join(f"{name}: {cause}" for name, cause in hello.import_failures.items())
        raise SuiteError(
            "a suite cannot be imported on head", why=causes, todo="import it in Python to see the traceback"
        )
    own = [declared for declared in hello.declared if declared.own]
    selected = tuple(
        declared
        for declared in own
        if select.lower() in declared.case.id.lower() or select.lower() in declared.small.id.lower()
    )
    if not selected:
        raise UndecidedError(
            f"no case matches {select!r}" if own else "the suites declare no case",
            why=f"the suites have {len(own)} cases of their own kernels",
            todo="-k takes a part of a case's name, such as Matmul or bfloat16",
        )
    return selected


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compiled:
    """What one side's cases launch, and which of them could not be compiled, with the cause."""

    facts: tuple[KernelFacts, ...]
    uncovered: tuple[Uncovered, ...]


def _static(sides: _Sides, select: str) -> tuple[Hello, _Compiled, _Compiled]:
    """Compile what the cases launch, on both sides."""
    with contextlib.ExitStack() as stack:
        base, head = sides.pair(Mode.STATIC, stack)
        cases = [declared.case for declared in _selected(head.hello, select)]
        sides_of = {id(base): "base", id(head): "head"}
        compiled = _side_by_side(lambda worker: _compile(worker, sides_of[id(worker)], cases), [base, head])
        return head.hello, compiled[0], compiled[1]


def _compile(worker: Worker, side: str, cases: Iterable[Case]) -> _Compiled:
    """Compile every case; kernels that several cases share are listed once."""
    facts: list[KernelFacts] = []
    uncovered = []
    for case in cases:
        try:
            facts += worker.facts(case)
        except CaseFailed as error:
            uncovered.append(Uncovered(side=side, case=case, cause=_first_and_last_line(str(error))))
    return _Compiled(facts=tuple(merge_facts(facts)), uncovered=tuple(uncovered))


def _numbers(sides: _Sides, declared: Sequence[DeclaredCase], *, gpu: bool) -> tuple[CaseVerdict, ...]:
    """Compare every case with its reference on both sides, and judge head by it."""
    ceilings = {
        entry.case if gpu else entry.small: sides.config.max_diff_eps
        if entry.max_diff_eps is None
        else entry.max_diff_eps
        for entry in declared
    }
    with contextlib.ExitStack() as stack:
        workers = sides.pair(Mode.GPU if gpu else Mode.INTERPRET, stack)
        if gpu:  # one GPU: one side at a time
            base_sides, head_sides = (_check(worker, ceilings) for worker in workers)
        else:
            base_sides, head_sides = _side_by_side(lambda worker: _check(worker, ceilings), workers)
    verdicts = []
    for (case, ceiling), base, head in zip(ceilings.items(), base_sides, head_sides, strict=True):
        mark, reason = judge_numbers(base, head, ceiling_eps=ceiling)
        verdicts.append(CaseVerdict(case=case, base=base, head=head, mark=mark, reason=reason))
    return tuple(verdicts)


def _check(worker: Worker, cases: Iterable[Case]) -> list[Side]:
    sides = []
    for case in cases:
        side = _side(worker, case)
        if side.failure is not None and side.failure.kind in PERHAPS_BY_ACCIDENT:
            side = _side(worker, case)  # in a fresh process
        sides.append(side)
    return sides


def _side(worker: Worker, case: Case) -> Side:
    try:
        return Side(numbers=worker.numbers(case))
    except CaseFailed as error:
        return Side(failure=error.failure)


def _first_and_last_line(text: str) -> str:
    """Shorten a compiler's message to where and why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"


def _times(
    sides: _Sides, verdicts: tuple[CaseVerdict, ...], *, progress: Callable[[str], None], toss: Callable[[], bool]
) -> tuple[CaseVerdict, ...]:
    """Measure, in pairs, every case that both sides can run; look again at those that stay undecided."""
    margin = margin_of(sides.config.margin_percent)
    judged = {verdict.case: verdict for verdict in verdicts}
    comparable = [verdict.case for verdict in verdicts if verdict.base.failure is None and verdict.head.failure is None]
    pending = comparable
    for look in range(LOOKS):
        if not pending:
            break
        samples = _sample(sides, pending, note=f"look {look + 1}", progress=progress, toss=toss)
        for case in pending:
            judged[case] = _timed(judged[case], samples.get(case, ()), margin=margin, cases=len(comparable))
        pending = [case for case in pending if judged[case].mark is Mark.UNSURE]
    return tuple(judged.values())


def _sample(
    sides: _Sides, cases: Sequence[Case], *, note: str, progress: Callable[[str], None], toss: Callable[[], bool]
) -> dict[Case, list[PairSample]]:
    """Measure the cases in `PAIRS` fresh pairs of processes, in another order each time."""
    samples: dict[Case, list[PairSample]] = {case: [] for case in cases}
    for number in range(PAIRS):
        progress(f"measuring {len(cases)} cases, {note}, pair {number + 1} of {PAIRS}")
        with contextlib.ExitStack() as stack:
            base, head = sides.pair(Mode.GPU, stack)
            for case in secrets.SystemRandom().sample(list(cases), len(cases)):
                with contextlib.suppress(CaseFailed):  # too few pairs make the case unsure, with the reason
                    samples[case].append(sample_pair(base, head, case, head_first=toss()))
    return samples


def _timed(verdict: CaseVerdict, samples: Sequence[PairSample], *, margin: float, cases: int) -> CaseVerdict:
    """Add what the pairs say; numbers that are broken stay broken, whatever the time."""
    if len(samples) < PAIRS:
        reason = verdict.reason or f"only {len(samples)} of {PAIRS} pairs could be measured"
        return replace(verdict, mark=verdict.mark or Mark.UNSURE, reason=reason)
    log_ratios = tuple(sample.log_ratio for sample in samples)
    effect = estimate(log_ratios, cases=cases, looks=LOOKS)
    mark = verdict.mark if verdict.mark is Mark.BROKEN else judge_time(effect, margin=margin)
    return replace(
        verdict,
        base=replace(verdict.base, seconds=statistics.median(sample.base_seconds for sample in samples)),
        head=replace(verdict.head, seconds=statistics.median(sample.head_seconds for sample in samples)),
        mark=mark,
        effect=effect,
        method=samples[0].method,
        log_ratios=log_ratios,
    )


def _side_by_side(ask: Callable[[Worker], T], workers: Sequence[Worker]) -> list[T]:
    with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(ask, worker) for worker in workers]
        try:
            return [future.result() for future in futures]
        except BaseException:  # an interrupt must not wait for all remaining cases
            for worker in workers:
                worker.abandon()
            raise
