"""Measure all that needs a GPU, in the time there is: ``python -m evidence.campaign DIR --minutes 25``.

::

    python -m evidence.campaign DIR --list                      # the steps, and how far each is; needs no GPU
    python -m evidence.campaign DIR --minutes 25                # what fits, what is wanted most first; again to go on
    python -m evidence.campaign DIR --only peers,matmul-race    # some of it
    python -m evidence.campaign DIR --again peers               # once more, from the beginning
    python -m evidence.campaign DIR --pack campaign.tar.gz      # and puts all of DIR but caches into a file

The steps are those of `evidence.campaign_steps`, one after the other. A step whose time is up is ended; one that can
goes on at the next call with what it left. DIR has the output of each in NAME.log, state.json with how each ended, and
in files/ the results, at their places in the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import shlex
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.campaign_process import SIGNALS, SWEEP_S, Cut, run
from evidence.campaign_state import SCRATCH, Entry, State, Status, listed, locked, pack
from evidence.campaign_steps import FILES, STEPS, TAIL_S, Step
from flopwatch import git
from flopwatch.cli.output_file import claim
from flopwatch.errors import ExitCode, FlopwatchError, MachineError
from flopwatch.measure.nvml import present_gpus, require_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from evidence.campaign_process import Ended

ROOT = Path(__file__).parents[1]
#: Kept for ending a step and whatever it started.
STOP_S = sum(patience_s for _, patience_s in SIGNALS) + SWEEP_S
LAST_CHARACTERS = 100
#: Whose numbers the repository has, under evidence/h200 and results/h200.
GPU = "H200"


def main(arguments: Sequence[str], steps: Sequence[Step] = STEPS) -> int:
    """Run what fits, or list it; return the exit code."""
    named = _names([step.name for step in steps])
    parser = argparse.ArgumentParser(
        prog="python -m evidence.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="of the campaign; made where it is not there")
    parser.add_argument("--minutes", type=float, default=25.0, help="end all of it by then (25)")
    parser.add_argument("--only", type=named, default=(), metavar="NAME,...", help="no other steps")
    parser.add_argument("--again", type=named, default=(), metavar="NAME,...", help="forget what these have left")
    parser.add_argument(
        "--force", action="store_true", help="begin where what a step needs has not passed, or on no H200, for a trial"
    )
    parser.add_argument("--list", action="store_true", help="run nothing, print the steps")
    parser.add_argument("--pack", type=Path, metavar="FILE.tar.gz", help="put DIR into it, after every step")
    options = parser.parse_args(arguments)
    ends = time.monotonic() + 60.0 * options.minutes - STOP_S
    folder = options.folder.resolve()
    chosen = [step for step in steps if not options.only or step.name in options.only]
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    try:
        if options.pack:
            claim(options.pack)
        if options.list:
            say("\n".join(listed(State.read(folder, today), chosen)))
            if options.pack:
                _pack(folder, options.pack)
            return ExitCode.OK
        require_gpu(_no_gpu)
        gpus = present_gpus()
        if not options.force:
            _require_h200(gpus.values())
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder) as held:
            campaign = Campaign(
                folder=folder,
                state=State.read(folder, today),
                held=held,
                gpu=", ".join(gpus),
                commit=_commit(),
                out=options.pack,
            )
            campaign.forget([step for step in steps if step.name in options.again])
            campaign.run(chosen, ends=ends, force=options.force)
    except FlopwatchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:  # between two steps
        return ExitCode.UNDECIDED
    return ExitCode.UNDECIDED if campaign.state.waiting(chosen) else ExitCode.OK


@dataclass(kw_only=True)
class Campaign:
    """A campaign while it runs.

    Attributes:
        folder: of all that it leaves, in full.
        state: how far it is.
        held: the open file with the lock on the folder.
        gpu: the UUID of the GPU.
        commit: that is checked out.
        out: the file into which the folder is packed after every step; None for none.
    """

    folder: Path
    state: State
    held: int
    gpu: str
    commit: str
    out: Path | None = None

    def forget(self, steps: Sequence[Step]) -> None:
        """Forget how steps ended, and remove what those that would go on with it have left."""
        self.state = self.state.forgotten([step.name for step in steps])
        for step in steps:
            if step.resumes and step.out:
                Path(self.places(step)["out"]).unlink(missing_ok=True)
        self.state.write(self.folder)

    def run(self, steps: Sequence[Step], *, ends: float, force: bool = False) -> None:
        """Run what waits and fits, one after the other, and keep how each ended; then say what is left to do.

        Args:
            steps: that may be run.
            ends: when the last one has to be ended, by `time.monotonic`.
            force: whether to run those also that need what has not passed.

        Raises:
            MachineError: a process that was killed does not end.
        """
        for step in self.state.waiting(steps):
            left_s = ends - time.monotonic()
            if reason := "" if force else self.state.missing(step, self.gpu):
                say(f"{step.name}: not begun, {reason}")
            elif (needed_s := needed(step, self.state.entries.get(step.name))) > left_s:
                say(f"{step.name}: not begun, it needs {needed_s:.0f} s and {max(left_s, 0):.0f} s are left")
            else:
                ended = self.step(step, left_s)
                if ended.left:
                    raise MachineError(
                        f"processes {', '.join(map(str, ended.left))} of {step.name} were killed and do not end",
                        why="the driver cannot stop their kernels, beside which nothing can be timed",
                        todo="take another GPU, or reset this one; then run this again, it goes on",
                    )
                if ended.cut is Cut.INTERRUPT:
                    break
        for command in self.commands(steps):
            say(command)

    def step(self, step: Step, left_s: float) -> Ended:
        """Run a step, keep how it ended, and say so in a line."""
        given_s = min(step.limit_s, left_s)
        places = self.places(step, seconds=given_s - TAIL_S)
        command = [sys.executable, *(word.format(**places) for word in step.arguments)]
        for made in (self.folder / SCRATCH, Path(places["out"]).parent):
            made.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{step.name}.log"
        with log.open("a", encoding="utf-8") as output:
            output.write(f"$ {shlex.join(['python', *command[1:]])}\n")
        begun = log.stat()
        ended = run(
            command,
            log=log,
            cwd=ROOT,
            environment={**os.environ, "PYTHONUNBUFFERED": "1", **dict(step.environment)},
            limit_s=given_s,
            held=self.held,
        )
        output_text = log.read_bytes()[begun.st_size :].decode(errors="replace")
        self.collect(step, places, begun.st_mtime_ns)
        entry = Entry(
            status=judged(step, ended, output_text, has_result=not step.out or Path(places["out"]).exists()),
            seconds=round(ended.seconds, 1),
            exit_code=ended.exit_code,
            last=last_line(output_text),
            commit=self.commit,
            gpu=self.gpu,
            ended=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        )
        self.state = self.state.added(step.name, entry)
        self.state.write(self.folder)
        if self.out:
            _pack(self.folder, self.out)
        cut = f", {ended.cut.value}" if ended.cut else ""
        say(f"{step.name}: {entry.status.value}, {ended.seconds:.0f} s, exit {ended.exit_code}{cut}; {entry.last}")
        return ended

    def places(self, step: Step, *, seconds: float = 0.0) -> dict[str, str]:
        """Return what stands for the words in braces of a step."""
        date = self.state.date
        out = step.out.format(date=date)
        return {
            "dir": str(self.folder),
            "scratch": str(self.folder / SCRATCH),
            "root": str(ROOT),
            "out": str(self.folder / out),
            "place": out.removeprefix(FILES),
            "date": date,
            "seconds": f"{max(seconds, 0.0):.0f}",
        }

    def collect(self, step: Step, places: dict[str, str], since_ns: int) -> None:
        """Copy what a step has written elsewhere since then."""
        for pattern, target in step.collects:
            found = Path(pattern.format(**places))
            for path in found.parent.glob(found.name):
                if path.stat().st_mtime_ns >= since_ns:
                    (self.folder / target).mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, self.folder / target)

    def commands(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield what is to be done with the results, without a GPU."""
        done = [step for step in steps if (entry := self.state.entries.get(step.name)) and not entry.failed]
        files = self.folder / FILES
        if files.is_dir():
            yield f"then, without a GPU:\n  cp -r {shlex.quote(f'{files}/.')} ."
        yield from dict.fromkeys(f"  {command.format(**self.places(step))}" for step in done for command in step.then)


def needed(step: Step, before: Entry | None) -> float:
    """Return the seconds without which a step is not begun, by how it ended before."""
    least_s = step.expected_s if step.least_s is None else step.least_s
    if before is not None and before.status is Status.STOPPED:
        return max(least_s, before.seconds)  # as many were too few
    return least_s


def judged(step: Step, ended: Ended, output: str, *, has_result: bool) -> Status:
    """Say how a step ended."""
    if ended.cut:
        return Status.PARTIAL if step.resumes else Status.STOPPED
    if ended.exit_code or not has_result or step.proof not in output:
        return Status.FAILED
    return Status.PARTIAL if step.more and step.more in output else Status.PASSED


def last_line(output: str) -> str:
    r"""Return the last line that says something, without what would not fit into one.

    >>> last_line("one\ntwo \n\n")
    'two'
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:LAST_CHARACTERS] if lines else ""


def say(text: str) -> None:
    """Print at once."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _names(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no step is called {unknown[0]!r}; there are {', '.join(known)}")
        return names

    return read


def _pack(folder: Path, out: Path) -> None:
    for left in pack(folder, out):
        say(f"{out.name} is without {left}")


def _commit() -> str:
    try:
        return git.resolve("HEAD", cwd=ROOT)
    except FlopwatchError:  # a copy without its history
        return ""


def _no_gpu(why: str) -> MachineError:
    return MachineError("a campaign needs a GPU", why=why, todo="run it where there is one; --list needs none")


def _require_h200(names: Iterable[str]) -> None:
    if others := [name for name in names if GPU not in name]:
        raise MachineError(
            f"the evidence is an {GPU}'s",
            why=f"there is {', '.join(others)}, whose numbers would stand among those",
            todo="run it on one; --force runs it here, for a trial",
        )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it so keeps what is done, as by Ctrl-C
    sys.exit(main(sys.argv[1:]))
