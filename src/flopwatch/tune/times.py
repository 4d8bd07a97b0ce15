"""Time, in two passes: one set of samples chooses, and another one says how much that is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from flopwatch.compare.pairs import Pairs
from flopwatch.compare.result import ComparedCase, Contender, Speed
from flopwatch.errors import MachineError
from flopwatch.gate.numbers import SEEDS
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import CaseFailed, Mode
from flopwatch.model import eps_of, worst_of
from flopwatch.tune.client import in_config
from flopwatch.tune.elimination import Elimination
from flopwatch.tune.result import By, Regret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flopwatch.measure.client import Worker
    from flopwatch.model import Case
    from flopwatch.tune.elimination import Rule
    from flopwatch.tune.result import Candidate, TunedCase
    from flopwatch.tune.subjects import Subject


@dataclass(kw_only=True)
class Rounds(Pairs):
    """Processes in each of which a candidate and what it is held against take turns; a coin says which is asked first.

    A case is known by the candidate's, its configuration included.
    """

    together: bool = True

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to be measured."""
        return bool(self.interrupted or self.lost)

    def round(self, number: int, cases: Mapping[Case, ComparedCase]) -> dict[Case, float]:
        """Time each candidate in one fresh process; return its log(seconds / seconds of the other)."""
        self.cases = dict(cases)
        self.observer.step(f"round {number}: {len(cases)} configurations are left")
        try:
            (log,) = self.measure(list(cases), 1)
        except KeyboardInterrupt:
            self.interrupted = True
            return {}
        except MachineError as error:
            self.lost = str(error.what)
            return {}
        return {case: log.log_ratios[case.id] for case in cases if case.id in log.log_ratios}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the autotuner chooses in its first run, or why there is no such choice."""

    config: str = ""
    reason: str = ""


def ask_tuner(rounds: Rounds, subjects: Sequence[Subject]) -> dict[Case, Asked]:
    """Return what the autotuner chooses for each case."""
    found = {}
    with rounds.sides.worker(Mode.GPU, Arm.HEAD) as worker:
        for subject in subjects:
            found[subject.case] = _choice(worker, subject)
    return found


def check_numbers(
    rounds: Rounds, subject: Subject, candidates: Sequence[Candidate], ceiling_eps: float
) -> tuple[Candidate, ...]:
    """Run each candidate that is to be timed on several seeds; what is wrong or fails is not timed."""
    with rounds.sides.worker(Mode.GPU, Arm.HEAD) as worker:
        return tuple(
            candidate
            if candidate.pruned
            else replace(candidate, pruned=_wrong(worker, in_config(subject.case, candidate.config), ceiling_eps))
            for candidate in candidates
        )


def check_providers(rounds: Rounds, subject: Subject, providers: Sequence[str], ceiling_eps: float) -> dict[Case, str]:
    """Run the case by other providers on several seeds; return those that are wrong or fail, with the reason."""
    if not providers:
        return {}
    with rounds.sides.worker(Mode.GPU, Arm.HEAD) as worker:
        found = {peer: _wrong(worker, peer, ceiling_eps) for peer in (_peer(subject.case, name) for name in providers)}
    return {peer: reason for peer, reason in found.items() if reason}


def choose(rounds: Rounds, tuned: Sequence[TunedCase], rule: Rule) -> tuple[TunedCase, ...]:
    """Search all cases at once, a process a round: the first pass.

    Args:
        rounds: measures.
        tuned: the cases with their candidates, those that are not to be timed pruned, and their current choice.
        rule: when candidates are dropped, and when the search ends.
    """
    searches = [_Search(case, rule) for case in tuned]
    while not rounds.stopped:
        wanted = {case: compared for search in searches for case, compared in search.wanted().items()}
        if not wanted:
            break
        number = 1 + max(search.elimination.rounds for search in searches if search.wanted())
        log_ratios = rounds.round(number, wanted)
        if not rounds.stopped:
            for search in searches:
                search.tell(log_ratios)
    return tuple(search.case if rounds.stopped else search.found(rounds.causes) for search in searches)


def estimate(
    rounds: Rounds,
    tuned: Sequence[TunedCase],
    pairs: int,
    providers: Sequence[str] = (),
    wrong: Mapping[Case, str] = MappingProxyType({}),
) -> tuple[TunedCase, ...]:
    """Time each choice afresh against what is chosen without a search: the second pass.

    Args:
        rounds: measures.
        tuned: the cases with their choice.
        pairs: fresh processes.
        providers: others of the suite that each choice is held against.
        wrong: those that are not, with the reason.
    """
    matches = {case.case: _matches(case, providers) for case in tuned if case.chosen is not None}
    rounds.cases = {
        compared.head.case: compared
        for found in matches.values()
        for _, compared in found
        if compared is not None and compared.head.case not in wrong
    }
    chose, rounds.logs, rounds.stage = rounds.logs, [], "estimate"
    rounds.seconds.clear()  # a rule's configuration may have been a candidate, which was held against another
    if rounds.cases:
        rounds.measure_all(pairs)
    found = tuple(
        _with_regrets(rounds, case, matches[case.case], wrong) if case.case in matches else case for case in tuned
    )
    rounds.logs = [*chose, *rounds.logs]
    return found


class _Search:
    """The first pass of one case."""

    def __init__(self, case: TunedCase, rule: Rule) -> None:
        assert case.current is not None  # noqa: S101 - the caller asked the tuner
        self.case = case
        self._places = [place for place, one in enumerate(case.candidates) if not one.pruned]
        configs = [case.candidates[place].config for place in self._places]
        self._cases = [in_config(case.case, config) for config in configs]
        self._current = configs.index(case.current)
        self.elimination = Elimination(len(configs), self._current, rule)
        self._dropped: dict[int, int] = {}

    def wanted(self) -> dict[Case, ComparedCase]:
        """Return the candidates of the next round, each against the current choice."""
        if self.elimination.is_over:
            return {}
        current = self._cases[self._current]
        return {self._cases[one]: _match(self.case, current, self._cases[one]) for one in self.elimination.left}

    def tell(self, log_ratios: Mapping[Case, float]) -> None:
        """Take the times of a round in which this case was, if it was."""
        if self.elimination.is_over:
            return
        known = {one: log_ratios[case] for one, case in enumerate(self._cases) if case in log_ratios}
        dropped = self.elimination.tell(known)
        self._dropped |= dict.fromkeys(dropped, self.elimination.rounds)

    def found(self, causes: Mapping[Case, Sequence[str]]) -> TunedCase:
        """Return the case with its choice, what the first pass says of each candidate, and why some have no time."""
        typical, candidates = self.elimination.typical, list(self.case.candidates)
        for one, place in enumerate(self._places):
            candidates[place] = replace(
                candidates[place],
                log_ratio=None if math.isnan(typical[one]) else float(typical[one]),
                rounds=self.elimination.times(one),
                dropped=self._dropped.get(one),
            )
        chosen = self.elimination.choose()
        return replace(
            self.case,
            candidates=tuple(candidates),
            chosen=candidates[self._places[chosen]].config,
            first_pass=float(typical[chosen]),
            rounds=self.elimination.rounds,
            notes=tuple(
                f"{candidates[place].name} fails while it is timed ({causes[case][-1]})"
                for place, case in zip(self._places, self._cases, strict=True)
                if causes.get(case)
            ),
        )


def _choice(worker: Worker, subject: Subject) -> Asked:
    try:
        choices = [choice for choice in worker.tune(subject.case) if choice.kernel == subject.tunable.kernel]
    except CaseFailed as error:
        return Asked(reason=f"fails ({str(error).splitlines()[0]})")
    configs = {choice.config for choice in choices}
    if len(configs) > 1:
        return Asked(reason=f"launches {subject.tunable.kernel} in {len(configs)} configurations, by its tuner's key")
    return Asked(config=configs.pop()) if configs else Asked(reason="launches no autotuned kernel on this GPU")


def _wrong(worker: Worker, case: Case, ceiling_eps: float) -> str:
    try:
        numbers = worst_of([worker.numbers(case, seed=seed) for seed in SEEDS])
    except CaseFailed as error:
        return f"fails ({str(error).splitlines()[0]})"
    if not numbers.finite:
        return "returns NaN or infinity"
    return (
        f"is wrong: error {eps_of(numbers):.3g} eps, ceiling {ceiling_eps:g}" if eps_of(numbers) > ceiling_eps else ""
    )


def _match(case: TunedCase, base: Case, head: Case) -> ComparedCase:
    return ComparedCase(
        base=Contender(case=base),
        head=Contender(case=head),
        flops=case.flops,
        bytes_moved=case.bytes_moved,
        ceiling_eps=0.0,  # numbers were checked before
    )


def _matches(case: TunedCase, providers: Sequence[str]) -> list[tuple[Regret, ComparedCase | None]]:
    """Say what a choice is held against; what is the same as the choice needs no time."""
    assert case.chosen is not None  # noqa: S101 - asked by the caller
    chosen = in_config(case.case, case.chosen)
    found: list[tuple[Regret, ComparedCase | None]] = []
    for by, config in ((By.AUTOTUNER, case.current or ""), (By.FIRST, case.first)):
        other = _match(case, chosen, in_config(case.case, config))
        found.append((Regret(by=by, config=config), other if config not in {"", case.chosen} else None))
    found += [(Regret(by=By.PROVIDER, name=name), _match(case, chosen, _peer(case.case, name))) for name in providers]
    return found


def _with_regrets(
    rounds: Rounds,
    case: TunedCase,
    matches: Sequence[tuple[Regret, ComparedCase | None]],
    wrong: Mapping[Case, str],
) -> TunedCase:
    regrets: list[Regret] = []
    seconds: float | None = None
    notes = list(case.notes)
    for regret, compared in matches:
        if compared is None or compared.head.case in wrong:
            regrets.append(regret)
            notes += [f"{regret.name} {wrong[compared.head.case]}"] if compared else []
            continue
        timed = rounds.timed(compared)
        seconds = timed.base.seconds if seconds is None else seconds
        regrets.append(replace(regret, seconds=timed.head.seconds, speed=_turned(timed.speed)))
        if timed.reason:
            notes.append(f"{regret.name or regret.by.value} {timed.reason}")
    regrets = [replace(regret, seconds=seconds) if regret.config == case.chosen else regret for regret in regrets]
    return replace(case, regrets=tuple(regrets), seconds=seconds, notes=tuple(notes))


def _peer(case: Case, name: str) -> Case:
    return replace(case, values=(*case.values[:-1], name))


def _turned(speed: Speed | None) -> Speed | None:
    """Return the speed of base in units of head's."""
    if speed is None:
        return None
    return Speed(
        estimate=-speed.estimate,
        lower=None if speed.upper is None else -speed.upper,
        upper=None if speed.lower is None else -speed.lower,
        pairs=speed.pairs,
    )
