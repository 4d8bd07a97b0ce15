"""What heuristics and an autotuner cost and lose: ``python -m evidence.tuning OUT.json``, on a GPU.

What it finds is written as it comes; the same command goes on with a file that was not ended.

The kernels are those of examples/tuning, launched by either. What they cost is the first call of a process, timed by
the host, once with an empty Triton cache and once with the one that this filled; what they lose is the speed of what
they choose in units of the best that a search finds (`flopwatch.tune`), on samples that chose nothing.

``python -m evidence.tuning --docs [OUT.json]`` writes the table of docs/tune.md again, from the newest recording under
evidence/ if none is named; without any the page says that nothing was recorded.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime as dt
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evidence.page import filled
from evidence.routes import take_plain_kernels
from flopwatch import git
from flopwatch.config import Config
from flopwatch.errors import FlopwatchError
from flopwatch.gate.pairs import Observer
from flopwatch.model import Case, from_json, to_json
from flopwatch.report.compare import speed
from flopwatch.suite import discover
from flopwatch.tune import TuneOptions, TuneResult, run_tune
from flopwatch.tune.result import By
from flopwatch.tune.space import short
from flopwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flopwatch.tune import Regret, TunedCase

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tune.md"
#: The part of the page that is written by this.
PART = "tuning"
EXAMPLES = "examples/tuning"
CONFIG = Config(packages=("tuning",), source="examples", benchmarks=EXAMPLES)
#: Suite -> the shapes that are compared: bound by the launch, by the memory and by arithmetic.
SHAPES = {
    "TunedAdd": ("1000", "1048576", "67108864"),
    "TunedMatmul": ("1024x1024x1024", "4096x4096x4096", "16x4096x4096", "4096x4096x128"),
}
#: Suite -> what is searched beside the tuner's list, where the suite's own space takes too long: 72 products a shape.
SPACES: dict[str, dict[str, tuple[str, ...]] | None] = {
    "TunedAdd": None,
    "TunedMatmul": {
        "BLOCK_M": ("64", "128"),
        "BLOCK_N": ("128", "256"),
        "num_warps": ("4", "8"),
        "num_stages": ("3", "4"),
    },
}
RULES = ("autotune", "heuristics")
#: Processes whose first call is timed, of each case and rule; the median is told.
REPEATS = 3
_CALL_DEADLINE_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstCall:
    """What the first call costs, by the host's clock, to the end of the kernel.

    Attributes:
        case: with the rule as its provider.
        cold_seconds: with nothing in Triton's cache, of each process.
        warm_seconds: with everything compiled before, likewise.
        later_seconds: of the second call, in the last of these processes.
    """

    case: Case
    cold_seconds: tuple[float, ...]
    warm_seconds: tuple[float, ...]
    later_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """A recording: a search of each suite, and the first calls of all of its cases."""

    searches: tuple[TuneResult, ...]
    first_calls: tuple[FirstCall, ...]


def main(arguments: list[str]) -> None:
    """Record, or write the page."""
    take_plain_kernels()  # theirs are the lists, and the rules
    parser = argparse.ArgumentParser(prog="python -m evidence.tuning", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="where the recording goes, or is")
    parser.add_argument("--docs", action="store_true", help="only write the page again")
    options = parser.parse_args(arguments)
    if options.docs:
        path = options.file or newest()
        write_page(from_json(path.read_bytes(), Tuning) if path else None)
    elif options.file is None:
        parser.error("name the file that the recording goes to")
    else:
        record(options.file)
        sys.stdout.write(f"{options.file}; python -m evidence.tuning --docs {options.file} writes the page\n")


def newest() -> Path | None:
    """Return the newest recording under evidence/; None where there is none."""
    return max((ROOT / "evidence").glob("*/tuning-*.json"), default=None)


def record(out: Path) -> None:
    """Search every case, and time their first calls; what the file has is kept.

    Raises:
        SystemExit: there is no GPU, or it is unfit, or the file is something else.
    """
    try:
        found = from_json(out.read_bytes(), Tuning) if out.exists() else Tuning(searches=(), first_calls=())
    except msgspec.DecodeError as error:
        sys.exit(f"{out} is no recording of tuning: {error}\n  to do: name another file")

    def keep(tuning: Tuning) -> Tuning:
        out.write_bytes(to_json(tuning, indent=1) + b"\n")
        return tuning

    root = git.repository_root(ROOT)
    searched = {case.case.suite for search in found.searches for case in search.cases}
    for suite, shapes in SHAPES.items():
        if suite not in searched:
            say(f"searching {suite}")
            options = TuneOptions(select=suite, shapes=shapes, space=SPACES[suite], providers=("heuristics",))
            search = run_tune(options, root, config=CONFIG, observer=_Told())
            if search.exit_code:
                sys.exit(f"{suite} was not tuned: {search.unfit or '; '.join(search.notes)}")
            found = keep(replace(found, searches=(*found.searches, search)))
    called = {call.case for call in found.first_calls}
    for case in [case.case for search in found.searches for case in search.cases]:
        for name in RULES:
            asked = Case(suite=case.suite, values=(*case.values[:-1], name))
            if asked not in called:
                say(f"first calls of {asked.id}")
                found = keep(replace(found, first_calls=(*found.first_calls, first_call(asked))))


class _Told(Observer):
    """Says what a search does."""

    def step(self, line: str) -> None:
        say(f"  {line}")


def first_call(case: Case) -> FirstCall:
    """Time the first calls of fresh processes, each pair of them with a cache of its own.

    Raises:
        FlopwatchError: one fails, or hangs.
    """
    cold, warm, later = [], [], 0.0
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(_in_process(case, cache)[0])
            first, later = _in_process(case, cache)
            warm.append(first)
    return FirstCall(case=case, cold_seconds=tuple(cold), warm_seconds=tuple(warm), later_seconds=later)


def _in_process(case: Case, cache: str) -> tuple[float, float]:
    # Forked from a process that has imported torch and not touched the GPU: an import takes 4 s, a fork 1 s.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "triton"])
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as process:
        try:
            return process.submit(time_first_call, case, cache).result(timeout=_CALL_DEADLINE_S)
        except Exception as error:
            for child in multiprocessing.active_children():
                child.kill()
            raise FlopwatchError(f"the first call of {case.id} failed", why=str(error) or repr(error)) from error


def time_first_call(case: Case, cache: str) -> tuple[float, float]:
    """Time the first two calls of a case in this process, whose GPU is warm: its context and the inputs are there.

    What Triton compiles is kept in `cache`. The tuner's timer is Triton's own, as for whoever calls the kernel without
    flopwatch.
    """
    os.environ["TRITON_CACHE_DIR"] = cache
    import torch  # noqa: PLC0415 - the page is written without it

    from flopwatch.measure.inputs import make_inputs  # noqa: PLC0415 - likewise

    suite = discover(ROOT / EXAMPLES).suites[case.suite]()
    inputs = make_inputs(suite, case, seed=0)
    call = suite.call(case.provider)
    seconds = []
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call(*inputs)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1]


def write_page(tuning: Tuning | None, page: Path = PAGE) -> None:
    """Write the generated part of the page."""
    text = "\n".join(lines(tuning)) if tuning else NOTHING
    page.write_text(filled(page.read_text(encoding="utf-8"), {PART: text}), encoding="utf-8")


NOTHING = (
    "Not recorded yet: nobody has run `python -m evidence.tuning evidence/h200/tuning-DATE.json` on a GPU, and there\n"
    "are no numbers to show until then."
)


def lines(tuning: Tuning) -> Iterator[str]:
    """Yield the table, a row a case and rule."""
    first = tuning.searches[0]
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    yield f"{first.gpu}, {first.date}; {versions}. Medians of {REPEATS} processes; 99 % intervals of fresh samples."
    yield ""
    yield "| Case | Rule | Chooses | First call, nothing compiled | Compiled before | Speed of the search's choice |"
    yield "|:--|:--|:--|--:|--:|--:|"
    calls = {call.case: call for call in tuning.first_calls}
    for found in tuning.searches:
        for case in found.cases:
            for name in RULES:
                call = calls.get(Case(suite=case.case.suite, values=(*case.case.values[:-1], name)))
                yield _row(case, name, call, _regret(case, name))
    yield ""
    for name in RULES:
        yield _summary(tuning, name)


def _summary(tuning: Tuning, name: str) -> str:
    """Say what a rule costs and loses at most."""
    calls = [call for call in tuning.first_calls if call.case.provider == name]
    losses = [
        (math.exp(regret.speed.estimate) if regret.speed else 1.0, case)
        for found in tuning.searches
        for case in found.cases
        if (regret := _regret(case, name)) and (regret.speed or regret.config == case.chosen)
    ]
    if not calls or not losses:
        return f"- {name}: not measured"
    cold, warm = (
        " to ".join(format_seconds(bound([statistics.median(found) for found in each])) for bound in (min, max))
        for each in ([call.cold_seconds for call in calls], [call.warm_seconds for call in calls])
    )
    worst, where = max(losses, key=lambda loss: loss[0])
    return (
        f"- {name}: the first call takes {cold}, {warm} where everything is compiled; the search's choice is at most "
        f"{worst:.3f}x as fast, at {_name(where)}"
    )


def _row(case: TunedCase, name: str, call: FirstCall | None, regret: Regret | None) -> str:
    cells = [
        _name(case),
        name,
        short(regret.config) if regret and regret.config else "by its rule",
        _median(call.cold_seconds) if call else "not measured",
        _median(call.warm_seconds) if call else "not measured",
        _loss(case, regret),
    ]
    return "| " + " | ".join(cells) + " |"


def _name(case: TunedCase) -> str:
    return f"{case.case.suite}[{','.join(case.case.values[:-1])}]"


def _regret(case: TunedCase, name: str) -> Regret | None:
    by = By.AUTOTUNER if name == case.case.provider else By.PROVIDER
    return next((regret for regret in case.regrets if regret.by is by), None)


def _loss(case: TunedCase, regret: Regret | None) -> str:
    if regret is None:
        return f"not tuned: {case.reason}" if case.reason else "not measured"
    if regret.speed is None:
        return "the best itself" if regret.config == case.chosen else "not measured"
    return speed(regret.speed)


def _median(seconds: Sequence[float]) -> str:
    return format_seconds(statistics.median(seconds))


def say(line: str) -> None:
    """Tell how far this is."""
    sys.stderr.write(f"{dt.datetime.now(tz=dt.UTC):%H:%M:%S} {line}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
