"""What the compiler makes of a case, which needs no GPU and no pairs: a commit has the one number or the other."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.bisect.judge import Difference, OneRuler, one_case
from flopwatch.bisect.result import Commit, Effect, Outcome, Step
from flopwatch.checkout import checkout
from flopwatch.config import Config
from flopwatch.gate.pairs import Observer
from flopwatch.gate.result import PairLog
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import CaseFailed, Mode
from flopwatch.model import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flopwatch.measure.client import Worker
    from flopwatch.model import KernelFacts

#: Each over the kernels of a case, in the configurations that would run; as asv records them.
FACTS: dict[str, Callable[[Sequence[KernelFacts]], int | None]] = {
    "registers": lambda facts: max((fact.registers for fact in facts if fact.registers is not None), default=None),
    "spills": lambda facts: sum(fact.spill_bytes or 0 for fact in facts),
    "shared_memory": lambda facts: max(
        (fact.shared_bytes for fact in facts if fact.shared_bytes is not None), default=None
    ),
}


@dataclass(kw_only=True)
class CompiledFacts:
    """Compiles commits.

    Attributes:
        config: of the repository.
        device: the GPU to compile for.
        root: the repository.
        suites: what all commits run.
        case: the one that is compiled.
        fact: what of it is compared.
        good: the one end.
        observer: is told how far this is.
        ends: the values at good and bad.
        values: of each commit that was compiled, or why there is none.
        logs: of pairs, of which there are none.
        notes: what else is worth knowing.
    """

    config: Config
    device: str
    root: Path
    suites: Path
    case: Case
    fact: str
    good: Commit
    observer: Observer
    ends: tuple[int, int] = (0, 0)
    values: dict[str, tuple[int | None, str]] = field(default_factory=dict)
    logs: list[PairLog] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def difference(self, bad: Commit) -> Difference:
        """Compile good and bad."""
        found = self.change(bad, self.good)
        if found.value is not None and found.older_value is not None:
            self.ends = found.older_value, found.value
        return found

    def step(self, commit: Commit) -> Step:
        """Compile one commit; it is bad from halfway between good and bad on."""
        value, reason = self._value(commit)
        if value is None:
            return Step(commit=commit, outcome=Outcome.SKIPPED, reason=reason)
        good, bad = self.ends
        outcome = Outcome.BAD if abs(value - bad) <= abs(value - good) else Outcome.GOOD
        return Step(commit=commit, outcome=outcome, value=value)

    def change(self, culprit: Commit, parent: Commit) -> Difference:
        """Compile the culprit and its parent."""
        (older, older_reason), (value, reason) = self._value(parent), self._value(culprit)
        reasons = [f"{name.hash[:12]} {why}" for name, why in ((parent, older_reason), (culprit, reason)) if why]
        differs = older is not None and value is not None and older != value
        return Difference(older_value=older, value=value, differs=differs, reason="; ".join(reasons))

    def so_far(self) -> Effect | None:
        """Return nothing: a compiled fact is known or is not."""
        return None

    def _value(self, commit: Commit) -> tuple[int | None, str]:
        """Return the fact, or why there is none."""
        if commit.hash not in self.values:
            self.observer.step(f"compiling {commit.hash[:12]}")
            with contextlib.ExitStack() as stack:
                tree = stack.enter_context(checkout(commit.hash, self.config, root=self.root))
                sides = OneRuler(self.config, device=self.device, base_tree=tree, head_tree=tree, suites=self.suites)
                worker = stack.enter_context(sides.worker(Mode.STATIC, Arm.HEAD))
                self.values[commit.hash] = compiled_value(worker, self.case, self.fact)
        return self.values[commit.hash]


@contextlib.contextmanager
def open_facts(
    config: Config,
    *,
    device: str,
    root: Path,
    bad_tree: Path,
    case: str,
    fact: str,
    good: Commit,
    bad: Commit,
    observer: Observer,
) -> Iterator[CompiledFacts]:
    """Find the case and compile it at bad, by one worker, which takes seconds to start.

    Raises:
        FlopwatchError: there is no such case.
    """
    suites = bad_tree / config.benchmarks
    sides = OneRuler(config, device=device, base_tree=bad_tree, head_tree=bad_tree, suites=suites)
    with sides.worker(Mode.STATIC, Arm.HEAD) as worker:
        found = one_case(worker.hello, case).case
        observer.step(f"compiling {bad.hash[:12]}")
        value = compiled_value(worker, found, fact)
    yield CompiledFacts(
        config=config,
        device=device,
        root=root,
        suites=suites,
        case=found,
        fact=fact,
        good=good,
        observer=observer,
        values={bad.hash: value},
    )


def compiled_value(worker: Worker, case: Case, fact: str) -> tuple[int | None, str]:
    """Compile a case; return the fact over its kernels as they would be launched, or why there is none."""
    try:
        facts = [found for found in worker.facts(case) if found.chosen]
    except CaseFailed as error:
        return None, f"cannot be compiled ({_brief(str(error))})"
    failure = next((found.failure for found in facts if found.failure is not None), None)
    if failure is not None:
        return None, f"cannot be compiled ({failure.kind}: {_brief(failure.message)})"
    value = FACTS[fact](facts) if facts else None
    return value, "" if value is not None else "launches no Triton kernel"


def _brief(text: str) -> str:
    """Shorten a compiler's message to where and why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"  # noqa: PLR2004 - the first and the last
