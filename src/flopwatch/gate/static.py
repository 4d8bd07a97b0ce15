"""The first step: compile what both sides launch, and find out which cases are identical."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flopwatch.errors import SuiteError, UndecidedError
from flopwatch.gate.result import Uncovered
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, Worker, side_by_side
from flopwatch.measure.protocol import DeclaredCase, Hello
from flopwatch.model import Case, KernelFacts
from flopwatch.static.comparison import merge_facts
from flopwatch.static.devices import find_device
from flopwatch.static.identity import CaseIdentity, is_same
from flopwatch.static.tree import tree_identity

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledSide:
    """What one side's cases launch, and which of them could not be compiled, with the cause."""

    facts: tuple[KernelFacts, ...] = ()
    identities: dict[Case, CaseIdentity] = field(default_factory=dict)
    uncovered: tuple[Uncovered, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticFindings:
    """What is known before anything runs.

    Attributes:
        hello: what head's suites declare.
        declared: the cases that were selected.
        base: what was compiled of base.
        head: likewise.
        identical: the cases whose both sides run the very same.
    """

    hello: Hello
    declared: tuple[DeclaredCase, ...]
    base: CompiledSide
    head: CompiledSide
    identical: frozenset[Case]


def find_static(sides: Sides, select: str) -> StaticFindings:
    """Compile the selected cases on both sides; on one, where the code under test is the same text but for comments.

    Raises:
        SuiteError: head cannot import one of its own suites.
        UndecidedError: no case is selected.
    """
    same_tree = len({_tree(sides, arm) for arm in Arm}) == 1
    with contextlib.ExitStack() as stack:
        if same_tree:
            head = stack.enter_context(sides.worker(Mode.STATIC, Arm.HEAD))
            declared = select_cases(head.hello, select)
            compiled = _compile(head, Arm.HEAD, [entry.case for entry in declared])
            return StaticFindings(
                hello=head.hello,
                declared=declared,
                base=replace(
                    compiled, uncovered=tuple(replace(entry, side=Arm.BASE.value) for entry in compiled.uncovered)
                ),
                head=compiled,
                identical=frozenset(entry.case for entry in declared),
            )
        base, head = sides.both(Mode.STATIC, stack)
        declared = select_cases(head.hello, select)
        cases = [entry.case for entry in declared]
        arms = {base: Arm.BASE, head: Arm.HEAD}
        base_side, head_side = side_by_side(lambda worker: _compile(worker, arms[worker], cases), [base, head])
        nothing = CaseIdentity(cause="not compiled")
        identical = frozenset(
            case
            for case in cases
            if compiled_for_this_gpu(head.hello.compute_capability, sides.device)
            and is_same(base_side.identities.get(case, nothing), head_side.identities.get(case, nothing))
        )
        return StaticFindings(hello=head.hello, declared=declared, base=base_side, head=head_side, identical=identical)


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


def _tree(sides: Sides, arm: Arm) -> str:
    return tree_identity(sides.trees[arm] / sides.config.source, sides.config.packages)


def _compile(worker: Worker, arm: Arm, cases: Iterable[Case]) -> CompiledSide:
    """Compile every case; kernels that several cases share are listed once."""
    facts: list[KernelFacts] = []
    identities: dict[Case, CaseIdentity] = {}
    uncovered = []
    for case in cases:
        try:
            compiled = worker.compile(case)
        except CaseFailed as error:
            uncovered.append(Uncovered(side=arm.value, case=case, cause=_first_and_last_line(str(error))))
            continue
        facts += compiled.facts
        if compiled.identity is not None:
            identities[case] = compiled.identity
    return CompiledSide(facts=tuple(merge_facts(facts)), identities=identities, uncovered=tuple(uncovered))


def _first_and_last_line(text: str) -> str:
    """Shorten a compiler's message to where and why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
