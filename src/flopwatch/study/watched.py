"""Watch conclusions of studies in a gate: whether what was true on base is no longer true on head.

`flopwatch.gate.conclusions` tells of the stages and their levels. Every round is a new interpreter: forks of one parent
share its address space and its hash seed, which belong to one side and do not average out over its rounds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flopwatch.errors import FlopwatchError, MachineError, UndecidedError
from flopwatch.gate.choices import settle
from flopwatch.gate.conclusions import (
    CONFIRM,
    CONFIRM_ROUNDS,
    PATH,
    SCREEN,
    SCREEN_ROUNDS,
    Beside,
    Look,
    WatchedConclusion,
    confirm_alpha,
)
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm, Sides
from flopwatch.gate.static import find_static
from flopwatch.measure import fitness
from flopwatch.measure.client import CaseFailed, Mode
from flopwatch.measure.nvml import Watch
from flopwatch.pattern import matches
from flopwatch.selection import OR
from flopwatch.static.tree import tree_identity
from flopwatch.study.decisions import comparisons, verdict_on
from flopwatch.study.declaration import FOLDER, Conclusion
from flopwatch.study.lines import Spot, lay_out, lines_of
from flopwatch.study.result import Measured
from flopwatch.study.run import Rounds, checked, take_rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.config import WatchedClaim
    from flopwatch.measure.protocol import Hello

_STAGES = ((SCREEN, (Arm.HEAD,)), (SCREEN, (Arm.BASE,)), (CONFIRM, (Arm.BASE, Arm.HEAD)))


def watch_conclusions(sides: Sides, gpu_uuid: str, observer: Observer) -> tuple[WatchedConclusion, ...]:
    """Find out what became of the conclusions that the repository watches.

    What goes wrong here leaves a conclusion unsure, and costs the gate nothing that it has found out before.

    Args:
        sides: of the gate.
        gpu_uuid: the GPU that measures.
        observer: is told how far this is.
    """
    config = sides.config
    unknown = [WatchedConclusion(study=claim.study, says=claim.says) for claim in config.conclusions]
    if len({tree_identity(tree / config.source, config.packages) for tree in sides.trees.values()}) == 1:
        return tuple(replace(each, identical=True) for each in unknown)
    found: list[WatchedConclusion] = []
    try:
        with _studies_of(sides) as studies, Watch(gpu_uuid) as watch:
            with studies.worker(Mode.STATIC, Arm.HEAD) as worker:
                hello = worker.hello
            fitness.require(fitness.before(watch.gpu(), watch.snapshot()))
            for claim, each in zip(config.conclusions, unknown, strict=True):
                bench = _Bench(sides=studies, watch=watch, observer=observer)
                start = time.monotonic()
                one = _watched(each, claim, hello, sides, bench)
                found.append(replace(one, seconds=time.monotonic() - start))
    except FlopwatchError as error:
        cause = _told(error)
    except KeyboardInterrupt:
        cause = "interrupted"
    else:
        return tuple(found)
    return (*found, *(replace(each, reason=cause) for each in unknown[len(found) :]))


def _studies_of(sides: Sides) -> Sides:
    config = replace(sides.config, benchmarks=f"{sides.config.benchmarks}/{FOLDER}")
    return Sides(config, device=sides.device, base_tree=sides.trees[Arm.BASE], head_tree=sides.trees[Arm.HEAD])


def _told(error: FlopwatchError | CaseFailed) -> str:
    if isinstance(error, CaseFailed):
        return str(error).splitlines()[0]
    return f"{error.what} ({error.why})" if error.why else error.what


def _watched(
    found: WatchedConclusion, claim: WatchedClaim, hello: Hello, sides: Sides, bench: _Bench
) -> WatchedConclusion:
    """Look at head; where the conclusion does not hold there, at base; where it does there, at both again."""
    try:
        conclusion, spots = _about(claim, hello)
        found = replace(found, line=conclusion.line, percent=conclusion.percent)
        bench.observer.step(f"{found.id}: finding out whether both sides run the same")
        if _is_identical(sides, spots):
            return replace(found, identical=True)
        for stage, arms in _STAGES:
            found = replace(found, looks=(*found.looks, *bench.looks(stage, arms, conclusion, spots)))
            if found.looks[-1].verdict is not PATH[len(found.looks) - 1][2]:
                break
    except (FlopwatchError, CaseFailed) as error:
        return replace(found, reason=_told(error))
    return found


def _about(claim: WatchedClaim, hello: Hello) -> tuple[Conclusion, tuple[Spot, ...]]:
    """Find what a claim is about in its study.

    Raises:
        FlopwatchError: there is no such thing.
    """
    layout = lay_out(hello, suite=claim.study, parameter="", select="")
    said = {conclusion.says: conclusion for conclusion in layout.declaration.conclusions}
    conclusion = said.get(claim.says)
    if conclusion is None:
        raise UndecidedError(f"the study concludes something else: {'; '.join(said) or 'nothing'}")
    lines = {conclusion.line, *lines_of(conclusion, layout.lines)}
    spots = tuple(
        spot
        for spot in layout.spots
        if spot.line in lines and _is_at(spot.at, conclusion.at) and _is_at(spot.at, claim.at)
    )
    if not spots:
        raise UndecidedError(f"none of its points is {' or '.join(claim.at)}")
    return conclusion, spots


def _is_identical(sides: Sides, spots: Sequence[Spot]) -> bool:
    """Tell whether all that is under test is proved to run the very same on both sides."""
    own = [spot.declared.case for spot in spots if spot.declared.own]
    if not own:
        return True
    with _studies_of(sides) as studies:  # of its own: finding out starts what workers are forked from
        return find_static(studies, OR.join(case.id for case in own)).identical.issuperset(own)


def _is_at(at: str, patterns: Sequence[str]) -> bool:
    return any(matches(pattern, at) for pattern in patterns)


@dataclass(kw_only=True)
class _Bench:
    """Measures one conclusion on either side."""

    sides: Sides
    watch: Watch
    observer: Observer
    _measured: dict[Arm, tuple[Measured, ...]] = field(default_factory=dict)

    def looks(self, stage: str, arms: Sequence[Arm], conclusion: Conclusion, spots: Sequence[Spot]) -> list[Look]:
        """Measure rounds of these sides, in turns whose order is drawn anew.

        Raises:
            FlopwatchError: the GPU cannot be trusted, or the line could not be measured.
        """
        for arm in arms:
            if arm not in self._measured:
                ceiling = self.sides.config.max_diff_eps
                self._measured[arm] = checked(self.sides, spots, ceiling, arm=arm)
        if stage == CONFIRM:
            self._settle()
        processes: set[int] = set()
        rounds = {
            arm: Rounds(
                sides=self.sides,
                watch=self.watch,
                observer=self.observer,
                measured=self._measured[arm],
                arm=arm,
                processes=processes,
            )
            for arm in arms
        }
        number = CONFIRM_ROUNDS if stage == CONFIRM else SCREEN_ROUNDS
        sides = " and ".join(arm.value for arm in arms)
        self.observer.step(f"{stage}ing on {sides}, in {number} rounds, whether {conclusion.says}")
        take_rounds(tuple(rounds.values()), number, self.observer)
        return [self._look(stage, arm, rounds[arm], conclusion, spots) for arm in arms]

    def _settle(self) -> None:
        """Let the sides run autotuned kernels in what is faster there, not in what one tuner happened to choose."""
        chosen = {arm: {each.case: each.choices for each in self._measured[arm] if not each.reason} for arm in Arm}
        settled = settle(self.sides, chosen[Arm.BASE], chosen[Arm.HEAD])
        for arm in Arm:
            self._measured[arm] = tuple(
                replace(each, choices=getattr(settled[each.case], arm.value)) if each.case in settled else each
                for each in self._measured[arm]
            )

    def _look(self, stage: str, arm: Arm, rounds: Rounds, conclusion: Conclusion, spots: Sequence[Spot]) -> Look:
        if why := rounds.unfit():
            raise MachineError("the machine is unfit", why=why)
        found = comparisons(conclusion, rounds.timed(""), rounds.taken, list(dict.fromkeys(spot.at for spot in spots)))
        if isinstance(found, str):
            raise UndecidedError(f"on {arm.value} {found}")
        alpha = confirm_alpha(len(self.sides.config.conclusions)) if stage == CONFIRM else None
        return Look(
            stage=stage,
            side=arm.value,
            verdict=verdict_on(found.values(), conclusion.percent, alpha=alpha),
            beside=tuple(Beside(other=other, at=at, log_ratios=tuple(ratios)) for (other, at), ratios in found.items()),
        )
