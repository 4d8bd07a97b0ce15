"""What the compiler had, at each level, of every kernel that cases launch; and how that differs from another commit."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.config import load_config
from flopwatch.errors import UndecidedError
from flopwatch.explain.diff import hunks, unified
from flopwatch.explain.listing import listing
from flopwatch.explain.opening import Opened, opened
from flopwatch.explain.pairing import FactPair, pair_up
from flopwatch.gate.sides import Arm
from flopwatch.gate.static import select_cases
from flopwatch.measure.client import CaseFailed, Worker, side_by_side
from flopwatch.model import Case, KernelFacts
from flopwatch.static.devices import find_device
from flopwatch.static.ir import levels_of
from flopwatch.static.launches import Launched, name_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from flopwatch.gate.pairs import Observer

#: Of a file's name, but for its digest and its level.
MAX_NAME = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class IrOptions:
    """What the user asked for; None chooses.

    Attributes:
        select: cases whose name has this in it.
        levels: of the device's compiler; all of them where empty.
        device: the GPU to compile for.
        base: commit to compare the working tree with; None compares nothing.
        everything: configurations that the autotuner only tries, too.
    """

    select: str
    levels: tuple[str, ...] = ()
    device: str | None = None
    base: str | None = None
    everything: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelIr:
    """One kernel in one configuration at one level.

    Attributes:
        name: for a file, without the level; no other configuration of any kernel has it.
        kernel: the name of its function.
        config: its configuration at head, or at base where head has nothing like it.
        level: such as "ttgir".
        text: what the compiler had on head; "" where it launches nothing like it.
        diff: from base's to head's, as a unified diff; "" where both say the same, or nothing was compared.
    """

    name: str
    kernel: str
    config: str
    level: str
    text: str
    diff: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class IrResult:
    """All that was found.

    Attributes:
        base: hash of the commit that was compared with; "" where none was.
        device: the GPU that was compiled for.
        cases: by name, those that were selected.
        kernels: each level of each kernel.
        failures: what could not be compiled, a line each.
    """

    base: str
    device: str
    cases: tuple[str, ...]
    kernels: tuple[KernelIr, ...]
    failures: tuple[str, ...] = ()


def run_ir(options: IrOptions, root: Path, *, observer: Observer | None = None) -> IrResult:
    """Compile the selected cases of the working tree, and of `options.base` where that is named.

    Raises:
        UsageError: the device or a level is unknown.
        UndecidedError: no case has that name, or nothing of any could be compiled.
        FlopwatchError: a side is not to be had.
    """
    device = find_device(options.device or load_config(root).device)
    levels = levels_of(device, options.levels)
    both = options.base is not None
    with opened(root, base=options.base, head=None, device=device.key, observer=observer, both=both) as sides:
        cases = [entry.case for entry in select_cases(sides.workers[Arm.HEAD].hello, options.select)]
        found = _both(sides, cases, levels, everything=options.everything)
        failures = [line for side in found.values() for line in side.failures]
        pairs = pair_up(*([*found[arm].facts.values()] if arm in found else [] for arm in Arm))
        kernels = [_kernel(pair, level, found, sides) for pair in _sorted(pairs) for level in levels]
    shown = tuple(kernel for kernel in kernels if kernel is not None)
    if not shown:
        raise UndecidedError(
            "no kernel was compiled",
            why="; ".join(failures) or "the selected cases launch no Triton kernel",
            todo="look into the cause, or choose other cases",
        )
    names = tuple(case.id for case in cases)
    return IrResult(base=sides.base, device=sides.device.key, cases=names, kernels=shown, failures=tuple(failures))


@dataclass(kw_only=True, slots=True)
class _Side:
    """What a side has: the facts of its kernels by key, and their texts by that and the level."""

    facts: dict[tuple[str, str, str], KernelFacts]
    texts: dict[tuple[str, str, str, str], str]
    failures: list[str]


def _both(sides: Opened, cases: Sequence[Case], levels: Sequence[str], *, everything: bool) -> dict[Arm, _Side]:
    arms = {worker: arm for arm, worker in sides.workers.items()}
    compiled = dict(
        zip(
            arms,
            side_by_side(lambda worker: _compile(worker, arms[worker], cases, everything=everything), list(arms)),
            strict=True,
        )
    )
    named = dict(zip(arms, name_apart(*(side.launched for side in compiled.values())), strict=True))
    found = side_by_side(
        lambda worker: _collect(worker, arms[worker], compiled[worker], named[worker], levels), list(arms)
    )
    return dict(zip(arms.values(), found, strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compiled:
    """What the cases of a side launch, and which cannot be compiled, a line each."""

    launched: dict[Case, Launched]
    failures: list[str]


def _compile(worker: Worker, arm: Arm, cases: Sequence[Case], *, everything: bool) -> _Compiled:
    found = _Compiled(launched={}, failures=[])
    for case in cases:
        try:
            facts = worker.compile(case).facts
        except CaseFailed as error:
            found.failures.append(f"{arm.value}: {case.id}: {error}")
        else:
            found.launched[case] = Launched(facts=tuple(fact for fact in facts if everything or fact.chosen))
    return found


def _collect(
    worker: Worker, arm: Arm, compiled: _Compiled, named: Mapping[Case, Launched], levels: Sequence[str]
) -> _Side:
    """Ask for each kernel once, of the first case that launches it, by the name that it has there."""
    side = _Side(facts={}, texts={}, failures=[*compiled.failures])
    failed = set()
    for case, launched in compiled.launched.items():
        names = dict(zip(map(_key, launched.facts), named[case].facts, strict=True))
        for fact in names.values():
            if fact.failure is not None and _key(fact) not in failed:
                failed.add(_key(fact))
                side.failures.append(f"{arm.value}: {fact.kernel} [{fact.config}]: {fact.failure.kind}")
        fresh = {key: fact for key, fact in names.items() if fact.failure is None and _key(fact) not in side.facts}
        if not fresh:
            continue
        try:
            for text in worker.ir(case, list(fresh), levels):
                fact = fresh[text.kernel, text.variant, text.config]
                side.texts[*_key(fact), text.level] = text.text
        except CaseFailed as error:
            side.failures.append(f"{arm.value}: {case.id}: {error}")
        else:
            side.facts |= {_key(fact): fact for fact in fresh.values()}
    return side


def _key(fact: KernelFacts) -> tuple[str, str, str]:
    return (fact.kernel, fact.variant, fact.config)


def _sorted(pairs: Iterable[FactPair]) -> list[FactPair]:
    return sorted(pairs, key=lambda pair: pair.either.key)


def _kernel(pair: FactPair, level: str, found: dict[Arm, _Side], sides: Opened) -> KernelIr | None:
    texts: dict[Arm, str] = {}
    for arm, fact in ((Arm.BASE, pair.base), (Arm.HEAD, pair.head)):
        if fact is not None and arm in found:
            texts[arm] = found[arm].texts.get((*_key(fact), level), "")
    if not any(texts.values()):
        return None
    name = file_name(pair.either)
    diff = ""
    if len(sides.workers) > 1:
        before, after = (listing(level, texts.get(arm, "")) for arm in Arm)
        names = [
            f"{arm}/{file_name(fact)}.{level}" if fact else "/dev/null"
            for arm, fact in zip("ab", (pair.base, pair.head), strict=True)
        ]
        diff = unified(hunks(level, before, after), base=names[0], head=names[1])
    return KernelIr(
        name=name,
        kernel=pair.kernel,
        config=pair.either.config,
        level=level,
        text=texts.get(Arm.HEAD, ""),
        diff=diff,
    )


def file_name(fact: KernelFacts) -> str:
    """Return a name for the file of a kernel, that tells its first type and its configuration, and is no other's.

    >>> from flopwatch.model import KernelFacts
    >>> fact = KernelFacts(kernel="k", device="h200", variant="*fp16:16", config="BLOCK=64,num_warps=4", chosen=True)
    >>> file_name(fact)
    'k-fp16-BLOCK64-num_warps4-387b13'
    """
    digest = hashlib.sha256(repr(fact.key).encode()).hexdigest()[:6]
    dtype = fact.variant.split(",")[0].split(":")[0]
    items = [item.replace("=", "") for item in fact.config.split(",")]
    text = re.sub(r"[^A-Za-z0-9_.]+", "-", "-".join([fact.kernel, dtype.lstrip("*"), *items])).strip("-")
    return f"{text[:MAX_NAME].rstrip('-')}-{digest}"
