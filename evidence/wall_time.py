"""Time whole gates, and asv beside one: ``python -m evidence.wall_time OUT.json [--only NAME,...]``, on a GPU.

The repository at HEAD is cloned into a temporary folder and edited there, so that it is known what a gate has to say:

    clean      the launchers of all kernels have one more line that does nothing: no case is identical, none is slower
    flagged    clean, and vector_add takes smaller blocks: 6 cases are slower
    identical  one comment more

A gate is started as a user starts it, and timed from outside. Triton's cache is a folder of the clone's own, empty when
a cold run begins. Runs whose name ends with 60 are of so many of the cases: those of vector_add, and of the others as
many as are left, spread evenly over them in the order of the suites. The gate is told them by name, as
``-k 'NAME or NAME or ...'``. asv gets the cases that the gate beside it measures, and no others.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from evidence.edits import KERNELS, Edit
from evidence.wall_time_records import Asv, Run, WallTime, read_table, steps_of, summed_up
from flopwatch import git
from flopwatch.errors import FlopwatchError, UndecidedError, UsageError
from flopwatch.gate import GateResult
from flopwatch.measure.client import Code, Mode, Worker
from flopwatch.measure.machine import Machine, read_machine
from flopwatch.model import from_json, to_json
from flopwatch.selection import OR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BASE = "main"
#: asv's benchmarks that are the cases whose name has `SELECTED` in it, once `ONLY_SELECTED` is in force.
SELECTED = "Matmul["
#: How many cases the goals speak of, and which are among them: those that the flagged head slows.
SIXTY = 60
SLOWED = "VectorAdd"
ASV_BENCHMARKS = r"(\.Matmul|\.Float32Matmul)\.track_time"


def _unused(module: str, allocation: str) -> Edit:
    return Edit(path=f"{KERNELS}/{module}.py", old=f"\n    {allocation}", new=f"\n    unused = None\n    {allocation}")


CLEAN = (
    _unused("vector_add", "out = torch.empty("),
    _unused("attention", "out = torch.empty("),
    _unused("matmul", "c = torch.empty("),
    _unused("matmul_fp8", "c = torch.empty("),
)
HEADS: dict[str, tuple[Edit, ...]] = {
    "clean": CLEAN,
    "flagged": (
        *CLEAN,
        Edit(path=f"{KERNELS}/vector_add.py", old="\n    return 1024\n", new="\n    return 64\n"),
    ),
    "identical": (
        Edit(path=f"{KERNELS}/matmul.py", old="\nimport torch\n", new="\n# A comment, no code.\nimport torch\n"),
    ),
}
#: asv measures all cases of a module in one go, whatever is selected, torch's among them: 47 where the gate has 14. It
#: reads its suites from the working tree, so that the others are taken out there.
ONLY_SELECTED = Edit(
    path="benchmarks/matmul.py",
    old="\nclass Float32Matmul(Matmul):\n",
    new="\ndel MatmulSizes, Linear, WeightGradient\n"
    'Matmul.skip_params = (*Matmul.skip_params, *((shape, "float16", "torch") for shape in SHAPES))\n'
    "\n\nclass Float32Matmul(Matmul):\n",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A gate to time: on all cases, on 60, or on those whose name has `select` in it, and then with asv beside it.

    A `cold` run empties the caches first; a `warm` one needs what a clean run of its cases, or of all, left in them.
    """

    what: str
    head: str
    select: str = ""
    sixty: bool = False
    cold: bool = False
    warm: bool = False


#: What is timed, in this order, by its name.
COLD, COLD_60 = "clean-cold", "clean-cold-60"
PLANS: dict[str, Plan] = {
    COLD_60: Plan(what="clean, 60 cases", head="clean", sixty=True, cold=True),
    COLD: Plan(what="clean", head="clean", cold=True),
    "flagged": Plan(what="flagged", head="flagged"),
    "identical": Plan(what="identical", head="identical"),
    "beside-asv": Plan(what=f"clean, `-k '{SELECTED}'`", head="clean", select=SELECTED),
    "clean-warm": Plan(what="clean", head="clean", warm=True),
    "flagged-60": Plan(what="flagged, 60 cases", head="flagged", sixty=True, warm=True),
    "identical-60": Plan(what="identical, 60 cases", head="identical", sixty=True, warm=True),
    "clean-warm-60": Plan(what="clean, 60 cases", head="clean", sixty=True, warm=True),
}


def main(arguments: list[str]) -> None:
    """Time what is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.wall_time", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.json", help="runs that it has of other names are kept")
    parser.add_argument("--only", type=_names, default=tuple(PLANS), metavar="NAME,...", help=f"of {', '.join(PLANS)}")
    parser.add_argument("--folder", type=Path, help="clone to its tree/ and keep caches there, to time runs one by one")
    parser.add_argument(
        "-k", dest="select", default="", metavar="TEXT", help="a trial, on cases with TEXT in their name"
    )
    options = parser.parse_args(arguments)
    words = ["python -m evidence.wall_time", "OUT.json", "--only", ",".join(options.only)]
    command = " ".join([*words, *(["-k", options.select] if options.select else [])])
    try:
        with contextlib.ExitStack() as stack:
            folder = options.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="flopwatch-wall-"))
            measure(options.out, options.only, Path(folder).resolve(), command=command, select=options.select)
    except FlopwatchError as error:
        sys.exit(str(error))


def measure(out: Path, names: Sequence[str], folder: Path, *, command: str, select: str = "") -> None:
    """Time the runs of these names, and write each down as it ends.

    Raises:
        FlopwatchError: the checkout cannot be edited, a run leaves no result, or `out` is of another commit or machine.
    """
    root = git.repository_root(Path(__file__).parent)
    commit = git.resolve("HEAD", cwd=root)
    found = _kept(out, commit)
    clone = Clone.make(root, commit, folder)
    for name in names:
        run, machine = clone.gate(name, PLANS[name], select)
        found = added(found, run, commit=commit, machine=machine, command=command)
        out.write_bytes(to_json(found, indent=1) + b"\n")
        if PLANS[name].select:
            found = added(found, replace(run, asv=clone.asv()), commit=commit, machine=machine, command=command)
            out.write_bytes(to_json(found, indent=1) + b"\n")
        sys.stdout.write(f"{name}: {run.seconds:.1f} s\n")


def added(found: WallTime | None, run: Run, *, commit: str, machine: Machine, command: str) -> WallTime:
    """Add a run to what was found before, in the place of one of its name.

    Raises:
        UsageError: it comes from another machine.
    """
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    if found is None:
        return WallTime(commit=commit, date=date, machine=machine, commands=(command,), runs=(run,))
    if _toolchain(found.machine) != _toolchain(machine):
        raise UsageError(
            f"{run.name} does not belong to the runs that the file has",
            why=f"they were timed on {_toolchain(found.machine)}, and this one on {_toolchain(machine)}",
            todo="name another file",
        )
    runs = {each.name: each for each in (*found.runs, run)}
    return replace(
        found,
        date=date,
        commands=tuple(dict.fromkeys((*found.commands, command))),
        runs=tuple(runs[name] for name in PLANS if name in runs),
    )


def spread(names: Sequence[str], number: int, needed: str) -> list[str]:
    """Pick so many names, in their order: those that have `needed` in them, and the others evenly spread over theirs.

    >>> spread(["a1", "a2", "a3", "a4", "b", "a5"], 4, "b")
    ['a1', 'a2', 'a4', 'b']
    """
    others = [name for name in names if needed not in name]
    left = number - (len(names) - len(others))
    chosen = {others[place * len(others) // left] for place in range(left)}
    return [name for name in names if needed in name or name in chosen]


#: A commit needs an author, and nothing that the user has set up for commits.
_OWN_SETTINGS = tuple(
    word
    for setting in ("user.name=flopwatch", "user.email=flopwatch@localhost", "commit.gpgsign=false", "core.hooksPath=")
    for word in ("-c", setting)
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Clone:
    """A clone with the branches of `HEADS` on top of one commit, and caches of its own."""

    folder: Path
    commit: str

    @classmethod
    def make(cls, root: Path, commit: str, folder: Path) -> Clone:
        """Clone the repository anew, edit it, and check the commit out."""
        clone = cls(folder=folder, commit=commit)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(clone.tree, ignore_errors=True)
        git.git("clone", "--quiet", str(root), str(clone.tree), cwd=folder)
        for name, edits in HEADS.items():
            git.git("checkout", "--quiet", "-B", name, commit, cwd=clone.tree)
            for edit in edits:
                edit.apply(clone.tree)
            git.git(*_OWN_SETTINGS, "commit", "--quiet", "--all", f"--message={name}", cwd=clone.tree)
        git.git("checkout", "--quiet", "-B", BASE, commit, cwd=clone.tree)
        return clone

    @property
    def tree(self) -> Path:
        """The working tree, of the commit itself."""
        return self.folder / "tree"

    @property
    def caches(self) -> Path:
        """The folder in which Triton keeps what it compiled."""
        return self.folder / "triton"

    def gate(self, name: str, plan: Plan, select: str = "") -> tuple[Run, Machine]:
        """Run a gate, and return what it took and where.

        Raises:
            UndecidedError: it left no result.
            UsageError: its caches are to be warm, and are not.
        """
        # A run of all cases leaves warm caches for all, one of 60 for these.
        filled = [self._result(each) for each in ((COLD, COLD_60) if plan.sixty else (COLD,))]
        if plan.cold:
            for each in (COLD, COLD_60):
                self._result(each).unlink(missing_ok=True)
            shutil.rmtree(self.caches, ignore_errors=True)
        elif plan.warm and not any(each.exists() for each in filled):
            raise UsageError(
                f"the caches are not warm for {name}",
                why=f"no clean run filled those of {self.folder}",
                todo=f"run {COLD_60 if plan.sixty else COLD} before it, or name the --folder of a run that had it",
            )
        warm = any(each.exists() for each in filled)
        result = self._result(name)
        result.unlink(missing_ok=True)
        select = plan.select or select or (OR.join(self.sixty()) if plan.sixty else "")
        selection = ("-k", select) if select else ()
        told: list[tuple[float, str]] = []
        command = ("flopwatch", "gate", BASE, plan.head, *selection, "--json", str(result))
        seconds, exit_code = self._run(*command, told=told)
        if not result.exists():
            raise UndecidedError(
                f"the gate of {name} left no result",
                why=f"it ended with exit code {exit_code} after {seconds:.1f} s",
                todo="see what it said above",
            )
        found = from_json(result.read_bytes(), GateResult)
        run = summed_up(found, name=name, what=plan.what, warm=warm, seconds=seconds, exit_code=exit_code)
        return replace(run, steps=steps_of(told, seconds)), found.machine or read_machine(None, found.versions)

    def sixty(self) -> list[str]:
        """Pick the cases of the runs of 60.

        Raises:
            UsageError: their names select others too.
        """
        code = Code(benchmarks=self.tree / "benchmarks", tree=self.tree, source="src", packages=("flopwatch.kernels",))
        with Worker(Mode.STATIC, code) as worker:  # by another process: this one must not hold the GPU
            names = [entry.case.id for entry in worker.hello.declared if entry.own]
        picked = spread(names, SIXTY, SLOWED)
        if len([name for name in names if any(one in name for one in picked)]) != SIXTY:
            raise UsageError(f"{SIXTY} names do not select {SIXTY} cases", todo="pick others, in evidence/wall_time.py")
        return picked

    def asv(self) -> Asv:
        """Run `asv continuous` on the selected cases of the clean head.

        Raises:
            UndecidedError: it compared nothing.
        """
        log = self.folder / "asv.txt"
        with self._only_selected(), log.open("w", encoding="utf-8") as output:
            if not Path("~/.asv-machine.json").expanduser().exists():  # what somebody wrote there by hand stays
                self._run("asv", "machine", "--yes", output=output.fileno())
            # All rows, to see how many there are; asv's own default shows those that changed.
            arguments = ("continuous", "--no-only-changed", "-b", ASV_BENCHMARKS, BASE, "clean")
            seconds, exit_code = self._run("asv", *arguments, output=output.fileno())
        text = log.read_text(encoding="utf-8", errors="replace")
        sys.stdout.write(text)
        compared, changed = read_table(text)
        if not compared:
            raise UndecidedError(
                "asv compared nothing",
                why=text.strip().rpartition("\n")[2],
                todo="see what it said above; it comes with flopwatch[history]",
            )
        return Asv(seconds=seconds, exit_code=exit_code, compared=compared, changed=changed)

    @contextlib.contextmanager
    def _only_selected(self) -> Iterator[None]:
        ONLY_SELECTED.apply(self.tree)
        try:
            yield
        finally:
            git.git("checkout", "--quiet", "--", ONLY_SELECTED.path, cwd=self.tree)

    def _result(self, name: str) -> Path:
        return self.folder / f"{self.commit[:12]}-{name}.json"

    def _run(
        self, module: str, *arguments: str, output: int | None = None, told: list[tuple[float, str]] | None = None
    ) -> tuple[float, int]:
        """Run a module of the clone in this interpreter; return the seconds it took and its exit code.

        Lines that it writes to stderr are `told`, each with the second in which it came.
        """
        paths = (str(self.tree / "src"), os.environ.get("PYTHONPATH", ""))
        variables = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TRITON_CACHE_DIR": str(self.caches),
        }
        command = [sys.executable, "-m", module, *arguments]
        errors = subprocess.PIPE if told is not None else None if output is None else subprocess.STDOUT
        sys.stdout.write(f"$ python {' '.join(command[1:])}\n")
        sys.stdout.flush()
        begun = time.monotonic()
        with subprocess.Popen(  # noqa: S603 - this interpreter, our own arguments
            command, cwd=self.tree, env=variables, stdout=output, stderr=errors, encoding="utf-8", errors="replace"
        ) as process:
            listener = threading.Thread(target=_listen, args=(process.stderr, begun, told))
            listener.start()
            exit_code = process.wait()
            seconds = time.monotonic() - begun
            listener.join()
        return seconds, exit_code


def _listen(lines: IO[str] | None, begun: float, told: list[tuple[float, str]] | None) -> None:
    """Pass on what a process says, and keep it."""
    for line in lines or ():
        sys.stderr.write(line)
        if told is not None:
            told.append((time.monotonic() - begun, line))


def _names(text: str) -> tuple[str, ...]:
    """Read names of runs, and put them into the order in which they are run."""
    names = text.split(",")
    if unknown := [name for name in names if name not in PLANS]:
        raise argparse.ArgumentTypeError(f"no run is called {unknown[0]!r}; there are {', '.join(PLANS)}")
    return tuple(name for name in PLANS if name in names)


def _kept(out: Path, commit: str) -> WallTime | None:
    if not out.exists():
        return None
    try:
        found = from_json(out.read_bytes(), WallTime)
    except msgspec.DecodeError as error:
        raise UsageError(f"{out} has no wall times", why=str(error), todo="name another file") from None
    if found.commit != commit:
        raise UsageError(
            f"{out} has runs of another commit",
            why=f"they are of {found.commit[:12]}, and HEAD is {commit[:12]}",
            todo="name another file",
        )
    return found


def _toolchain(machine: Machine) -> str:
    gpu = f"{machine.gpu.name} {machine.gpu.uuid}, driver {machine.gpu.driver}" if machine.gpu else "no GPU"
    return ", ".join([gpu, *(f"{name} {version}" for name, version in sorted(machine.versions.items()))])


if __name__ == "__main__":
    main(sys.argv[1:])
