"""Which kernel, variant and configuration of head is compared with which of base.

Names decide where both sides have them. What is gone from base is paired with what is new on head where something
speaks for it: the same code, or most of the same names below.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from flopwatch.model import KernelFacts

    #: Facts that share a name.
    Facts: TypeAlias = Sequence[KernelFacts]
    #: What speaks for a pair, more where it is larger; None against it.
    Likeness: TypeAlias = tuple[int, ...] | None

#: Of what two kernels or two variants consist of, so much is the same if they are one under two names.
_LIKE = 0.5


def match_kernels(base: Facts, head: Facts) -> Iterator[tuple[Facts, Facts]]:
    """Yield the facts of one kernel on one device, of both sides; those of a side are empty where it has none.

    A kernel that is gone is the new one that has code of it, or the same variants in the same configurations.
    """
    return _matched(base, head, lambda fact: (fact.kernel, fact.device), _kernel_likeness)


def match_variants(base: Facts, head: Facts) -> Iterator[tuple[Facts, Facts]]:
    """Yield the facts of one variant of a kernel, likewise.

    A variant that is gone is the new one that has code of it, or arguments of the same types.
    """
    return _matched(base, head, lambda fact: fact.variant, _variant_likeness)


def match_configs(base: Facts, head: Facts) -> Iterator[tuple[Facts, Facts]]:
    """Yield the fact of one configuration of a variant, likewise.

    A configuration that is gone is the new one that has the same code, or differs in one setting; or, of those that are
    launched outside the tuner's trials, the most similar.
    """
    return _matched(base, head, lambda fact: fact.config, _config_likeness)


def differing_settings(base: str, head: str) -> int:
    """Count the settings of two configurations that differ, or are in one of them only.

    >>> differing_settings("BLOCK_M=64,num_stages=3,num_warps=4", "BLOCK_M=64,num_stages=1")
    2
    """
    before, after = _settings(base), _settings(head)
    return len(before.keys() | after.keys()) - len(before.items() & after.items())


def _matched(
    base: Facts, head: Facts, name: Callable[[KernelFacts], Any], likeness: Callable[[Facts, Facts], Likeness]
) -> Iterator[tuple[Facts, Facts]]:
    old, new = _grouped(base, name), _grouped(head, name)
    renamed = _renamed(
        {key: facts for key, facts in old.items() if key not in new},
        {key: facts for key, facts in new.items() if key not in old},
        likeness,
    )
    for key in sorted(old):
        yield old[key], new.get(renamed.get(key, key), ())
    for key in sorted(new.keys() - old.keys() - set(renamed.values())):
        yield (), new[key]


def _grouped(facts: Facts, name: Callable[[KernelFacts], Any]) -> dict[Any, list[KernelFacts]]:
    groups: dict[Any, list[KernelFacts]] = {}
    for fact in facts:
        groups.setdefault(name(fact), []).append(fact)
    return groups


def _renamed(
    gone: dict[Any, list[KernelFacts]],
    fresh: dict[Any, list[KernelFacts]],
    likeness: Callable[[Facts, Facts], Likeness],
) -> dict[Any, Any]:
    """Give each name that is gone the new one that is most like it, the best pairs first."""
    candidates = [
        (tuple(-value for value in like), old, new)
        for old, before in gone.items()
        for new, after in fresh.items()
        if (like := likeness(before, after)) is not None
    ]
    pairs: dict[Any, Any] = {}
    taken = set()
    for _, old, new in sorted(candidates):
        if old not in pairs and new not in taken:
            pairs[old] = new
            taken.add(new)
    return pairs


def _kernel_likeness(base: Facts, head: Facts) -> Likeness:
    if base[0].device != head[0].device:
        return None
    if same := len(_codes(base) & _codes(head)):
        return 1, same
    old, new = ({(fact.variant, fact.config) for fact in facts} for facts in (base, head))
    return _share(len(old & new), max(len(old), len(new)))


def _variant_likeness(base: Facts, head: Facts) -> Likeness:
    if same := len(_codes(base) & _codes(head)):
        return 1, same
    old, new = (Counter(facts[0].variant.split(",")) for facts in (base, head))
    return _share((old & new).total(), max(old.total(), new.total()))


def _share(same: int, of: int) -> Likeness:
    return (0, same) if same >= _LIKE * of else None


def _config_likeness(base: Facts, head: Facts) -> Likeness:
    (old,), (new,) = base, head
    before, after = _settings(old.config), _settings(new.config)
    same = len(before.items() & after.items())
    if _codes(base) & _codes(head):
        return 2, same
    if differing_settings(old.config, new.config) <= 1:
        return 1, same
    return (0, same) if old.chosen and new.chosen else None


def _codes(facts: Facts) -> set[str]:
    return {fact.code_fingerprint for fact in facts} - {""}


@functools.cache  # of the few configurations of a run, each compared with many
def _settings(config: str) -> Mapping[str, str]:
    """Return the settings of a configuration by name.

    >>> _settings("BLOCK_M=64,num_stages=3")
    {'BLOCK_M': '64', 'num_stages': '3'}
    """
    return dict(item.partition("=")[::2] for item in config.split(","))
