"""What the compiler did differently where a case got slower: a likely cause, by the facts of the kernels it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flopwatch.static.comparison import Severity, compare_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.gate import CaseVerdict, GateResult
    from flopwatch.model import Case, Choice, KernelFacts
    from flopwatch.static.comparison import FactChange

#: Changes beyond this many are no cause but a rewrite.
MAX_CHANGES = 5
#: torch's names of what Triton's variants call differently.
_DTYPES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_SEVERITIES = list(Severity)
#: What a person changed goes before what came of it, and tells the settings that are facts too.
_BY_HAND = frozenset({"configuration", "arguments"})
_SETTINGS = frozenset({"warps", "stages"})
#: What warns of the same, the most telling first; what is not in it comes behind.
_TELLING = (
    "tensor cores",
    "tensor core format",
    "pipelining",
    "tma loads",
    "spills",
    "local memory",
    "loads",
    "stores",
    "double precision",
    "loop",
    "tma stores",
    "barriers",
    "occupancy",
    "code size",
)
#: A change of code that shows in no number.
CODE = "code"


def likely_causes(result: GateResult, verdict: CaseVerdict) -> tuple[str, ...]:
    """Say what changed in the kernels that a case runs, a line each; empty where that is not known.

    Which kernels these are is known of those that are autotuned, by the choices of both sides; others are taken for the
    case's where they are called like its suite.
    """
    lines = []
    for kernel in _kernels(result, verdict):
        base = _facts(result.base_facts, kernel, verdict.case, _configs(verdict.base.choices, kernel))
        head = _facts(result.facts, kernel, verdict.case, _configs(verdict.head.choices, kernel))
        if not base or not head:
            continue
        changes = _worst_first(compare_facts(base, head))
        if changes:
            more = f"; and {len(changes) - MAX_CHANGES} more" if len(changes) > MAX_CHANGES else ""
            lines.append(f"{kernel}: {'; '.join(changes[:MAX_CHANGES])}{more}")
        elif not _codes(head) - _codes(base):
            lines.append(f"{kernel} is compiled to the same code: look at how it is launched, and at the host's code")
    return tuple(lines)


def _kernels(result: GateResult, verdict: CaseVerdict) -> list[str]:
    """Return the kernels that a case runs, as far as that is known."""
    chosen = {choice.kernel for choice in (*verdict.base.choices, *verdict.head.choices)}
    tuned = {choice.kernel for other in result.verdicts for choice in (*other.base.choices, *other.head.choices)}
    suite = verdict.case.suite.lower()
    alike = {
        fact.kernel
        for fact in result.facts
        if fact.kernel not in tuned and fact.kernel.lower().replace("_", "").startswith(suite)
    }
    return sorted(chosen | alike)


def _configs(choices: Sequence[Choice], kernel: str) -> list[dict[str, str]]:
    """Return the settings that the tuner chose for each launch of a kernel; none where it has no tuner."""
    chosen = [choice.config.split(", ") for choice in choices if choice.kernel == kernel]
    return [dict(item.split(": ", 1) for item in config if ": " in item) for config in chosen]


def _facts(
    facts: Sequence[KernelFacts], kernel: str, case: Case, configs: Sequence[dict[str, str]]
) -> list[KernelFacts]:
    """Return the facts of a kernel in the chosen configurations, for the case's dtype where it names one."""
    dtypes = [f"*{_DTYPES[value]}" for value in case.values if value in _DTYPES]
    return [
        replace(fact, chosen=True)
        for fact in facts
        if fact.kernel == kernel
        and fact.failure is None
        and (not dtypes or any(fact.variant.startswith(dtype) for dtype in dtypes))
        and (not configs or any(_agrees(fact.config, config) for config in configs))
    ]


def _agrees(compiled: str, chosen: dict[str, str]) -> bool:
    """Tell whether a configuration that was compiled is the one that the tuner names; each has settings of its own.

    >>> _agrees("BLOCK=64,EVEN=True,num_warps=4", {"BLOCK": "64", "num_warps": "4", "maxnreg": "None"})
    True
    >>> _agrees("BLOCK=64,EVEN=True,num_warps=4", {"BLOCK": "64", "num_warps": "8"})
    False
    """
    settings = dict(item.split("=", 1) for item in compiled.split(",") if "=" in item)
    return all(settings.get(name, value) == value for name, value in chosen.items())


def _worst_first(changes: Sequence[FactChange]) -> list[str]:
    """Write each change once, without the kernel's name, which heads the line."""
    told = [change for change in changes if change.fact != CODE]
    if not told and changes:
        return ["other code, of equal registers, spills and shared memory"]
    if any(change.fact in _BY_HAND for change in told):
        told = [change for change in told if change.fact not in _SETTINGS]
    ranked = sorted(told, key=_rank)
    return list(dict.fromkeys(_brief(change) for change in ranked))


def _rank(change: FactChange) -> tuple[bool, int, int]:
    telling = _TELLING.index(change.fact) if change.fact in _TELLING else len(_TELLING)
    return change.fact not in _BY_HAND, _SEVERITIES.index(change.severity), telling


def _brief(change: FactChange) -> str:
    if change.fact == "configuration":
        return change.text.partition(": ")[2].removeprefix("configuration changed: ")
    return change.brief


def _codes(facts: Sequence[KernelFacts]) -> set[str]:
    return {fact.code_fingerprint for fact in facts}
