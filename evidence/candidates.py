"""Race candidates at all points of an experiment, within a budget: what the experiments of the kernels share.

An experiment (`evidence.race.Experiment`) names its points and makes a contest for each of them. All of it runs in a
process of its own, which is killed when a step of it takes too long: a kernel whose barriers are wrong hangs, and then
costs `STEP_SECONDS` and is not tried again. Every outcome, and who hung, is written down at once, so that a run goes on
where the one before it stopped.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import multiprocessing
import shlex
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from evidence.race import BrokenContextError, Experiment, Outcome, Point, first_line, race
from evidence.routes import choose
from flopwatch.kernels.known import PLAIN
from flopwatch.model import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from evidence.routes import RoutedExperiment

#: A step is one candidate's making, check and soak, or all looks. Compiling takes 1 to 4 s (two cores, triton 3.6.0),
#: that of flex_attention tens of seconds.
STEP_SECONDS = 45.0
#: Beyond that, the first step of a process: a new interpreter with torch, its context, a point's inputs and reference.
START_SECONDS = 75.0
#: After so long without one more job that is done, a process that compiles is taken to have ended over its job.
STALL_SECONDS = 90.0
#: Before the name of the configuration that calls take, where it runs in turns with the winner: it is no one's peer.
TAKEN = "taken: "
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What is kept.

    Attributes:
        source: of the experiment.
        date: of the newest outcome.
        about: the GPU and versions.
        outcomes: in the order in which they were measured.
        banned: who hung or broke the GPU's context, with the reason; not tried again.
    """

    source: str
    date: str = ""
    about: dict[str, str] = field(default_factory=dict)
    outcomes: tuple[Outcome, ...] = ()
    banned: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(path: Path, source: str) -> Findings:
        """Read what was kept of this source; nothing where there is none, or it is of another."""
        kept = from_json(path.read_bytes(), Findings) if path.exists() else None
        return kept if kept is not None and kept.source == source else Findings(source=source)


def main(experiment: RoutedExperiment, arguments: Sequence[str], program: str, description: str) -> None:
    """Run an experiment as its command line says: ``[choose] OUT.json [--seconds N] [--only WORDS]``."""
    parser = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="written after each point, and read first: points in it are not raced")
    parser.add_argument("--seconds", type=float, default=500.0, help="begin no point that may end after this (500)")
    parser.add_argument(
        "--only",
        default="",
        metavar="WORDS",
        help="points whose name has each of these, or one of a word's parts between commas",
    )
    parser.add_argument("--processes", type=int, default=16, help="that compile; 0 compiles at first use (16)")
    parser.add_argument("--table", action="store_true", help="only print what OUT has")
    chooses = arguments[:1] == ["choose"]
    options = parser.parse_args(arguments[chooses:])
    if chooses:
        findings = from_json(options.out.read_bytes(), Findings)
        named = [outcome for outcome in findings.outcomes if is_named(outcome.point, options.only.split())]
        if strange := {outcome.point.name for outcome in named} - {point.name for point in experiment.points()}:
            sys.exit(
                f"{options.out.name} has points that these are not: {min(strange)} is one of {len(strange)}\n"
                "  why: they were raced with other options, or held out: what is held out decides nothing\n"
                "  do:  choose with the options of the race"
            )
        only = f" --only {shlex.quote(options.only)}" if options.only else ""
        command = f"{program} choose {options.out.name}{only}"
        said = choose(replace(findings, outcomes=tuple(named)), experiment, command)
        sys.stdout.writelines(f"{each}\n" for each in said)
        return
    if options.table:
        findings = from_json(options.out.read_bytes(), Findings)
    else:
        findings = run(
            experiment,
            options.out,
            seconds=options.seconds,
            words=options.only.split(),
            processes=options.processes,
        )
    sys.stdout.write("\n".join(table(findings)) + "\n")


def run(
    experiment: Experiment,
    out: Path,
    *,
    seconds: float,
    words: Sequence[str] = (),
    processes: int = 0,
    step_s: float = STEP_SECONDS,
    start_s: float = START_SECONDS,
) -> Findings:
    """Race at every point that is not in `out` yet, while there is time.

    Args:
        experiment: what is raced.
        out: the JSON; written after each point.
        seconds: no point is begun that may end after this, by the longest one so far.
        words: only points whose name holds all of them; of a word with commas, one of its parts.
        processes: that compile everything beforehand.
        step_s: a step that takes longer is killed with its process.
        start_s: what the first step of a process may take beyond that.
    """
    begun = time.monotonic()
    findings = Findings.read(out, experiment.source)
    out.parent.mkdir(parents=True, exist_ok=True)
    known = {outcome.point for outcome in findings.outcomes if not outcome.reason}
    points = [point for point in experiment.points() if is_named(point, words) and point not in known]
    if processes:
        jobs = dict.fromkeys(job for point in points for job in experiment.compilations(point))
        compile_all(list(jobs), processes, timeout_s=seconds / 2)
        say(f"{len(jobs)} configurations were compiled in {time.monotonic() - begun:.0f} s")
    longest = 0.0
    with Runner(experiment, step_s=step_s, start_s=start_s) as runner:
        for point in points:
            if time.monotonic() - begun + longest > seconds:
                say(f"no time is left for {point.name} and what comes after it")
                break
            outcome = None
            while outcome is None and time.monotonic() - begun <= seconds:
                outcome, banned = runner.race(point, findings.banned)
                findings = replace(
                    findings,
                    date=dt.datetime.now(dt.UTC).date().isoformat(),
                    about=runner.about or findings.about,
                    banned=findings.banned | banned,
                )
                if outcome is not None:
                    longest = max(longest, outcome.took_s)
                    others = (old for old in findings.outcomes if old.point != point)
                    findings = replace(findings, outcomes=(*others, outcome))
                    say(line(outcome))
                write(findings, out)
                runner.check()
    return findings


def is_named(point: Point, words: Sequence[str]) -> bool:
    """Tell whether a point's name has each of these words, or one of a word's parts between commas."""
    return all(set(word.split(",")) & set(point.name.split()) for word in words)


def write(findings: Findings, out: Path) -> None:
    """Put findings in the place of those before them: whoever is killed meanwhile leaves the one or the other."""
    beside = out.with_name(f".{out.name}.tmp")
    beside.write_bytes(to_json(findings, indent=1) + b"\n")
    beside.replace(out)


class Runner:
    """The process that races, and what watches it."""

    def __init__(self, experiment: Experiment, *, step_s: float, start_s: float) -> None:
        self._experiment = experiment
        self._step_s = step_s
        self._start_s = start_s
        self._process: multiprocessing.process.BaseProcess | None = None
        self._killed: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        self.about: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._kill()

    def race(self, point: Point, banned: Mapping[str, str]) -> tuple[Outcome | None, dict[str, str]]:
        """Race at one point; return what came out, or who hung or broke the context there and is to be left out."""
        begun = time.monotonic()
        found, name = self._try(point, banned)
        if isinstance(found, Outcome):
            return replace(found, took_s=time.monotonic() - begun), {}
        self._kill()
        say(f"{point.name}: {name or 'the point itself'} {found}")
        if not name or name in banned:
            return Outcome(point=point, reason=found, took_s=time.monotonic() - begun), {}
        return None, {name: f"{found} at {point.name}"}

    def check(self) -> None:
        """Check that who was killed is gone.

        Raises:
            RuntimeError: it is not, and may still have the GPU.
        """
        if self._killed is not None and self._killed.is_alive():
            raise RuntimeError(
                f"process {self._killed.pid} was killed and does not end\n"
                "  why: the driver cannot stop its kernel, beside which nothing can be timed\n"
                "  do:  take another GPU, or reset this one; then run it again, it goes on where it was"
            )

    def _try(self, point: Point, banned: Mapping[str, str]) -> tuple[Outcome | str, str]:
        """Return the outcome, or why there is none and whose fault that is."""
        allowed_s = self._step_s + (0.0 if self._process else self._start_s)
        pipe = self._started()
        name = ""
        try:
            pipe.send((point, dict(banned)))
            while pipe.poll(allowed_s):
                kind, *told = pipe.recv()
                if kind == "about":
                    (self.about,) = told
                elif kind == "outcome":
                    return told[0], ""
                elif kind == "broke":
                    return told[1], told[0]
                else:
                    (name,) = told
                    allowed_s = self._step_s if name else allowed_s
        except (EOFError, OSError):
            return "ended the process", name
        return f"hung for {allowed_s:.0f} s", name

    def _started(self) -> Connection:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=serve, args=(self._experiment, theirs), daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe

    def _kill(self) -> None:
        if self._process is not None and self._pipe is not None:
            self._process.kill()  # what hangs in a kernel hears of nothing less
            self._process.join(self._step_s)
            self._pipe.close()
            self._killed = self._process
        self._process = self._pipe = None


def serve(experiment: Experiment, pipe: Connection) -> None:
    """Race at the points that are asked for; tell each step before it is begun."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # who hangs would keep the GPU when the parent is killed
    pipe.send(("about", experiment.about()))
    while True:
        try:
            point, banned = pipe.recv()
        except EOFError:
            return
        try:
            outcome = race(experiment, point, banned, lambda name: pipe.send(("step", name)))
        except BrokenContextError as error:
            pipe.send(("broke", error.name, error.reason))
            return
        except Exception as error:  # noqa: BLE001 - told, as the point's outcome
            outcome = Outcome(point=point, reason=first_line(error))
            if not experiment.is_alive():
                pipe.send(("broke", "", outcome.reason))
                return
        pipe.send(("outcome", outcome))


def compile_all(jobs: Sequence[Callable[[], object]], processes: int, *, timeout_s: float) -> None:
    """Run jobs in new interpreters; what fails, fails again when it is raced, and what is late is compiled there."""
    ends = time.monotonic() + timeout_s
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(processes, max(len(jobs), 1))) as pool:
        done = pool.imap_unordered(_compiled, jobs)
        try:
            for _ in jobs:
                left_s = max(ends - time.monotonic(), 0.001)
                if reason := done.next(timeout=min(left_s, STALL_SECONDS)):
                    say(reason)
        except multiprocessing.TimeoutError:
            say(f"not everything was compiled in {timeout_s:.0f} s, or nothing for {STALL_SECONDS:.0f} s")


def _compiled(job: Callable[[], object]) -> str:
    try:
        job()
    except Exception as error:  # noqa: BLE001 - told, and met again in the race
        return f"{job} does not compile: {first_line(error)}"
    return ""


def table(findings: Findings) -> Iterator[str]:
    """Yield a line a point, then the geometric means of each group, against the best peer and against each."""
    about = ", ".join(f"{name} {value}" for name, value in findings.about.items())
    yield f"# {about}; {findings.date}; TFLOP/s; speed of the winner in units of the peer's, 99 % over rounds"
    yield from map(line, findings.outcomes)
    groups: dict[str, list[Outcome]] = {}
    for outcome in findings.outcomes:
        if outcome.ratios:
            groups.setdefault(outcome.point.group, []).append(outcome)
    for group, outcomes in groups.items():
        theirs = [[one for one in outcome.ratios if not one.peer.startswith(TAKEN)] for outcome in outcomes]
        means = {"best peer": geometric_mean(next(one.speed for one in each if one.peer != PLAIN) for each in theirs)}
        for name in dict.fromkeys(one.peer for each in theirs for one in each):
            means[name] = geometric_mean(one.speed for each in theirs for one in each if one.peer == name)
        yield f"{group}, {len(outcomes)} points: " + ", ".join(f"{value:.3f} of {who}" for who, value in means.items())
    for name, reason in findings.banned.items():
        yield f"banned: {name} {reason}"


def line(outcome: Outcome) -> str:
    """Describe an outcome in a line."""
    if not outcome.winner:
        reasons = "; ".join(f"{entry.name} {entry.reason}" for entry in outcome.entries if entry.reason)
        return f"{outcome.point.name}: {outcome.reason} {reasons}".rstrip()
    rates = {entry.name: outcome.point.flops / entry.seconds * 1e-12 for entry in outcome.entries if entry.seconds}
    text = f"{outcome.point.name}: {outcome.winner} {rates[outcome.winner]:.1f}"
    for one in outcome.ratios:
        text += f" | {one.peer} {rates[one.peer]:.1f}, {one.speed:.3f} [{one.lower:.3f}, {one.upper:.3f}]"
    out = [f"{entry.name} {entry.reason}" for entry in outcome.entries if entry.reason]
    return text + (f" | not timed: {'; '.join(out)}" if out else "")


def geometric_mean(values: Iterable[float]) -> float:
    """Return it.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    return statistics.geometric_mean(values)


def say(text: str) -> None:
    """Tell how far this is."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
