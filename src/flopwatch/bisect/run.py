"""The steps of a bisection: whether good and bad differ, half of the commits between them, and the culprit's change."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch import git
from flopwatch.bisect.commits import Range, first_parent, merge_bases, read_commit
from flopwatch.bisect.facts import FACTS, open_facts
from flopwatch.bisect.judge import Difference, Judge, code_identity
from flopwatch.bisect.result import Bisection, Commit, Outcome, Step
from flopwatch.bisect.times import no_gpu, open_times
from flopwatch.checkout import checkout
from flopwatch.config import Config, load_config
from flopwatch.errors import GitError, MachineError, UsageError
from flopwatch.gate.pairs import Observer
from flopwatch.measure.nvml import require_gpu
from flopwatch.static.devices import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class BisectOptions:
    """What the user asked for.

    Attributes:
        case: its name, or a part that no other case's name has.
        good: a commit before the change.
        bad: a commit after it.
        fact: a key of `FACTS`, to compare what is compiled; "" compares times.
        device: the GPU to compile for.
        pairs: to prove that good and bad differ, and of a step at most; None for the defaults.
    """

    case: str
    good: str
    bad: str
    fact: str = ""
    device: str | None = None
    pairs: int | None = None


def run_bisect(
    options: BisectOptions, root: Path, *, observer: Observer | None = None, toss: Callable[[], bool] | None = None
) -> Bisection:
    """Find the commit that made a case slower, or faster.

    Args:
        options: what to look for, and where.
        root: the repository.
        observer: is told how far the run is.
        toss: a fair coin for each pair: whether the newer commit is slot 1. The operating system's by default.

    Raises:
        FlopwatchError: there is nothing to bisect, or nothing could be compared.
    """
    start = time.monotonic()
    observer = observer or Observer()
    config = load_config(root)
    if options.fact and options.fact not in FACTS:
        raise UsageError(f"no such fact: {options.fact}", todo=f"choose one of {', '.join(FACTS)}")
    device = find_device(options.device or config.device).key
    good, bad = (read_commit(git.resolve(name, cwd=root), cwd=root) for name in (options.good, options.bad))
    bases = merge_bases(good.hash, bad.hash, cwd=root)
    if not options.fact:
        require_gpu(no_gpu)
    with contextlib.ExitStack() as stack:
        bad_tree = stack.enter_context(checkout(bad.hash, config, root=root))
        judge: Judge
        if options.fact:
            judge = stack.enter_context(
                open_facts(
                    config,
                    device=device,
                    root=root,
                    bad_tree=bad_tree,
                    case=options.case,
                    fact=options.fact,
                    good=good,
                    bad=bad,
                    observer=observer,
                )
            )
        else:
            judge = stack.enter_context(
                open_times(
                    config,
                    root=root,
                    bad_tree=bad_tree,
                    case=options.case,
                    good=good,
                    observer=observer,
                    toss=toss or (lambda: bool(secrets.randbits(1))),
                    most_pairs=options.pairs,
                )
            )
        search = Search(
            judge=judge,
            config=config,
            root=root,
            observer=observer,
            good=good,
            bad=bad,
            range=Range(cwd=root, bad=bad.hash, good=[good.hash]),
        )
        search.run(bases)
        return replace(search.result(options), seconds=time.monotonic() - start)


@dataclass(kw_only=True)
class Search:
    """A bisection, with what it knows so far.

    Attributes:
        judge: tells good commits from bad ones.
        config: of the repository.
        root: the repository.
        observer: is told how far this is.
        good: the one end.
        bad: the other.
        range: the commits that are left.
        steps: what was looked at.
        difference: bad against good.
        parent: of the culprit.
        change: the culprit against it.
        elsewhere: the change is on good's own side of where its history and bad's part.
        reason: why there is no culprit, or how far it is to be believed.
        unfit: why the machine is.
        interrupted: somebody stopped this.
    """

    judge: Judge
    config: Config
    root: Path
    observer: Observer
    good: Commit
    bad: Commit
    range: Range
    steps: list[Step] = field(default_factory=list)
    difference: Difference = field(default_factory=Difference)
    parent: Commit | None = None
    change: Difference | None = None
    elsewhere: bool = False
    reason: str = ""
    unfit: str = ""
    interrupted: bool = False
    _known: dict[str, Step] = field(default_factory=dict, init=False)  # by what their code is

    def run(self, bases: Sequence[str]) -> None:
        """Find the culprit, as far as one gets.

        Args:
            bases: where the histories of good and bad part, unless that is good itself.
        """
        try:
            self._prove_difference()
            if self.difference.differs and self._bases_are_good(bases):
                while (middle := self.range.middle()) is not None:
                    self._narrow(middle)
                self._hold_against_parent()
        except KeyboardInterrupt:
            self.interrupted = True
        except MachineError as error:  # unfit, or the GPU no longer answers
            self.unfit = str(error.what)

    def result(self, options: BisectOptions) -> Bisection:
        """Return what was found out."""
        candidates = self.range.left() if self.difference.differs and not self.elsewhere else []
        change = self.change or Difference()
        difference = self.difference
        if self.interrupted and difference.effect is None:
            difference = replace(difference, effect=self.judge.so_far())
        return Bisection(
            case=self.judge.case,
            fact=options.fact,
            good=self.good,
            bad=self.bad,
            device=self.judge.device,
            difference=difference.effect,
            good_value=difference.older_value,
            bad_value=difference.value,
            differs=difference.differs,
            steps=tuple(self.steps),
            candidates=tuple(read_commit(commit, cwd=self.root) for commit in candidates),
            parent=self.parent,
            change=change.effect,
            parent_value=change.older_value,
            culprit_value=change.value,
            pairs=tuple(self.judge.logs),
            settling_pairs=difference.settling_pairs,
            command=self._command(options),
            reason=self.reason,
            unfit=self.unfit,
            interrupted=self.interrupted,
            notes=tuple(self.judge.notes),
        )

    def _prove_difference(self) -> None:
        identities = [self._identity(commit) for commit in (self.good, self.bad)]
        if identities[0] == identities[1]:
            self.reason = "good and bad run the same code, but for comments"
            return
        self.difference = self.judge.difference(self.bad)
        self.reason = self.difference.reason
        for identity, commit, outcome in zip(
            identities, (self.good, self.bad), (Outcome.GOOD, Outcome.BAD), strict=True
        ):
            self._known[identity] = Step(commit=commit, outcome=outcome)

    def _bases_are_good(self, bases: Sequence[str]) -> bool:
        """Tell whether what good and bad have in common is good: else the change is on good's own side."""
        for base in bases:
            step = self._look(base)
            if step.outcome is Outcome.BAD:
                self.elsewhere = True
                self.reason = (
                    f"{base[:12]}, from which both descend, is as bad: what differs was changed between it and good"
                )
                return False
            if step.outcome is Outcome.GOOD:
                self.range.good.append(base)
        return True

    def _narrow(self, commit: str) -> None:
        left = len(self.range.left())
        self.observer.step(f"{left} commits left, {max(left - 1, 1).bit_length()} or so to look at")
        match self._look(commit).outcome:
            case Outcome.GOOD:
                self.range.good.append(commit)
            case Outcome.BAD:
                self.range.bad = commit
            case Outcome.SKIPPED:
                self.range.skipped.add(commit)

    def _look(self, name: str) -> Step:
        """Find out about one commit; code that was looked at before is not looked at again."""
        commit = read_commit(name, cwd=self.root)
        try:
            identity = self._identity(commit)
            known = self._known.get(identity)
            if known is None:
                step = self._known[identity] = self.judge.step(commit)
            else:
                step = replace(known, commit=commit, effect=None, reason=_same_code(known))
        except GitError as error:
            step = Step(commit=commit, outcome=Outcome.SKIPPED, reason=f"cannot be checked out ({error.why})")
        self.steps.append(step)
        return step

    def _identity(self, commit: Commit) -> str:
        with checkout(commit.hash, self.config, root=self.root) as tree:
            return code_identity(tree, self.config)

    def _hold_against_parent(self) -> None:
        """Prove the change by the culprit and its parent alone, where it is known which commit that is."""
        left = self.range.left()
        if len(left) > 1:
            self.reason = "the commits that were skipped leave several"
            return
        culprit = read_commit(left[0], cwd=self.root)
        parent = first_parent(culprit.hash, cwd=self.root)
        if parent is None:
            self.reason = "it has no parent to be held against"
            return
        self.parent = read_commit(parent, cwd=self.root)
        if (self.parent, culprit) == (self.good, self.bad):
            self.change = self.difference
            return
        self.change = self.judge.change(culprit, self.parent)
        if not self.change.differs:
            cause = f": {self.change.reason}" if self.change.reason else ""
            self.reason = f"held against its parent it does not show the change{cause}"

    def _command(self, options: BisectOptions) -> str:
        """Return the line that repeats this, or goes on where it was stopped."""
        good, bad = self.good.hash, self.bad.hash
        if (self.interrupted or self.unfit) and self.difference.differs:
            good = next((step.commit.hash for step in reversed(self.steps) if step.outcome is Outcome.GOOD), good)
            bad = self.range.bad
        words = ["flopwatch", "bisect", self.judge.case.id, good[:12], bad[:12]]
        words += ["--fact", options.fact] if options.fact else []
        words += ["--device", options.device] if options.device else []
        words += ["--pairs", str(options.pairs)] if options.pairs else []
        return shlex.join(words)


def _same_code(known: Step) -> str:
    what = f", which was skipped ({known.reason})" if known.outcome is Outcome.SKIPPED else ""
    return f"the code of {known.commit.hash[:12]}{what}"
