"""What changed between the facts of two sides, and how much that matters."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.model import KernelFacts
from flopwatch.static.devices import DEVICES
from flopwatch.static.instructions import WORSE, Finding, instruction_findings
from flopwatch.static.matching import differing_settings, match_configs, match_kernels, match_variants
from flopwatch.static.traffic.findings import OUT_OF_BOUNDS, TRAFFIC_WORSE
from flopwatch.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Whether a kernel does; where it no longer does, that fails.
LOADS = "compiles and fits"
_KERNEL = "kernel"
_CONFIGURATION = "configuration"
_ARGUMENTS = "arguments"
_WORSE = {**WORSE, **TRAFFIC_WORSE}

#: What fails by itself: what no longer compiles or fits does not run, and what leaves its memory is wrong.
FAIL_ALONE = (LOADS, OUT_OF_BOUNDS)
#: What fails where a configuration has all of it; alone, each is a warning. `docs/evidence-static.md` has what these
#: cost on an H200, and a test holds them to it.
FAIL_TOGETHER = (frozenset({"tensor cores", "spills"}),)


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
        if self.fact == _KERNEL:
            return f"{where}: {self.brief}"
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
        if self.fact == OUT_OF_BOUNDS:
            return f"{TRAFFIC_WORSE[self.fact]}: {self.head}"
        if self.fact == _KERNEL:
            return f"was called {self.base}"
        if self.severity is not Severity.NOTE and self.fact in _WORSE:
            return f"{_WORSE[self.fact]}: {moved}"
        return f"{self.fact} {moved}"


def compare_facts(base: Sequence[KernelFacts], head: Sequence[KernelFacts]) -> tuple[FactChange, ...]:
    """Return every difference that a person should see, by kernel, variant and configuration.

    Facts with equal fingerprints are equal, whatever kernel, arguments and configuration are called. Where a name is
    gone and another is new, the facts of the two may be compared with each other (`flopwatch.static.matching`).

    >>> compare_facts([], [])
    ()
    """
    base, head = merge_facts(base), merge_facts(head)
    return tuple(change for old, new in match_kernels(base, head) for change in _compare_kernel(old, new))


def merge_facts(facts: Iterable[KernelFacts]) -> list[KernelFacts]:
    """Name each configuration once; it is chosen where any case chose it."""
    merged: dict[tuple[str, str, str, str], KernelFacts] = {}
    for fact in facts:
        known = merged.setdefault(fact.key, fact)
        if fact.chosen and not known.chosen:
            merged[fact.key] = replace(known, chosen=True)
    return list(merged.values())


def _compare_kernel(base: Sequence[KernelFacts], head: Sequence[KernelFacts]) -> Iterator[FactChange]:
    changes = [change for old, new in match_variants(base, head) for change in _compare_variant(old, new)]
    if changes and base and head and base[0].kernel != head[0].kernel:
        yield _change(head[0], _KERNEL, base[0].kernel, head[0].kernel, Severity.NOTE)
    yield from changes


def _compare_variant(base: Sequence[KernelFacts], head: Sequence[KernelFacts]) -> Iterator[FactChange]:
    lost = any(fact.failure is None for fact in base) and all(fact.failure is not None for fact in head)
    changes = [
        change for old, new in match_configs(base, head) for change in _compare_configs([*old], [*new], lost=lost)
    ]
    if changes and base and head and base[0].variant != head[0].variant:
        yield _change(head[0], _ARGUMENTS, base[0].variant, head[0].variant, Severity.NOTE)
    yield from changes


def _compare_configs(base: list[KernelFacts], head: list[KernelFacts], *, lost: bool) -> Iterator[FactChange]:
    """Compare one configuration, or two of which head has the second instead of the first; `lost` if none fits."""
    match base, head:
        case [before], [after] if before.config == after.config:
            yield from _compare(before, after, lost=True)
        case [before], [after]:
            changes = list(_compare(before, after, lost=lost))
            if changes:
                yield _change(after, _CONFIGURATION, before.config, after.config, Severity.NOTE)
            yield from changes
        case [before], []:
            yield _change(before, _CONFIGURATION, before.config, "", Severity.NOTE)
        case [], [after]:
            yield _change(after, _CONFIGURATION, "", after.config, Severity.NOTE)
            if after.failure is not None:
                yield _change(after, LOADS, "new", _state(after), Severity.WARN)


def _compare(base: KernelFacts, head: KernelFacts, *, lost: bool) -> Iterator[FactChange]:
    """Compare what is in the place of each other; what does not fit any more fails if that is what was `lost`."""
    if base.failure is not None or head.failure is not None:
        if (base.failure is None) != (head.failure is None):
            severity = Severity.NOTE if head.failure is None else Severity.FAIL if lost else Severity.WARN
            yield _change(head, LOADS, _state(base), _state(head), severity)
        return
    if base.code_fingerprint and base.code_fingerprint == head.code_fingerprint:
        return
    findings = [*instruction_findings(base, head), *_number_findings(base, head)]
    worse = {finding.name for finding in findings if finding.worse}
    fails = {name for together in FAIL_TOGETHER if together <= worse for name in together}
    for finding in findings:
        severity = Severity.FAIL if finding.name in fails else Severity.WARN if finding.worse else Severity.NOTE
        yield _change(head, finding.name, finding.base, finding.head, severity)
    if not findings and _tells_code(base, head):
        yield _change(head, "code", base.code_fingerprint, head.code_fingerprint, Severity.NOTE)


def _tells_code(base: KernelFacts, head: KernelFacts) -> bool:
    """Tell whether another fingerprint is other code: it has the kernel's name, and not every ptxas repeats itself."""
    device = DEVICES.get(head.device)
    return base.kernel == head.kernel and (device is None or device.repeats_code)


def _number_findings(base: KernelFacts, head: KernelFacts) -> Iterator[Finding]:
    """Yield the numbers that differ; where several settings do, only spills are worse: other tiles have other needs."""
    alike = differing_settings(base.config, head.config) <= 1
    for fact in _NUMBERS:
        before, after = fact.read(base), fact.read(head)
        if before != after:
            more = 0.0 if before is None or after is None else after - before
            worse = more * fact.worse > 0 and (alike or fact.of_any_tile)
            yield Finding(name=fact.name, base=fact.text(before), head=fact.text(after), worse=worse)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Number:
    """A fact that is a number; `worse` is 1 where more of it is worse, -1 where less is, 0 where neither.

    What is `of_any_tile` is worse whatever the configuration.
    """

    name: str
    read: Callable[[KernelFacts], float | None]
    write: Callable[[float], str] = str
    worse: int = 0
    of_any_tile: bool = False

    def text(self, value: float | None) -> str:
        return "unknown" if value is None else self.write(value)


def _bytes(value: float) -> str:
    return format_bytes(int(value))


_NUMBERS = (
    _Number(name="spills", read=lambda fact: fact.spill_bytes, write=_bytes, worse=1, of_any_tile=True),
    _Number(name="occupancy", read=lambda fact: fact.occupancy, write="{:.1%}".format, worse=-1),
    _Number(name="registers", read=lambda fact: fact.registers),
    _Number(name="shared memory", read=lambda fact: fact.shared_bytes, write=_bytes),
    _Number(name="tensor memory", read=lambda fact: fact.tensor_memory_columns, write="{} columns".format),
    _Number(name="stack", read=lambda fact: fact.stack_bytes, write=_bytes),
    _Number(name="warps", read=lambda fact: fact.num_warps),
    _Number(name="stages", read=lambda fact: fact.num_stages),
)

#: Every fact that may be more than a note.
RULES = (LOADS, OUT_OF_BOUNDS, *WORSE, *(fact.name for fact in _NUMBERS if fact.worse))
RULES += tuple(name for name in TRAFFIC_WORSE if name not in RULES)


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


def _moved_items(base: str, head: str) -> str:
    """Name only what differs between two configurations.

    >>> _moved_items("BLOCK_M=64,num_stages=3,num_warps=8", "BLOCK_M=64,num_stages=1,num_warps=8")
    'num_stages=3 -> num_stages=1'
    """
    old, new = base.split(","), head.split(",")
    gone = ",".join(item for item in old if item not in new)
    fresh = ",".join(item for item in new if item not in old)
    return f"{gone or 'nothing'} -> {fresh or 'nothing'}"
