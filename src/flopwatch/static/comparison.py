"""What changed between the facts of two sides, and how much that matters."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.model import KernelFacts
from flopwatch.static.instructions import WORSE, instruction_findings
from flopwatch.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_LOADS = "compiles and fits"
_CONFIGURATION = "configuration"
_ARGUMENTS = "arguments"


class Severity(enum.Enum):
    """How much a change matters."""

    FAIL = "fail"
    WARN = "warn"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class FactChange:
    """One fact that differs between base and head.

    Attributes:
        kernel: the name of the kernel.
        device: the key of the device it was compiled for.
        variant: the types of its arguments.
        config: the configuration at head, or at base where head has it no more.
        fact: what changed: "registers", "spills", "tensor cores", "configuration" and so on.
        base: its value there, with its unit; empty where there was none.
        head: likewise.
        severity: how much it matters.
    """

    kernel: str
    device: str
    variant: str
    config: str
    fact: str
    base: str
    head: str
    severity: Severity

    @property
    def text(self) -> str:
        """One line for a person."""
        where = f"{self.kernel} on {self.device}"
        if self.fact == _CONFIGURATION:
            if not self.head:
                return f"{where}: configuration removed: {self.base}"
            if not self.base:
                return f"{where}: configuration added: {self.head}"
            return f"{where}: configuration changed: {_moved_items(self.base, self.head)}"
        if self.fact == _ARGUMENTS:
            return f"{where}: arguments {self.base} -> {self.head}"
        return f"{where} [{self.config}]: {self.brief}"

    @property
    def brief(self) -> str:
        """What changed, without where.

        >>> change = FactChange(
        ...     kernel="k",
        ...     device="h200",
        ...     variant="",
        ...     config="",
        ...     fact="tensor cores",
        ...     base="4 HGMMA",
        ...     head="none, 4096 FFMA",
        ...     severity=Severity.WARN,
        ... )
        >>> change.brief
        'lost its tensor cores: 4 HGMMA -> none, 4096 FFMA'
        """
        moved = f"{self.base} -> {self.head}"
        if self.severity is Severity.WARN and self.fact in WORSE:
            return f"{WORSE[self.fact]}: {moved}"
        return f"{self.fact} {moved}"


def compare_facts(base: Sequence[KernelFacts], head: Sequence[KernelFacts]) -> tuple[FactChange, ...]:
    """Return every difference that a person should see, by kernel, variant and configuration.

    Facts with equal fingerprints are equal. Where the configuration that is launched differs, the facts of the two
    are compared with each other, as are those of a kernel whose arguments changed.

    >>> compare_facts([], [])
    ()
    """
    base, head = merge_facts(base), merge_facts(head)
    changes: list[FactChange] = []
    for old, new in _groups(base, head):
        changes += _compare_group(old, new)
    return tuple(changes)


def merge_facts(facts: Iterable[KernelFacts]) -> list[KernelFacts]:
    """Name each configuration once; it is chosen where any case chose it."""
    merged: dict[tuple[str, str, str, str], KernelFacts] = {}
    for fact in facts:
        known = merged.setdefault(fact.key, fact)
        if fact.chosen and not known.chosen:
            merged[fact.key] = replace(known, chosen=True)
    return list(merged.values())


def _groups(base: list[KernelFacts], head: list[KernelFacts]) -> Iterator[tuple[list[KernelFacts], list[KernelFacts]]]:
    """Yield what to compare with each other: the facts of one kernel, device and variant on each side.

    Where exactly one variant of a kernel is gone and exactly one is new, its arguments changed, and they are one.
    """
    for kernel in sorted({(fact.kernel, fact.device) for fact in (*base, *head)}):
        old = _by_variant(base, kernel)
        new = _by_variant(head, kernel)
        gone, fresh = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        if len(gone) == 1 and len(fresh) == 1:
            yield old.pop(gone[0]), new.pop(fresh[0])
        for variant in sorted(old.keys() | new.keys()):
            yield old.get(variant, []), new.get(variant, [])


def _by_variant(facts: list[KernelFacts], kernel: tuple[str, str]) -> dict[str, list[KernelFacts]]:
    variants: dict[str, list[KernelFacts]] = {}
    for fact in facts:
        if (fact.kernel, fact.device) == kernel:
            variants.setdefault(fact.variant, []).append(fact)
    return variants


def _compare_group(base: list[KernelFacts], head: list[KernelFacts]) -> Iterator[FactChange]:
    if base and head and base[0].variant != head[0].variant:
        yield _change(head[0], _ARGUMENTS, base[0].variant, head[0].variant, Severity.NOTE)
    old = {fact.config: fact for fact in base}
    new = {fact.config: fact for fact in head}
    for config in sorted(old.keys() & new.keys()):
        yield from _compare(old[config], new[config])
    replaced = _replaced(old, new)
    for before, after in replaced:
        yield _change(after, _CONFIGURATION, before.config, after.config, Severity.NOTE)
        yield from _compare(before, after)
    paired = {fact.config for pair in replaced for fact in pair}
    for config in sorted(old.keys() - new.keys() - paired):
        yield _change(old[config], _CONFIGURATION, config, "", Severity.NOTE)
    for config in sorted(new.keys() - old.keys() - paired):
        yield _change(new[config], _CONFIGURATION, "", config, Severity.NOTE)
        if new[config].failure is not None:
            yield _change(new[config], _LOADS, "new", _state(new[config]), Severity.WARN)


def _replaced(old: dict[str, KernelFacts], new: dict[str, KernelFacts]) -> list[tuple[KernelFacts, KernelFacts]]:
    """Pair each configuration that is no longer chosen with the most similar one that is chosen instead."""
    before = {config for config, fact in old.items() if fact.chosen}
    after = {config for config, fact in new.items() if fact.chosen}
    waiting = sorted(after - before)
    pairs = []
    for config in sorted(before - after):
        if waiting:
            successor = max(waiting, key=lambda other, config=config: len(_items(config) & _items(other)))  # type: ignore[misc] # the default binds the loop's variable
            waiting.remove(successor)
            pairs.append((old[config], new[successor]))
    return pairs


def _compare(base: KernelFacts, head: KernelFacts) -> Iterator[FactChange]:
    if base.failure is not None or head.failure is not None:
        if (base.failure is None) != (head.failure is None):
            severity = Severity.NOTE if head.failure is None else Severity.FAIL
            yield _change(head, _LOADS, _state(base), _state(head), severity)
        return
    if base.code_fingerprint and base.code_fingerprint == head.code_fingerprint:
        return
    findings = list(instruction_findings(base, head))
    for finding in findings:
        severity = Severity.WARN if finding.worse else Severity.NOTE
        yield _change(head, finding.name, finding.base, finding.head, severity)
    changed = [fact for fact in _NUMBERS if fact.read(base) != fact.read(head)]
    for fact in changed:
        before, after = fact.read(base), fact.read(head)
        worse = before is not None and after is not None and (after - before) * fact.worse > 0
        severity = Severity.WARN if worse else Severity.NOTE
        yield _change(head, fact.name, fact.text(before), fact.text(after), severity)
    if not changed and not findings:
        yield _change(head, "code", base.code_fingerprint, head.code_fingerprint, Severity.NOTE)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Number:
    """A fact that is a number; `worse` is 1 where more of it is worse, -1 where less is, 0 where neither."""

    name: str
    read: Callable[[KernelFacts], float | None]
    write: Callable[[float], str] = str
    worse: int = 0

    def text(self, value: float | None) -> str:
        return "unknown" if value is None else self.write(value)


def _bytes(value: float) -> str:
    return format_bytes(int(value))


_NUMBERS = (
    _Number(name="spills", read=lambda fact: fact.spill_bytes, write=_bytes, worse=1),
    _Number(name="occupancy", read=lambda fact: fact.occupancy, write="{:.1%}".format, worse=-1),
    _Number(name="registers", read=lambda fact: fact.registers),
    _Number(name="shared memory", read=lambda fact: fact.shared_bytes, write=_bytes),
    _Number(name="stack", read=lambda fact: fact.stack_bytes, write=_bytes),
    _Number(name="warps", read=lambda fact: fact.num_warps),
    _Number(name="stages", read=lambda fact: fact.num_stages),
)


def _state(fact: KernelFacts) -> str:
    if fact.failure is None:
        return "yes"
    first_line, *_ = fact.failure.message.split("\n")
    return f"no ({fact.failure.kind}: {first_line})"


def _change(fact: KernelFacts, name: str, base: str, head: str, severity: Severity) -> FactChange:
    return FactChange(
        kernel=fact.kernel,
        device=fact.device,
        variant=fact.variant,
        config=fact.config,
        fact=name,
        base=base,
        head=head,
        severity=severity,
    )


def _items(config: str) -> set[str]:
    return set(config.split(","))


def _moved_items(base: str, head: str) -> str:
    """Name only what differs between two configurations.

    >>> _moved_items("BLOCK_M=64,num_stages=3,num_warps=8", "BLOCK_M=64,num_stages=1,num_warps=8")
    'num_stages=3 -> num_stages=1'
    """
    old, new = base.split(","), head.split(",")
    gone = ",".join(item for item in old if item not in new)
    fresh = ",".join(item for item in new if item not in old)
    return f"{gone or 'nothing'} -> {fresh or 'nothing'}"
