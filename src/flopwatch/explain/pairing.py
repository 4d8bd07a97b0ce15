"""Which of the facts of two sides are to be held against each other for one case."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.explain.ranking import is_suspect, rank, ranked
from flopwatch.model import KernelFacts
from flopwatch.static.comparison import FactChange, compare_facts
from flopwatch.static.matching import match_configs, match_kernels, match_variants
from flopwatch.static.names import function_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.model import Choice


@dataclass(frozen=True, kw_only=True, slots=True)
class FactPair:
    """What became of one kernel in one configuration.

    Attributes:
        base: its facts there; None where base has nothing like it.
        head: likewise.
        changes: how they differ, the likeliest cause first.
    """

    base: KernelFacts | None
    head: KernelFacts | None
    changes: tuple[FactChange, ...] = ()

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return self.either.kernel

    @property
    def either(self) -> KernelFacts:
        """The facts of head, or of base where head has none."""
        fact = self.head or self.base
        assert fact is not None  # noqa: S101 - a pair has a side
        return fact

    @property
    def same_code(self) -> bool:
        """Whether both sides run the same machine code."""
        codes = {fact.code_fingerprint if fact else "" for fact in (self.base, self.head)}
        return len(codes) == 1 and codes != {""}

    @property
    def suspects(self) -> tuple[FactChange, ...]:
        """The changes that can be a cause by themselves; what did not compile on base was not faster there."""
        if self.base is not None and self.base.failure is not None:
            return ()
        return tuple(change for change in self.changes if is_suspect(change))

    @property
    def order(self) -> tuple[object, ...]:
        """By what pairs are ordered: the likeliest cause first; of equals, what is launched before what was tried."""
        worst = min(map(rank, self.suspects), default=(True, True, True, 99))
        launched = any(fact is not None and fact.chosen for fact in (self.base, self.head))
        return (*worst, self.same_code, not launched)


def running(
    launched: Sequence[KernelFacts], trials: Sequence[KernelFacts], choices: Sequence[Choice]
) -> list[KernelFacts]:
    """Return the facts of what a case runs: of tuned kernels as the GPU chose, of all others as they are launched.

    Args:
        launched: what the case launches on a pretended GPU, where the tuner takes the first that fits.
        trials: what its tuner tried there besides.
        choices: what a GPU chose; of a kernel of which none was compiled here, the pretended choice stands.
    """
    configs: dict[str, list[dict[str, str]]] = {}
    for choice in choices:
        items = (item.split(": ", 1) for item in choice.config.split(", ") if ": " in item)
        configs.setdefault(choice.kernel, []).append(dict(items))
    # A GPU's tuner knows functions by name, so that a choice may be of each kernel of its name.
    tuned = [
        fact
        for fact in (*launched, *trials)
        if any(_agrees(fact.config, config) for config in configs.get(function_name(fact.kernel), ()))
    ]
    known = {fact.kernel for fact in tuned}
    untuned = [fact for fact in launched if fact.kernel not in known]
    return [replace(fact, chosen=True) for fact in (*untuned, *tuned)]


def pair_up(
    base: Sequence[KernelFacts], head: Sequence[KernelFacts], *, launches: Sequence[FactChange] = ()
) -> list[FactPair]:
    """Pair each fact of a side with that of the other which is in its place; the likeliest cause first.

    What changed in the `launches` of a kernel is told of the configuration that is launched; where a GPU chose another
    one, of that.

    What is in whose place is found as where facts are compared (`flopwatch.static.matching`). Whatever that leaves over
    of a kernel, such as arguments of quite other types, is paired in order; what has no partner stands alone.

    >>> pair_up([], [])
    []
    """
    pairs = [_pair(old, new) for old, new in _matched(base, head)]
    for change in launches:
        of_kernel = [
            place for place, pair in enumerate(pairs) if pair.head is not None and pair.kernel == change.kernel
        ]
        if of_kernel:
            place = min(of_kernel, key=lambda place: not _is_of(change, pairs[place].either))
            pair = pairs[place]
            pairs[place] = replace(pair, changes=tuple(ranked([*pair.changes, change])))
    return sorted(pairs, key=lambda pair: pair.order)


def _matched(
    base: Sequence[KernelFacts], head: Sequence[KernelFacts]
) -> Iterator[tuple[KernelFacts | None, KernelFacts | None]]:
    for of_base, of_head in match_kernels(base, head):
        left: tuple[list[KernelFacts], list[KernelFacts]] = ([], [])
        for old, new in match_variants(of_base, of_head):
            originals = [{fact.config: fact for fact in side} for side in (old, new)]
            for before, after in match_configs(*([replace(fact, chosen=True) for fact in side] for side in (old, new))):
                pair = [
                    side[fact.config] for side, facts in zip(originals, (before, after), strict=True) for fact in facts
                ]
                if before and after:
                    yield pair[0], pair[1]
                else:
                    left[bool(after)].extend(pair)
        yield from itertools.zip_longest(*left)


def _is_of(change: FactChange, fact: KernelFacts) -> bool:
    return (change.variant, change.config) == (fact.variant, fact.config)


def _pair(base: KernelFacts | None, head: KernelFacts | None) -> FactPair:
    changes: tuple[FactChange, ...] = ()
    if base is not None and head is not None:
        changes = compare_facts([replace(base, chosen=True)], [replace(head, chosen=True)])
    return FactPair(base=base, head=head, changes=tuple(ranked(changes)))


def _agrees(compiled: str, chosen: dict[str, str]) -> bool:
    """Tell whether a configuration that was compiled is the one that the tuner names; each has settings of its own.

    >>> _agrees("BLOCK=64,EVEN=True,num_warps=4", {"BLOCK": "64", "num_warps": "4", "maxnreg": "None"})
    True
    >>> _agrees("BLOCK=64,EVEN=True,num_warps=4", {"BLOCK": "64", "num_warps": "8"})
    False
    """
    settings = dict(item.split("=", 1) for item in compiled.split(",") if "=" in item)
    return all(settings.get(name, value) == value for name, value in chosen.items())
