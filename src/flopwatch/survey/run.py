"""The steps of a survey: what is compiled, what of it is known already, how it compares."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch import git
from flopwatch.checkout import checkout
from flopwatch.config import load_config
from flopwatch.errors import UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm, Sides
from flopwatch.gate.static import select_cases
from flopwatch.model import WORKING_TREE
from flopwatch.static.comparison import compare_facts, merge_facts
from flopwatch.static.devices import find_device
from flopwatch.static.launches import Launched, compare_cases, name_apart
from flopwatch.static.recorder import Autotune
from flopwatch.static.tree import tree_identity
from flopwatch.survey.baseline import baseline_of, drifts, other_compiler, read_baseline, write_text
from flopwatch.survey.lanes import Lanes, Lot
from flopwatch.survey.result import Gap, Held, LaunchWork, Survey
from flopwatch.survey.store import Entry, Store, entry_key, stamps_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flopwatch.config import Config
    from flopwatch.measure.protocol import Hello
    from flopwatch.model import Case, KernelFacts
    from flopwatch.static.comparison import FactChange
    from flopwatch.survey.baseline import Baseline


@dataclass(frozen=True, kw_only=True, slots=True)
class SurveyOptions:
    """What the user asked for.

    Attributes:
        base: commit to compare with; None compares nothing.
        head: commit on trial; None is the working tree.
        select: only cases whose name has this in it.
        devices: the GPUs to compile for; those of the baseline, else the configuration's, where none is named.
        autotune: which configurations of autotuned kernels; None is all, or what the baseline has.
        baseline: file of the facts that are held.
        write: put what is found into it.
    """

    base: str | None = None
    head: str | None = None
    select: str = ""
    devices: tuple[str, ...] = ()
    autotune: Autotune | None = None
    baseline: Path | None = None
    write: bool = False


def run_survey(
    options: SurveyOptions, root: Path, *, observer: Observer | None = None, store: Store | None = None
) -> Survey:
    """Compile every kernel of the selected cases for every device; compare two commits, or hold one against a file.

    Args:
        options: what to compile.
        root: the repository.
        observer: is told how far this is.
        store: what earlier surveys found.

    Raises:
        FlopwatchError: nothing could be compiled.
    """
    start = time.monotonic()
    observer = observer or Observer()
    config = load_config(root)
    held = _held(options)
    autotune = options.autotune or Autotune(held.autotune if held else Autotune.ALL.value)
    names = options.devices or (held.devices if held else ()) or (config.device,)
    devices = tuple(dict.fromkeys(find_device(name).key for name in names))
    base = git.resolve(options.base, cwd=root) if options.base else None
    head = git.resolve(options.head, cwd=root) if options.head else None
    with contextlib.ExitStack() as stack:
        head_tree = stack.enter_context(checkout(head, config, root=root))
        base_tree = stack.enter_context(checkout(base, config, root=root)) if base else head_tree
        work = _Work(config, {Arm.HEAD: head_tree, Arm.BASE: base_tree}, devices, autotune, store or Store())
        hello, cases = work.compile(options.select, observer)
    head_facts = work.facts(Arm.HEAD)
    base_facts = work.facts(Arm.BASE) if base else ()
    gaps = work.gaps(cases, both=base is not None)
    survey = Survey(
        base=base,
        head=head or WORKING_TREE,
        devices=devices,
        autotune=autotune,
        versions=hello.versions,
        cases=len(cases),
        facts=head_facts,
        base_facts=base_facts,
        fact_changes=(*compare_facts(base_facts, head_facts), *work.launch_changes()) if base else (),
        launches=work.launches(),
        gaps=gaps,
        held=_hold(
            options,
            held,
            baseline_of(head_facts, versions=hello.versions, autotune=autotune.value, devices=devices),
            gaps=len(gaps),
        ),
        recalled=work.recalled,
    )
    return replace(survey, seconds=time.monotonic() - start)


class _Work:
    """The lots of a survey, with what is known of them from earlier ones."""

    def __init__(
        self, config: Config, trees: Mapping[Arm, Path], devices: Sequence[str], autotune: Autotune, store: Store
    ) -> None:
        self.config = config
        self.trees = trees
        self.autotune = autotune
        self.store = store
        self.recalled = 0
        self.launched: dict[tuple[Arm, str], dict[Case, Launched]] = {}
        self.started_ns = time.time_ns()
        identities = {arm: tree_identity(tree / config.source, config.packages) for arm, tree in trees.items()}
        self.same = identities[Arm.BASE] == identities[Arm.HEAD]
        self.lots = {(arm, name): self._lot(arm, name) for arm in self._arms() for name in devices}
        self.entries = {place: store.load(self._key(lot)) for place, lot in self.lots.items()}
        for place, entry in self.entries.items():
            if entry is not None:
                self.lots[place].outcomes = {outcome.case: outcome for outcome in entry.outcomes}

    def compile(self, select: str, observer: Observer) -> tuple[Hello, list[Case]]:
        """Compile what is not known; return what head's suites declare, and the cases that are selected.

        Raises:
            FlopwatchError: no worker starts, or no case is selected.
        """
        known = next((entry.hello for (arm, _), entry in self.entries.items() if entry and arm is Arm.HEAD), None)
        cases = None if known is None else _selected(known, select)
        missing = [
            lot for lot in self.lots.values() if cases is None or any(case not in lot.outcomes for case in cases)
        ]
        before = [lot.outcomes.copy() for lot in self.lots.values()]
        if missing:
            observer.step(f"compiling for {', '.join(dict.fromkeys(lot.device.key for lot in missing))}")
            lanes = Lanes(missing, autotune=self.autotune, tell=observer.cases)
            said = lanes.compile(cases, lambda hello: _selected(hello, select))
            known = known or said
            assert known is not None  # noqa: S101 - whoever does not know the cases asks
            cases = cases if cases is not None else _selected(known, select)
            for lot in missing:
                self._keep(lot, known)
        assert known is not None  # noqa: S101 - nothing is missing where it is known
        assert cases is not None  # noqa: S101 - likewise
        self.recalled = sum(case in outcomes for case in cases for outcomes in before)
        found = (
            {case: Launched(facts=lot.outcomes[case].facts, traffic=lot.outcomes[case].traffic) for case in cases}
            for lot in self.lots.values()
        )
        self.launched = dict(zip(self.lots, name_apart(*found), strict=True))
        return known, cases

    def facts(self, arm: Arm) -> tuple[KernelFacts, ...]:
        """Return the facts of a side, each configuration once, sorted."""
        found = [
            fact
            for place in self._places_of(arm)
            for launched in self.launched[place].values()
            for fact in launched.facts
        ]
        return tuple(sorted(merge_facts(found), key=lambda fact: fact.key))

    def launches(self) -> tuple[LaunchWork, ...]:
        """Return what head's launches compute and move, by device and case."""
        return tuple(
            LaunchWork.of(case, traffic)
            for place in self._places_of(Arm.HEAD)
            for case, launched in self.launched[place].items()
            for traffic in launched.traffic
        )

    def launch_changes(self) -> tuple[FactChange, ...]:
        """Return what head's launches do for the worse, of each device."""
        sides = [
            {
                case: launched
                for case, launched in self.launched[place].items()
                if not self.lots[place].outcomes[case].cause
            }
            for arm in (Arm.BASE, Arm.HEAD)
            for place in self._places_of(arm)
        ]
        half = len(sides) // 2
        pairs = zip(sides[:half], sides[half:], strict=True)
        return tuple(change for base, head in pairs for change, _ in compare_cases(base, head))

    def gaps(self, cases: Sequence[Case], *, both: bool) -> tuple[Gap, ...]:
        """Return what could not be compiled without running."""
        return tuple(
            Gap(side=arm.value, device=lot.device.key, case=case, cause=lot.outcomes[case].cause)
            for arm in ((Arm.BASE, Arm.HEAD) if both else (Arm.HEAD,))
            for lot in (self.lots[place] for place in self._places_of(arm))
            for case in cases
            if lot.outcomes[case].cause
        )

    def _arms(self) -> Sequence[Arm]:
        """Return the sides to compile: head alone where base is the same text but for comments."""
        return (Arm.HEAD,) if self.same else (Arm.HEAD, Arm.BASE)

    def _places_of(self, arm: Arm) -> list[tuple[Arm, str]]:
        """Return where the lots of a side are, by device."""
        there = Arm.HEAD if self.same else arm
        return [place for place in self.lots if place[0] is there]

    def _lot(self, arm: Arm, name: str) -> Lot:
        sides = Sides(self.config, device=name, base_tree=self.trees[Arm.BASE], head_tree=self.trees[Arm.HEAD])
        return Lot(arm, find_device(name), sides.code(arm))

    def _key(self, lot: Lot) -> str:
        return entry_key(
            source=self.trees[lot.arm] / self.config.source,
            packages=self.config.packages,
            suites=lot.code.benchmarks,
            device=lot.device.key,
            autotune=self.autotune,
        )

    def _keep(self, lot: Lot, hello: Hello) -> None:
        """Keep what was found of a lot, where the next survey can know that it still holds."""
        if not lot.loaded or hello.import_failures:
            return
        inside = [self.trees[lot.arm] / self.config.source / name.replace(".", "/") for name in self.config.packages]
        stamps = stamps_of(lot.loaded, trees=set(self.trees.values()), inside=[*inside, lot.code.benchmarks])
        if stamps is None or "." in lot.code.benchmarks.name:
            return
        if any(path.endswith(".py") and changed_ns > self.started_ns for path, (_, changed_ns) in stamps.items()):
            return  # perhaps after it was read
        entry = self.entries[lot.arm, lot.device.key]
        self.store.save(
            Entry(
                key=self._key(lot),
                stamps={**(entry.stamps if entry else {}), **stamps},
                hello=replace(hello, gpu=None, gpu_uuid=None, compute_capability=None),
                outcomes=tuple(outcome for outcome in lot.outcomes.values() if not outcome.passing),
            )
        )


def _selected(hello: Hello, select: str) -> list[Case]:
    return [entry.case for entry in select_cases(hello, select)]


def _held(options: SurveyOptions) -> Baseline | None:
    """Read the baseline, where there is one.

    Raises:
        UsageError: there is none that can be read, or the options contradict each other.
    """
    if options.baseline is None:
        if options.write:
            raise UsageError("--write names no file", todo="name it: flopwatch static --baseline FILE --write")
        return None
    if options.base is not None:
        raise UsageError(
            "a baseline stands for BASE",
            why="what is compared is the working tree and the facts that the file holds",
            todo="leave out the commits, or --baseline",
        )
    if not options.write:
        held = read_baseline(options.baseline)
        if options.autotune is not None and options.autotune.value != held.autotune:
            raise UsageError(
                f"{options.baseline} holds the facts of --autotune {held.autotune}",
                todo=f"leave out --autotune {options.autotune.value}, or --write the file anew",
            )
        return held
    if options.select:
        raise UsageError(
            "a baseline has every case", why="-k leaves some out, and their facts would be gone", todo="leave out -k"
        )
    with contextlib.suppress(UsageError):  # one that cannot be read is replaced
        return read_baseline(options.baseline)
    return None


def _hold(options: SurveyOptions, held: Baseline | None, found: Baseline, *, gaps: int) -> Held | None:
    """Compare what was found with the baseline, or write it where anything was."""
    if options.baseline is None:
        return None
    path = str(options.baseline)
    if options.write:
        if found.rows:
            options.baseline.write_text(write_text(found), encoding="utf-8")
        return Held(path=path, written=bool(found.rows))
    assert held is not None  # noqa: S101 - what is not written was read
    if refusal := other_compiler(held, found):
        return Held(path=path, refusal=refusal)
    differing = list(drifts(held, found, partial=bool(options.select)))
    known = [drift for drift in differing if not (gaps and drift.is_gone)]
    if differing and not known:
        return Held(path=path, refusal="what it has besides belongs to cases that could not be compiled")
    return Held(path=path, drifts=tuple(known))
