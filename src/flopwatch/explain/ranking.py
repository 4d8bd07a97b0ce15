"""Which of the changes that the compiler's facts show is the likeliest cause of a slowdown, and what to call it.

The order is shared by the gate's line on a case that got slower and by `flopwatch explain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.static.comparison import FAIL_ALONE, LOADS, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flopwatch.static.comparison import FactChange

#: A change of code that shows in no number.
CODE = "code"
CONFIGURATION = "configuration"
#: What a person changed goes before what came of it, and tells the settings that are facts too.
_BY_HAND = frozenset({CONFIGURATION, "arguments"})
_SETTINGS = frozenset({"warps", "stages"})
#: What warns of the same, the most telling first; what is not in it comes behind.
_TELLING = (
    "out of bounds",
    "launches",
    "dot flops",
    "tensor cores",
    "tensor core format",
    "pipelining",
    "tma loads",
    "double precision",  # a double takes two registers, so that spills are what comes of it
    "spills",
    "local memory",
    "atomics",  # which move memory twice, so that they are the cause and the traffic the effect
    "memory traffic",
    "loads",
    "stores",
    "loop",
    "wave reuse",
    "requested bytes",
    "imbalance",
    "tma stores",
    "occupancy",
    "code size",
)
#: A warning in plain words.
_PLAIN = {
    "launches": "it is launched more often",
    "tensor cores": "it no longer runs on the tensor cores",
    "tensor core format": "it uses slower instructions of the tensor cores",
    "pipelining": "its loads no longer run ahead of the arithmetic",
    "tma loads": "it no longer loads by TMA",
    "tma stores": "it no longer stores by TMA",
    "spills": "its registers spill to local memory",
    "local memory": "it goes through local memory",
    "loads": "its loads are narrower",
    "stores": "its stores are narrower",
    "double precision": "it computes in double precision",
    "loop": "its loops have more instructions",
    "atomics": "it goes through atomics",
    "occupancy": "fewer of its warps are resident",
    "code size": "its code is twice as large, or more",
    "out of bounds": "a launch leaves its tensors",
    "dot flops": "it multiplies more",
    "memory traffic": "it moves more memory",
    "requested bytes": "it asks for more bytes",
    "wave reuse": "programs that run together share less of what they read",
    "imbalance": "its work is spread worse over its programs",
}
#: Of these one side says nothing.
_OF_HEAD_ALONE = frozenset({"out of bounds"})


def ranked(changes: Iterable[FactChange]) -> list[FactChange]:
    """Order changes by how likely each is the cause: what a person changed, then what warns, the most telling first.

    Changes of code that show in no number are left out, and settings that a changed configuration tells anyway.
    """
    told = [change for change in changes if change.fact != CODE]
    if any(change.fact in _BY_HAND for change in told):
        told = [change for change in told if change.fact not in _SETTINGS]
    return sorted(told, key=rank)


def rank(change: FactChange) -> tuple[bool, bool, bool, int]:
    """Return by what a change is ranked, the likeliest cause first; what cannot run at all goes before all."""
    telling = _TELLING.index(change.fact) if change.fact in _TELLING else len(_TELLING)
    cannot_run = change.fact in FAIL_ALONE and change.severity is Severity.FAIL
    return not cannot_run, change.fact not in _BY_HAND, change.severity is Severity.NOTE, telling


def is_suspect(change: FactChange) -> bool:
    """Tell whether a change explains anything by itself: it fails, warns, or is what a person changed."""
    return change.severity is not Severity.NOTE or change.fact in _BY_HAND


def briefs(changes: Iterable[FactChange]) -> list[str]:
    """Write ranked changes, each once, without the kernel's name."""
    return list(dict.fromkeys(brief(change) for change in ranked(changes)))


def brief(change: FactChange) -> str:
    """Write a change without the kernel's name."""
    if change.fact == CONFIGURATION:
        return change.text.partition(": ")[2].removeprefix("configuration changed: ")
    return change.brief


def in_words(kernel: str, changes: Sequence[FactChange]) -> str:
    """Say in a sentence what the likeliest cause is: what was changed by hand, if anything was, and its worst effect.

    Args:
        kernel: whose changes these are.
        changes: at least one that `is_suspect`, in any order.

    >>> from flopwatch.static.comparison import FactChange
    >>> of = {"kernel": "k", "device": "h200", "variant": "", "config": ""}
    >>> stages = FactChange(
    ...     fact="configuration", base="num_stages=3", head="num_stages=1", severity=Severity.NOTE, **of
    ... )
    >>> copies = FactChange(fact="pipelining", base="24 LDGSTS", head="none", severity=Severity.WARN, **of)
    >>> in_words("k", [copies, stages])
    'num_stages=3 -> num_stages=1 in k: its loads no longer run ahead of the arithmetic (24 LDGSTS -> none)'
    >>> in_words("k", [copies])
    'in k its loads no longer run ahead of the arithmetic (24 LDGSTS -> none)'
    """
    suspects = [change for change in ranked(changes) if is_suspect(change)]
    by_hand = [change for change in suspects if change.fact in _BY_HAND]
    effects = [change for change in suspects if change.fact not in _BY_HAND]
    if effects and effects[0].fact == LOADS:
        text = effects[0].head.removeprefix("no ").strip("()")
        effect = f"it no longer compiles or fits ({text})"
    elif effects:
        worst = effects[0]
        moved = worst.head if worst.fact in _OF_HEAD_ALONE else f"{worst.base} -> {worst.head}"
        effect = f"{_PLAIN.get(worst.fact, worst.fact)} ({moved})"
    else:
        effect = ""
    if not by_hand:
        return f"in {kernel} {effect}"
    return f"{brief(by_hand[0])} in {kernel}" + (f": {effect}" if effect else "")
