"""The steps of an explanation: compile a case on both sides, profile it, pair its kernels, find where they differ."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flopwatch.errors import UsageError
from flopwatch.explain.diff import Hunk, hunks
from flopwatch.explain.listing import listing
from flopwatch.explain.opening import Opened, opened
from flopwatch.explain.pairing import FactPair, pair_up, running
from flopwatch.explain.profiled import profiled
from flopwatch.explain.ranking import in_words
from flopwatch.explain.result import Difference, Explanation, Story
from flopwatch.gate import GateResult
from flopwatch.gate.choices import configs_of
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm
from flopwatch.gate.static import select_cases
from flopwatch.measure.client import CaseFailed, Worker, side_by_side
from flopwatch.model import WORKING_TREE, Choice
from flopwatch.profile.result import ProfiledPair
from flopwatch.static.devices import device_called
from flopwatch.static.identity import differing_parts, is_same, more_torch_work
from flopwatch.static.ir import levels_of
from flopwatch.static.launches import Launched, compare_launches
from flopwatch.units import short_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from flopwatch.measure.protocol import Compiled, DeclaredCase, Hello
    from flopwatch.model import Case, KernelFacts
    from flopwatch.static.comparison import FactChange

#: Lines that are shown of the first place where a level differs.
MAX_LINES = 12
#: Names of cases in an error.
MAX_NAMES = 8
_CHOSEN_ONCE = (
    "each side's autotuner chose once, and in a near tie takes either: in flopwatch gate the choices take turns, and"
    " --result FILE takes what came of it"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainOptions:
    """What the user asked for; None chooses.

    Attributes:
        case: its name, or a part of it that no other has.
        base: commit to compare with.
        head: commit on trial.
        device: the GPU to compile for.
        measured: the result of a gate, which knows the times and what the tuner chose.
        profile: profile both sides, where there is a GPU.
    """

    case: str
    base: str | None = None
    head: str | None = None
    device: str | None = None
    measured: GateResult | None = None
    profile: bool = True


def run_explain(options: ExplainOptions, root: Path, *, observer: Observer | None = None) -> Explanation:
    """Say why head's side of a case is likely to be slower than base's.

    Where no commit is named, they are those of the result that was measured, if there is one.

    Raises:
        UsageError: several cases have that name.
        FlopwatchError: neither side can be compiled, or one is not to be had.
    """
    base, head, device = options.base, options.head, options.device
    if options.measured is not None:
        device = device or options.measured.device
        if base is None:
            base = options.measured.base
            head = None if options.measured.head == WORKING_TREE else options.measured.head
    with opened(root, base=base, head=head, device=device, observer=observer) as sides:
        hello = sides.workers[Arm.HEAD].hello
        declared = one_case(hello, options.case)
        outcomes = dict(
            zip(
                sides.workers,
                side_by_side(lambda worker: _compile(worker, declared.case), list(sides.workers.values())),
                strict=True,
            )
        )
        known = _known(sides, declared, options, observer or Observer())
        return _explained(sides, declared, outcomes, known)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What a GPU told: a gate's result, or the profile where there is none.

    Attributes:
        gpu: that measured the seconds.
        seconds: of a call on each side.
        choices: of the autotuners of each side.
        profile: of both sides.
        notes: in what a result is not about what is explained, and why there is no profile.
    """

    gpu: str | None = None
    seconds: dict[Arm, float | None] = field(default_factory=dict)
    choices: dict[Arm, tuple[Choice, ...]] = field(default_factory=dict)
    profile: ProfiledPair | None = None
    notes: tuple[str, ...] = ()


def _known(sides: Opened, declared: DeclaredCase, options: ExplainOptions, observer: Observer) -> _Known:
    """Read the result of a gate, and profile."""
    known = _of_result(options.measured, declared.case, sides) if options.measured else _Known()
    if not options.profile:
        return known
    profile, note = profiled(sides, declared, known.choices, observer)
    if profile is None:
        return replace(known, notes=(*known.notes, note))
    runs = {Arm.BASE: profile.base, Arm.HEAD: profile.head}
    if not any(known.choices.values()) and device_called(profile.gpu) == sides.device:
        known = replace(known, choices={arm: run.choices for arm, run in runs.items()})
        chosen = [configs_of(choices) for choices in known.choices.values()]
        if all(chosen) and chosen[0] != chosen[1]:
            known = replace(known, notes=(*known.notes, _CHOSEN_ONCE))
    if not any(known.seconds.values()):
        seconds = {arm: run.call_seconds for arm, run in runs.items()}
        known = replace(known, gpu=profile.gpu or None, seconds=seconds)
    return replace(known, profile=profile)


def _of_result(measured: GateResult, case: Case, sides: Opened) -> _Known:
    verdict = next((entry for entry in measured.verdicts if entry.case == case), None)
    notes = []
    if verdict is None:
        notes.append("the result has no time of this case")
    if (measured.base, measured.head) != (sides.base, sides.head):
        commits = [short_commit(commit) for commit in (measured.base, measured.head)]
        notes.append(f"the result is about other commits: {' and '.join(commits)}")
    if verdict is None:
        return _Known(notes=tuple(notes))
    arms = {Arm.BASE: verdict.base, Arm.HEAD: verdict.head}
    return _Known(
        gpu=measured.gpu,
        seconds={arm: side.seconds for arm, side in arms.items()},
        choices={arm: side.choices for arm, side in arms.items()},
        notes=tuple(notes),
    )


def one_case(hello: Hello, name: str) -> DeclaredCase:
    """Return the case of that name, or the only one that has it in its name.

    Raises:
        UndecidedError: there is none.
        UsageError: there are several.
    """
    found = select_cases(hello, name)
    exact = [entry for entry in found if entry.case.id == name]
    if len(exact or found) > 1:
        names = [entry.case.id for entry in found[:MAX_NAMES]]
        more = f" and {len(found) - MAX_NAMES} more" if found[MAX_NAMES:] else ""
        raise UsageError(
            f"{len(found)} cases match {name!r}",
            why=f"they are {', '.join(names)}{more}",
            todo="name one of them in full, in quotes",
        )
    return (exact or list(found))[0]


def _compile(worker: Worker, case: Case) -> Compiled | str:
    try:
        return worker.compile(case)
    except CaseFailed as error:
        return str(error)


def _explained(
    sides: Opened, declared: DeclaredCase, outcomes: dict[Arm, Compiled | str], known: _Known
) -> Explanation:
    notes = [
        f"{arm.value} cannot compile the case: {found}" for arm, found in outcomes.items() if isinstance(found, str)
    ]
    notes += known.notes
    base, head = (outcomes[arm] for arm in Arm)
    stories: list[Story] = []
    if not isinstance(base, str) and not isinstance(head, str):
        of_base, of_head = list(base.facts), list(head.facts)
        if any(not fact.chosen for fact in (*of_base, *of_head)):
            if any(known.choices.values()):
                of_base = _as_chosen(of_base, known.choices[Arm.BASE])
                of_head = _as_chosen(of_head, known.choices[Arm.HEAD])
            else:
                notes.append(
                    "an autotuned kernel runs in what a GPU chooses, not known here: what differs most is told;"
                    " --result FILE takes what a gate there chose"
                )
        launches = compare_launches(*(Launched(facts=side.facts, traffic=side.traffic) for side in (base, head)))
        stories = _with_code(sides, declared.case, _stories(of_base, of_head, launches))
    return Explanation(
        case=declared.case,
        base=sides.base,
        head=sides.head,
        device=sides.device.key,
        cause=_cause(stories, outcomes),
        stories=tuple(stories),
        flops=declared.flops,
        bytes_moved=declared.bytes_moved,
        gpu=known.gpu,
        base_seconds=known.seconds.get(Arm.BASE),
        head_seconds=known.seconds.get(Arm.HEAD),
        profile=known.profile,
        notes=tuple(notes),
    )


def _as_chosen(facts: Sequence[KernelFacts], choices: Sequence[Choice]) -> list[KernelFacts]:
    return running([fact for fact in facts if fact.chosen], [fact for fact in facts if not fact.chosen], choices)


def _stories(base: Sequence[KernelFacts], head: Sequence[KernelFacts], launches: Sequence[FactChange]) -> list[Story]:
    """Tell of each kernel the pair of configurations that explains most; kernels of one side come first."""
    by_kernel: dict[str, list[FactPair]] = {}
    for pair in pair_up(base, head, launches=launches):  # the likeliest cause first: so are the kernels too
        by_kernel.setdefault(pair.kernel, []).append(pair)
    both = {fact.kernel for fact in base} & {fact.kernel for fact in head}
    stories = [
        Story(pair=first, others=sum(bool(pair.changes) or not pair.same_code for pair in more))
        for first, *more in by_kernel.values()
    ]
    return sorted(stories, key=lambda story: story.pair.kernel in both)


def _with_code(sides: Opened, case: Case, stories: Sequence[Story]) -> list[Story]:
    """Find where the code of each kernel first differs, at each level."""
    levels = levels_of(sides.device)
    pairs = [story.pair for story in stories if story.pair.base and story.pair.head and not story.pair.same_code]
    texts: dict[Arm, dict[tuple[str, ...], str]] = {}
    if pairs:

        def ask(arm: Arm) -> dict[tuple[str, ...], str]:
            facts = [pair.base if arm is Arm.BASE else pair.head for pair in pairs]
            kernels = [_key(fact) for fact in facts if fact is not None]
            found = sides.workers[arm].ir(case, kernels, levels)
            return {(text.kernel, text.variant, text.config, text.level): text.text for text in found}

        arms = {worker: arm for arm, worker in sides.workers.items()}
        found = side_by_side(lambda worker: ask(arms[worker]), list(arms))
        texts = dict(zip(arms.values(), found, strict=True))
    return [_told(sides, story, levels, texts) if story.pair in pairs else story for story in stories]


def _key(fact: KernelFacts) -> tuple[str, str, str]:
    return (fact.kernel, fact.variant, fact.config)


def _told(sides: Opened, story: Story, levels: Iterable[str], texts: dict[Arm, dict[tuple[str, ...], str]]) -> Story:
    differences, alike = [], []
    for level in levels:
        found = [
            texts[arm].get((*_key(fact), level))
            for arm, fact in ((Arm.BASE, story.pair.base), (Arm.HEAD, story.pair.head))
            if fact is not None
        ]
        before, after = (listing(level, text) if text is not None else None for text in found)
        if before is None or after is None:
            continue
        different = hunks(level, before, after)
        if different:
            differences.append(_difference(sides, level, different))
        else:
            alike.append(level)
    return Story(pair=story.pair, differences=tuple(differences), alike=tuple(alike), others=story.others)


def _difference(sides: Opened, level: str, found: Sequence[Hunk]) -> Difference:
    """Show the first place that has a source, or the first of all where none has."""
    place = next(
        (hunk for hunk in found if any(entry.line.file for entry in hunk.lines if entry.sign != " ")), found[0]
    )
    sources = {}
    for sign, arm in (("-", Arm.BASE), ("+", Arm.HEAD)):
        line = next((entry.line for entry in place.lines if entry.sign == sign and entry.line.file), None)
        sources[arm] = sides.source(arm, line.file, line.line) if line else ""
    changed = [entry.sign for hunk in found for entry in hunk.lines]
    first = next(index for index, entry in enumerate(place.lines) if entry.sign != " ")
    return Difference(
        level=level,
        base_source=sources[Arm.BASE],
        head_source=sources[Arm.HEAD],
        lines=_few([(entry.sign, entry.line.text.strip()) for entry in place.lines[first:]]),
        removed=changed.count("-"),
        added=changed.count("+"),
    )


def _few(entries: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Keep the first changed lines, as many of base as of head where there are as many."""
    half = MAX_LINES // 2
    numbers = {sign: sum(entry[0] == sign for entry in entries) for sign in "-+"}
    room = {sign: max(half, MAX_LINES - numbers[other]) for sign, other in (("-", "+"), ("+", "-"))}
    lines = []
    for sign in "-+":
        own = [f"{sign} {text}" for mark, text in entries if mark == sign]
        lines += own[: room[sign]]
        if own[room[sign] :]:
            lines.append(f"{sign} ... and {len(own) - room[sign]} more")
    return tuple(lines)


def _cause(stories: Sequence[Story], outcomes: dict[Arm, Compiled | str]) -> str:
    """Say what is likeliest to be the cause, in a sentence."""
    base, head = outcomes[Arm.BASE], outcomes[Arm.HEAD]
    if isinstance(base, str) or isinstance(head, str):
        failed = [arm.value for arm, found in outcomes.items() if isinstance(found, str)]
        return f"{' and '.join(failed)} cannot compile the case, so that nothing can be compared"
    fresh = [story.pair.kernel for story in stories if story.pair.base is None]
    gone = [story.pair.kernel for story in stories if story.pair.head is None]
    if fresh:
        instead = f" in place of {', '.join(gone)}" if gone else ", which base does not launch"
        return f"head launches {', '.join(fresh)}{instead}"
    told = next((story for story in stories if story.pair.suspects), None)
    if told is not None:
        return in_words(told.pair.kernel, told.pair.suspects)
    differing = next((story for story in stories if not (story.pair.same_code or story.pair.kernel in gone)), None)
    if differing is not None:
        return f"no change of {differing.pair.kernel} is known to cost time, but its code differs{_first(differing)}"
    if gone:
        return f"head no longer launches {', '.join(gone)}, and all else is compiled to the same code"
    if base.identity and head.identity:
        if is_same(base.identity, head.identity):
            return "none is known: both sides run the very same code"
        if more := more_torch_work(base.identity, head.identity):
            return f"the kernels are compiled to the same code, and head also calls torch's {', '.join(more)}"
        parts = [part for part in differing_parts(base.identity, head.identity) if part != "kernel code"]
        if parts:
            return f"the kernels are compiled to the same code; what differs: {', '.join(parts)}"
    return "the kernels are compiled to the same code: look at how they are launched, and at the host's code"


def _first(story: Story) -> str:
    if not story.differences:
        return ""
    first = story.differences[0]
    place = first.head_source or first.base_source
    return f", first in its {first.level.upper()}" + (f", of {place}" if place else "")
