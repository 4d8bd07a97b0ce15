"""What autotuned kernels run in on both sides, and whether a difference is a change of the code.

A tuner times each candidate once. Of two that are nearly as fast it takes the one in this process and the other in the
next; tuned once more, both sides of a clean change repeat themselves one time in four. One such change was called
slower by 1.85 % (attention of 29 us, whose two best candidates the tuner had timed 1 % apart; H200, 2026-11-22). So the
choices of both sides take turns, on each side in two processes of it, and each side runs what is faster there.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Mode, side_by_side
from flopwatch.measure.pair import sample_pair
from flopwatch.model import Case, Choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

#: Pairs of processes of one side in which both choices take turns; each choice is slot 0 in half of them.
TRIALS = 2
#: Choices as close as this, as a log ratio, are a tie. The error of a pair is 0.2 % at most, so that one side finds a
#: choice plainly slower and the other side finds it plainly faster only where the code differs.
TIE = 0.004
UNSTABLE = (
    "unstable tuning: the tuners chose differently, but taking turns one choice does for both sides, and both run it"
)

#: In which configurations the launches of a case run.
Choices: TypeAlias = tuple[Choice, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """What both sides of a case are to run in, and what is to be noted: that it is the same after all."""

    base: Choices
    head: Choices
    notes: tuple[str, ...] = ()


def settle(sides: Sides, base: Mapping[Case, Choices], head: Mapping[Case, Choices]) -> dict[Case, Settled]:
    """Find out about cases whose sides chose differently which choice is faster on each side.

    What is a tie on one side is left to the other, and to base where it is one on both. A side for which the other's
    choice is no candidate, or that fails in it, keeps its own.

    Args:
        sides: start the workers.
        base: what base's tuner chose.
        head: what head's tuner chose.
    """
    differing = [case for case in base if case in head and configs_of(base[case]) != configs_of(head[case])]
    own = {Arm.BASE: base, Arm.HEAD: head}
    others = {
        arm: {case: with_choices_of(own[other][case], own[arm][case]) for case in differing}
        for arm, other in ((Arm.BASE, Arm.HEAD), (Arm.HEAD, Arm.BASE))
    }
    keeps = {arm: _keeps_own(sides, arm, own[arm], others[arm]) for arm in Arm}
    found = {}
    for case in differing:
        by_base, by_head = keeps[Arm.BASE][case], keeps[Arm.HEAD][case]
        if by_base is None:
            by_base = not by_head
        if by_head is None:
            by_head = not by_base
        settled = Settled(
            base=(base if by_base else others[Arm.BASE])[case], head=(head if by_head else others[Arm.HEAD])[case]
        )
        alike = configs_of(settled.base) == configs_of(settled.head)
        found[case] = replace(settled, notes=(UNSTABLE,)) if alike else settled
    return found


def _keeps_own(
    sides: Sides, arm: Arm, own: Mapping[Case, Choices], others: Mapping[Case, Choices]
) -> dict[Case, bool | None]:
    """Tell of each case whether its own choice is faster on this side than the other's; None where it is a tie."""
    open_cases = [case for case in others if configs_of(others[case]) != configs_of(own[case])]
    log_ratios: dict[Case, list[float]] = {case: [] for case in open_cases}
    failed = set(others) - set(open_cases)
    for trial in range(TRIALS if open_cases else 0):
        with contextlib.ExitStack() as stack:
            zero, one = (stack.enter_context(sides.worker(Mode.GPU, arm)) for _ in range(2))
            side_by_side(lambda worker: worker.wake(), (zero, one))
            for case in open_cases:
                pins = (own[case], others[case]) if trial % 2 else (others[case], own[case])
                try:
                    sample = sample_pair((zero, one), case, pins=pins)
                except CaseFailed:
                    failed.add(case)
                    continue
                log_ratios[case].append(sample.log_ratio if trial % 2 else -sample.log_ratio)
    return {case: True if case in failed else _is_positive(log_ratios[case]) for case in others}


def _is_positive(log_ratios: Sequence[float]) -> bool | None:
    """Tell whether the mean is beyond a tie.

    >>> _is_positive([0.018, 0.019]), _is_positive([0.001, 0.003]), _is_positive([-0.009, -0.010])
    (True, None, False)
    """
    mean = statistics.fmean(log_ratios)
    return None if abs(mean) < TIE else mean > 0


def configs_of(choices: Iterable[Choice]) -> dict[tuple[str, str], str]:
    """Return in which configuration each kernel runs, by its name and its tuner's key."""
    return {(choice.kernel, choice.key): choice.config for choice in choices}


def with_choices_of(other: Choices, own: Choices) -> Choices:
    """Return a side's launches in the configurations that the other side chose, as far as they are candidates here.

    >>> tuned = (Choice(kernel="k", config="wide", timings_us={"wide": 10.0, "tall": 10.1}),)
    >>> with_choices_of((Choice(kernel="k", config="tall"),), tuned)[0].config
    'tall'
    """
    configs = [(choice, config_of(choice, other, own)) for choice in own]
    return tuple(
        replace(choice, config=config) if config in choice.timings_us else choice for choice, config in configs
    )


def config_of(choice: Choice, other: Sequence[Choice], own: Sequence[Choice]) -> str:
    """Return in which configuration the other side ran what `choice` is of; "" where that is not known.

    A launch is known by its kernel and key; where both sides have one key of a kernel, by the kernel alone, because
    the tuner of one may make its keys of other arguments.

    >>> choice = Choice(kernel="k", key="8, float16", config="wide")
    >>> config_of(choice, [Choice(kernel="k", key="8", config="tall")], [choice])
    'tall'
    """
    known = {there.key: there.config for there in other if there.kernel == choice.kernel}
    if len(known) == 1 == sum(here.kernel == choice.kernel for here in own):
        return next(iter(known.values()))
    return known.get(choice.key, known.get("", ""))


def changed_choices(base: Sequence[Choice], head: Sequence[Choice]) -> Iterable[str]:
    """Say which kernels run in another configuration than before."""
    launches = Counter(choice.kernel for choice in head)
    for choice in head:
        old = config_of(choice, base, head)
        if old and old != choice.config:
            which = f"{choice.kernel} ({choice.key})" if launches[choice.kernel] > 1 else choice.kernel
            yield f"configuration changed: {which} from {_brief(old, choice.config)}"


def off_pins(pins: Sequence[Choice], base: Sequence[Choice], head: Sequence[Choice]) -> Iterator[str]:
    """Say which kernels do not run in what is pinned for the case, and on which side.

    A tuner can only be made to take a configuration of its own list, and what the pins do not name is tuned.

    >>> tall = Choice(kernel="k", config="tall", timings_us={"tall": 9.0, "flat": 9.5})
    >>> list(off_pins([Choice(kernel="k", config="wide")], [Choice(kernel="k", config="wide")], [tall]))
    ['pinned to no effect on head: k has no configuration wide, and runs in tall']
    """
    wanted = configs_of(pins)
    found: dict[str, list[str]] = {}
    for arm, choices in ((Arm.BASE, base), (Arm.HEAD, head)):
        for choice in choices:
            which = f"{choice.kernel} ({choice.key})" if choice.key else choice.kernel
            config = wanted.get((choice.kernel, choice.key), wanted.get((choice.kernel, "")))
            if config is None and choice.timings_us:
                found.setdefault(f"{which} has no pin, and was tuned", []).append(arm.value)
            elif config not in (None, choice.config):
                text = f"{which} has no configuration {config}, and runs in {choice.config}"
                found.setdefault(text, []).append(arm.value)
    for text, arms in found.items():
        yield f"pinned to no effect on {'either side' if len(arms) > 1 else arms[0]}: {text}"


def _brief(old: str, new: str) -> str:
    """Show only the settings that differ.

    >>> _brief("BLOCK: 64, num_warps: 4, num_ctas: 1", "BLOCK: 128, num_warps: 4, num_ctas: 1")
    'BLOCK: 64 to BLOCK: 128'
    """
    before, after = old.split(", "), new.split(", ")
    gone = ", ".join(item for item in before if item not in after)
    come = ", ".join(item for item in after if item not in before)
    return f"{gone} to {come}"
