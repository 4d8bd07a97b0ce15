"""The first step: compile what both sides launch, and find out which cases are identical."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from flopwatch.errors import SuiteError, UndecidedError
from flopwatch.gate.dropped import dropped_cases, suites_of_base
from flopwatch.gate.result import Uncovered
from flopwatch.gate.shares import Shares
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker, side_by_side
from flopwatch.measure.machine import usable_cores
from flopwatch.measure.protocol import Compiled, DeclaredCase, Hello
from flopwatch.model import Case, KernelFacts
from flopwatch.selection import is_selected
from flopwatch.static.comparison import merge_facts
from flopwatch.static.devices import find_device
from flopwatch.static.identity import CaseIdentity, is_same
from flopwatch.static.launches import Launched, name_apart
from flopwatch.static.tree import tree_identity

if TYPE_CHECKING:
    from collections.abc import Sequence

#: One worker a side. Both compile the same cases in the same order.
Team: TypeAlias = "dict[Arm, Worker]"

#: More do not pay: of the bundled suites' 66 cases, which one worker compiles in 55 s, 8 have 6 s of work each, and 16
#: would be done only 3 s earlier, reckoned from what each case takes (triton 3.7.1, sm_90, an empty cache, 2 cores,
#: 2026-11-21).
MOST_TEAMS = 8
#: A case whose kernels were not compiled before takes 2.3 s (likewise), and is done before another worker has started.
LEAST_CASES_OF_A_TEAM = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledSide:
    """What one side's cases launch, together and by case, and which could not be compiled, with the cause.

    Those of `untuned` call no autotuner.
    """

    facts: tuple[KernelFacts, ...] = ()
    launched: dict[Case, Launched] = field(default_factory=dict)
    identities: dict[Case, CaseIdentity] = field(default_factory=dict)
    uncovered: tuple[Uncovered, ...] = ()
    untuned: frozenset[Case] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticFindings:
    """What is known before anything runs.

    Attributes:
        hello: what head's suites declare.
        declared: the cases that were selected.
        base: what was compiled of base.
        head: likewise.
        identical: the cases whose both sides run the very same.
        untuned: those that call no autotuner on either side, on this GPU.
        notes: what else is worth knowing.
    """

    hello: Hello
    declared: tuple[DeclaredCase, ...]
    base: CompiledSide
    head: CompiledSide
    identical: frozenset[Case]
    untuned: frozenset[Case] = frozenset()
    notes: tuple[str, ...] = ()


def find_static(sides: Sides, select: str) -> StaticFindings:
    """Compile the selected cases on both sides; on one, where the code under test is the same text but for comments.

    Where it is not, what measures on a GPU is imported meanwhile.

    Raises:
        SuiteError: head cannot import one of its own suites.
        UndecidedError: no case is selected.
    """
    with contextlib.ExitStack() as stack:

        def compilers(arm: Arm, teams: int) -> list[Worker]:
            return [firsts[arm], *sides.compilers(arm, teams - 1, stack)]

        before = suites_of_base(sides)
        if before is not None:
            stack.enter_context(before).start()
        # Of each side the first is asked what it runs on, which starts CUDA where there is a GPU.
        firsts = {arm: stack.enter_context(sides.worker(Mode.STATIC, arm)) for arm in Arm}
        firsts[Arm.HEAD].start()
        same_tree = len({_tree(sides, arm) for arm in Arm}) == 1  # takes 0.3 s a side (2026-11-23)
        if same_tree:
            teams: list[Team] = [{Arm.HEAD: head} for head in compilers(Arm.HEAD, teams_for(sys.maxsize))]
        else:
            firsts[Arm.BASE].start()
            most = teams_for(sys.maxsize)
            pairs = zip(compilers(Arm.BASE, most), compilers(Arm.HEAD, most), strict=True)
            sides.start_nurseries()
            teams = [{Arm.BASE: base, Arm.HEAD: head} for base, head in pairs]
        first = teams[0]
        side_by_side(lambda worker: worker.hello, list(first.values()))
        hello = first[Arm.HEAD].hello
        declared = select_cases(hello, select)
        cases = [entry.case for entry in declared]
        needed = teams_for(len(cases))
        compiled = _compile(teams[:needed], cases, identify=not same_tree)
        notes = dropped_cases(before, hello, select)
    head = compiled[Arm.HEAD]
    for_this_gpu = compiled_for_this_gpu(hello.compute_capability, sides.device)
    if same_tree:
        base = replace(head, uncovered=tuple(replace(entry, side=Arm.BASE.value) for entry in head.uncovered))
        identical = frozenset(cases)
    else:
        base = compiled[Arm.BASE]
        nothing = CaseIdentity(cause="not compiled")
        identical = frozenset(
            case
            for case in cases
            if for_this_gpu and is_same(base.identities.get(case, nothing), head.identities.get(case, nothing))
        )
    untuned = base.untuned & head.untuned if for_this_gpu else frozenset()
    return StaticFindings(
        hello=hello, declared=declared, base=base, head=head, identical=identical, untuned=untuned, notes=notes
    )


def teams_for(cases: int) -> int:
    """Choose how many workers compile a side's cases at once, by the cores that this process may use.

    As many for two sides as for one, which makes twice as many processes: they launch the same kernels but for those
    that were changed, and of two workers that come to one kernel the other waits (`flopwatch.static.compile_once`).
    Two cores took 98 s for the bundled suites' 79 cases while each side compiled everything, with a core for each
    worker. Where one module of launches is changed they take 65 to 69 s, and 111 s where all kernels are (`find_static`
    with an empty cache, triton 3.7.1, sm_90, 2026-11-24).
    """
    return max(min(usable_cores(), cases // LEAST_CASES_OF_A_TEAM, MOST_TEAMS), 1)


def compiled_for_this_gpu(compute_capability: tuple[int, int] | None, device: str) -> bool:
    """Tell whether what was compiled for `device` proves anything about the GPU that is there, if one is.

    >>> (
    ...     compiled_for_this_gpu((9, 0), "h200"),
    ...     compiled_for_this_gpu((8, 0), "h200"),
    ...     compiled_for_this_gpu(None, "h200"),
    ... )
    (True, False, True)
    """
    return compute_capability in (None, find_device(device).compute_capability)


def select_cases(hello: Hello, select: str) -> tuple[DeclaredCase, ...]:
    """Choose the cases of kernels under test whose name, or whose small case's, is selected.

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
    selected = tuple(declared for declared in own if is_selected(select, declared.case.id, declared.small.id))
    if not selected:
        raise UndecidedError(
            f"no case matches {select!r}" if own else "the suites declare no case",
            why=f"the suites have {len(own)} cases of their own kernels",
            todo="give a part of a case's name, such as Matmul or bfloat16",
        )
    return selected


def _tree(sides: Sides, arm: Arm) -> str:
    return tree_identity(sides.trees[arm] / sides.config.source, sides.config.packages)


def _compile(teams: Sequence[Team], cases: Sequence[Case], *, identify: bool = True) -> dict[Arm, CompiledSide]:
    """Let every team compile what no other has taken yet; put each side together in the order of the cases."""
    waiting = Shares(cases)
    jobs: dict[Worker, tuple[Arm, _Turns]] = {}
    for team in teams:
        turns = _Turns(waiting, len(team))
        jobs |= {worker: (arm, turns) for arm, worker in team.items()}
    found: dict[Arm, dict[Case, Compiled | Uncovered]] = {arm: {} for arm in teams[0]}

    def work(worker: Worker) -> None:
        arm, turns = jobs[worker]
        try:
            for case in iter(turns.next, None):
                found[arm][case] = _compile_one(worker, arm, case, identify=identify)
            worker.close()  # here and not one after the other: Python takes its time to leave
        except BaseException:
            turns.give_up()
            raise

    side_by_side(work, list(jobs))
    return _put_together({arm: [(case, outcomes[case]) for case in cases] for arm, outcomes in found.items()})


class _Turns:
    """Hands the workers of a team the same cases, the next one when all are done with the one before.

    What host code keeps of earlier cases is part of a case's identity (`flopwatch.static.reached`): two sides can only
    be equal where they compiled the same cases before, whichever these are.
    """

    def __init__(self, waiting: Shares, workers: int) -> None:
        self._waiting = waiting
        self._case: Case | None = None
        self._together = threading.Barrier(workers, action=self._take)

    def next(self) -> Case | None:
        """Wait for the others and return a case; None where there is none left, or another worker gave up."""
        with contextlib.suppress(threading.BrokenBarrierError):
            self._together.wait()
            return self._case
        return None

    def give_up(self) -> None:
        """Let nobody wait for this worker."""
        self._together.abort()

    def _take(self) -> None:
        self._case = self._waiting.take(self)


def _compile_one(worker: Worker, arm: Arm, case: Case, *, identify: bool) -> Compiled | Uncovered:
    try:
        return worker.compile(case, identify=identify)
    except CaseFailed as error:
        return Uncovered(side=arm.value, case=case, cause=first_and_last_line(str(error)))


def _put_together(found: dict[Arm, list[tuple[Case, Compiled | Uncovered]]]) -> dict[Arm, CompiledSide]:
    """Gather what became of each case of each side; kernels that several cases share are listed once."""
    compiled = [
        {case: outcome for case, outcome in outcomes if isinstance(outcome, Compiled)} for outcomes in found.values()
    ]
    named = name_apart(
        *(
            {case: Launched(facts=entry.facts, traffic=entry.traffic) for case, entry in of_side.items()}
            for of_side in compiled
        )
    )
    return {
        arm: CompiledSide(
            facts=tuple(merge_facts(fact for entry in launched.values() for fact in entry.facts)),
            launched=launched,
            identities={case: entry.identity for case, entry in of_side.items() if entry.identity is not None},
            uncovered=tuple(outcome for _, outcome in found[arm] if isinstance(outcome, Uncovered)),
            untuned=frozenset(case for case, entry in of_side.items() if not entry.tunes),
        )
        for arm, of_side, launched in zip(found, compiled, named, strict=True)
    }


def first_and_last_line(text: str) -> str:
    """Shorten a compiler's message to where and why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
