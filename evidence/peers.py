"""The bundled kernels beside their peers, on a GPU: cuBLAS, cuDNN, FlashAttention-2 and -4, flex_attention.

::

    python -m evidence.peers measure evidence/h200/peers-2026-11-23.json --seconds 500    # on a GPU; again to go on
    python -m evidence.peers docs                                       # writes docs/performance.md and its plots
    python -m evidence.peers plots                                      # writes the plots alone

The points are those of `evidence.peer_shapes`, the suites those of `evidence.peered.suites`. What is wrong is not
timed. At each point ours and all its peers take turns in one process, over cold inputs, in three fresh ones one after
the other (`evidence.peer_turns`). What a batch of points gave is written before the next begins.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import hashlib
import importlib.metadata
import itertools
import shlex
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.peer_records import Beside, Peers, Sitting, factor, first_line, read
from evidence.peer_turns import Contest, measure_contests
from flopwatch import git
from flopwatch.cli.output_file import claim, print_and_write
from flopwatch.compare.matches import match_providers
from flopwatch.config import load_config
from flopwatch.errors import FlopwatchError, MachineError, SuiteError, UndecidedError, UsageError
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure import fitness
from flopwatch.measure.client import Mode
from flopwatch.measure.machine import read_machine
from flopwatch.measure.nvml import Watch, require_gpu
from flopwatch.model import to_json
from flopwatch.pattern import matches
from flopwatch.static.devices import find_device
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.compare.result import ComparedCase
    from flopwatch.config import Config
    from flopwatch.measure.protocol import Hello
    from flopwatch.model import Case

ROOT = Path(__file__).parents[1]
SUITES = "evidence/peered/suites"
#: What decides which kernels ran, and beside what: the code and tables of these folders.
SOURCES = ("src/flopwatch/kernels", SUITES)
_KINDS = ("*.py", "*.json")
OWN = "flopwatch"
#: What brings peers beside torch itself: measurements name the versions of those that are installed.
PEER_PACKAGES = ("flash-attn-4", "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
#: Peers that every process compiles anew.
COMPILED_ANEW = ("flash4", "flex")
#: Points that share their processes, and are kept together: three processes start for them, 1.1 s each.
BATCH = 12
#: Batches in a row that a GPU may spoil: it may be warming up in the first one.
MOST_UNFIT = 2
#: Seconds beside one peer, until some were measured. Reckoned, not measured: three processes prepare a kernel in 0.03 s
#: each (12 cases in 0.4 s, H200, 2026-11-20), visit it for 0.1 s and hold it against float64, and ours is tuned once.
#: What compiles anew does so three times, FlashAttention-4 from what it keeps on disk.
RECKONED_S = {"torch": 2.0, "flash4": 2.5, "flex": 7.0}
RECKONED_OTHERS_S = 1.0


def main(arguments: list[str]) -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["measure", "docs", "plots"])
    parser.add_argument("file", type=Path, nargs="?", help="the measurement; all that are kept for docs, plots")
    parser.add_argument("--seconds", type=float, default=500.0, help="begin no point that would end after this (500)")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="only peers' cases of this name, as *fp8*row*")
    options = parser.parse_args(arguments)
    try:
        if options.what == "measure":
            if options.file is None:
                parser.error("name the file that the measurement goes to")
            words = ["OUT.json" if word == str(options.file) else word for word in arguments]
            command = shlex.join(["python", "-m", "evidence.peers", *words])
            measure(options.file, seconds=options.seconds, only=options.only, command=command)
        else:
            if options.file is not None and not options.file.is_file():
                parser.error(f"there is no {options.file}")
            from evidence import peer_document  # noqa: PLC0415 - torch and numpy, which measuring needs in workers only

            peer_document.write(None if options.file is None else read(options.file), with_page=options.what == "docs")
    except FlopwatchError as error:
        sys.exit(str(error))


def measure(out: Path, *, seconds: float, only: str, command: str) -> Peers:
    """Measure what the file does not have yet, batch by batch, until the time is up.

    Raises:
        MachineError: there is no GPU, or it is unfit and stays so.
        UsageError: the file is of other kernels, or of another kind of machine.
        UndecidedError: nothing is called so.
    """
    start = time.monotonic()
    claim(out)
    found = read(out if out.exists() and out.stat().st_size else None)
    config = replace(load_config(ROOT), benchmarks=SUITES)
    require_gpu(_no_gpu)
    with Sides(config, device=find_device(config.device).key, base_tree=ROOT, head_tree=ROOT) as sides:
        sides.start_nurseries()
        with sides.worker(Mode.GPU, Arm.HEAD) as worker:
            hello = worker.hello
        if hello.gpu_uuid is None:
            raise _no_gpu("torch finds none")
        waiting = points(hello, found, only, config)
        for line in forecast(found, waiting, seconds):
            say(line)
        with Watch(hello.gpu_uuid) as watch:
            sitting = Sitting(
                machine=read_machine(watch.gpu(), {**hello.versions, **peer_versions()}),
                date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
                commit=_commit(),
                kernels=fingerprint(ROOT, SOURCES),
                command=command,
            )
            require_same(out, found, sitting)
            fitness.require(fitness.before(watch.gpu(), watch.snapshot()))
            unfit = 0
            while waiting:
                batch = fitting(found, waiting, seconds - (time.monotonic() - start))
                if not batch:
                    say("no time for more; run this again to go on")
                    break
                waiting = waiting[len(batch) :]
                try:
                    found = found.added(sitting, measure_batch(sides, watch, batch))
                except KeyboardInterrupt:
                    say("stopped; what was measured before this batch is kept")
                    break
                except MachineError as error:
                    say(str(error))
                    unfit += 1
                    if unfit >= MOST_UNFIT:
                        raise
                else:
                    unfit = 0
                    _write(out, found)
    return found


def points(hello: Hello, found: Peers, only: str, config: Config) -> list[tuple[ComparedCase, ...]]:
    """Return what is left to measure: ours, as head, beside each peer of a point; what compiles anew comes last.

    Raises:
        SuiteError: a suite cannot be imported.
        UndecidedError: nothing is called so.
    """
    if hello.import_failures:
        causes = "; ".join(f"{name}: {cause}" for name, cause in hello.import_failures.items())
        raise SuiteError("a suite cannot be imported", why=causes, todo="import it in Python to see the traceback")
    peers = list(dict.fromkeys(entry.case.provider for entry in hello.declared if not entry.own))
    every = [case for peer in peers for case in match_providers(hello.declared, (OWN, peer), "", config)]
    chosen = [case for case in every if matches(only, case.base.case.id)]
    if not chosen:
        raise UndecidedError(
            f"no peer's case is called {only!r}",
            why=f"the peers are {', '.join(peers)}, and their cases {every[0].base.case.id} and the like",
            todo="quote a pattern: --only '*cudnn*'",
        )
    left: dict[Case, tuple[ComparedCase, ...]] = {}
    for case in chosen:
        if case.base.case.id not in found.done:
            left[case.head.case] = (*left.get(case.head.case, ()), case)
    return sorted(left.values(), key=lambda cases: sum(case.base.case.provider in COMPILED_ANEW for case in cases))


def expected_s(found: Peers, case: ComparedCase) -> float:
    """Return how long a comparison will take: as others beside that peer, or as reckoned."""
    peer = case.base.case.provider
    taken = found.seconds_each(peer)
    return RECKONED_S.get(peer, RECKONED_OTHERS_S) if taken is None else taken


def fitting(
    found: Peers, waiting: Sequence[tuple[ComparedCase, ...]], seconds: float
) -> Sequence[tuple[ComparedCase, ...]]:
    """Return the next batch, shorter where there is no time for all of it."""
    ends = itertools.accumulate(sum(expected_s(found, case) for case in point) for point in waiting[:BATCH])
    return waiting[: sum(end <= seconds for end in ends)]


def forecast(found: Peers, waiting: Sequence[Sequence[ComparedCase]], seconds: float) -> Iterator[str]:
    """Yield how much there is to do, and how much of it will fit."""
    if not waiting:
        yield "nothing is left to measure"
        return
    parts = Counter(case.base.case.provider for point in waiting for case in point)
    total = sum(expected_s(found, case) for point in waiting for case in point)
    yield f"{len(waiting)} points: {', '.join(f'{count} with {peer}' for peer, count in parts.items())}"
    yield f"about {total:.0f} s in all, of which this run takes {min(total, seconds):.0f} s at most"


def measure_batch(sides: Sides, watch: Watch, batch: Sequence[tuple[ComparedCase, ...]]) -> list[Beside]:
    """Measure points, and say how they came out.

    Raises:
        MachineError: the GPU was lost or unfit, so that nothing of this can be kept.
    """
    contests = [Contest(cases=cases) for cases in batch]
    measure_contests(sides, watch, contests)
    for contest in contests:
        for fault in contest.faults:
            say(f"{contest.own.id}: a process could not be used: {fault}")
    found = [each for contest in contests for each in contest.beside()]
    for each in found:
        say(told(each))
    return found


def told(found: Beside) -> str:
    """Say in one line how a comparison came out."""
    case = found.case
    name = f"{case.base.case.id}, {found.seconds:.1f} s"
    if case.speed is None or case.head.seconds is None:
        return f"{name}: {first_line(case.reason)}"
    tflops = case.flops / case.head.seconds * 1e-12
    return f"{name}: {format_seconds(case.head.seconds)}, {tflops:.4g} TFLOPS, {factor(found)} of {found.peer}"


def require_same(out: Path, found: Peers, sitting: Sitting) -> None:
    """Make sure that a file's measurements and these are of one thing.

    Raises:
        UsageError: they are not.
    """
    other = next((each for each in found.sittings if each.origin != sitting.origin), None)
    if other is not None:
        there, here = (
            ", ".join(sorted(ours - theirs)) or "nothing more"
            for ours, theirs in itertools.permutations((set(other.origin), set(sitting.origin)))
        )
        raise UsageError(
            f"{out} is of other kernels, or of another kind of machine",
            why=f"that has {there}, and this has {here}: measurements of two are no table",
            todo="name another file, or check out what that one was measured with",
        )


def peer_versions() -> dict[str, str]:
    """Return the versions of those of `PEER_PACKAGES` that are installed."""
    versions = {}
    for name in PEER_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def fingerprint(root: Path, folders: Sequence[str]) -> str:
    """Hash the Python files of some folders, and the tables there, with their names."""
    digest = hashlib.sha256()
    for path in sorted({path for folder in folders for kind in _KINDS for path in (root / folder).rglob(kind)}):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _commit() -> str:
    try:
        return git.resolve("HEAD", cwd=ROOT)
    except FlopwatchError:  # a copy without its history
        return ""


def _write(out: Path, found: Peers) -> None:
    print_and_write(lambda: None, out, lambda: to_json(found, indent=1).decode() + "\n")


def _no_gpu(why: str) -> MachineError:
    return MachineError("peers are measured on a GPU", why=why, todo="run this where there is one; docs needs none")


def say(line: str) -> None:
    """Print at once."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
