"""The steps of a recording: which suites, which cases of them, and which commits."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import TYPE_CHECKING

from flopwatch import git
from flopwatch.checkout import checkout
from flopwatch.config import load_config
from flopwatch.errors import GitError, MachineError, UndecidedError
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm
from flopwatch.measure.client import Mode
from flopwatch.measure.machine import read_machine
from flopwatch.measure.nvml import Watch
from flopwatch.record.recorder import Recorder, Site, Tally, gpu_gone
from flopwatch.record.result import Recording, RecordOptions
from flopwatch.record.revisions import commits_of
from flopwatch.record.store import open_store
from flopwatch.selection import is_selected
from flopwatch.static.devices import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from flopwatch.config import Config
    from flopwatch.measure.protocol import Hello
    from flopwatch.model import Case
    from flopwatch.record.store import Series, Store


def run_record(
    options: RecordOptions, root: Path, *, observer: Observer | None = None, toss: Callable[[], bool] | None = None
) -> Recording:
    """Record the commits of a range.

    Args:
        options: which, and how.
        root: the repository.
        observer: is told how far the run is.
        toss: a fair coin for each pair: whether the commit is slot 1. The operating system's by default.

    Raises:
        FlopwatchError: nothing could be recorded.
    """
    start = time.monotonic()
    config = load_config(root)
    store = open_store(root, config, machine=options.machine)
    anchor = _anchor(options.anchor, config, store, root)
    tallies: list[Tally] = []
    notes: list[str] = []
    interrupted, lost = False, ""
    try:
        with contextlib.ExitStack() as stack:
            tree = stack.enter_context(checkout(None, config, root=root))
            site = Site(
                root=root,
                config=config,
                store=store,
                options=options,
                device=find_device(config.device).key,
                suites=tree / config.benchmarks,
                anchor=anchor,
                anchor_tree=stack.enter_context(checkout(anchor, config, root=root)) if anchor else None,
                observer=observer or Observer(),
                toss=toss or (lambda: bool(secrets.randbits(1))),
            )
            _record(site, tree, tallies, notes, stack)
    except KeyboardInterrupt:
        interrupted = True
    except MachineError as error:
        if not any(tally.cases for tally in tallies):
            raise
        lost = str(error.what)
    return Recording(
        machine=store.machine["machine"],
        environment=store.environment.name,
        gpu=store.gpu,
        anchor=anchor,
        commits=tuple(tally.record() for tally in tallies),
        interrupted=interrupted,
        unfit=lost,
        seconds=time.monotonic() - start,
        notes=tuple(dict.fromkeys(notes)),
    )


def _anchor(asked: str | None, config: Config, store: Store, root: Path) -> str:
    """Return the hash of the anchor, of the command line or the settings; "" where there is none to measure with.

    The anchor of the settings must be a commit here even without a GPU, where nobody asks for it: a name with a typing
    error, or a tag that was not fetched, is found before the machine with the GPU stumbles over it.
    """
    name = config.anchor if asked is None else asked
    if not name:
        return ""
    if asked is not None and store.gpu is None:
        raise MachineError(
            "ratios to an anchor need a GPU",
            why="they are those of times, and none are measured here",
            todo="leave the anchor out to record what is known without a GPU; flopwatch doctor tells what is missing",
        )
    try:
        commit = git.resolve(name, cwd=root)
    except GitError as error:
        where = "--anchor" if asked else "anchor in [tool.flopwatch]"
        todo = f'{error.todo}; --anchor "" records none'
        raise GitError(f"{where}: {error.what}", why=error.why, todo=todo) from None
    return "" if store.gpu is None else commit


def _record(site: Site, tree: Path, tallies: list[Tally], notes: list[str], stack: contextlib.ExitStack) -> None:
    """Find the cases and the commits, and record what is left of them; what is done is in `tallies` at any time."""
    store, revisions = site.store, site.options.revisions
    site.observer.step("looking for the suites")
    branches = [branch or site.config.main for branch in store.conf.branches]

    def commits(*, is_recorded: Callable[[str], bool]) -> tuple[str, ...]:
        return commits_of(revisions, branches=branches, is_recorded=is_recorded, root=site.root)

    series = store.discover(tuple(reversed(commits(is_recorded=lambda _: False))))
    if site.anchor:
        store.add_ratios(series, site.anchor)
    hello = _look_around(site, tree)
    watch = None if hello.gpu_uuid is None or store.gpu is None else stack.enter_context(Watch(hello.gpu_uuid))
    recorder = Recorder(
        site=site,
        series=series,
        wanted=wanted_cases(series, hello, site.options.select),
        watch=watch,
        machine=read_machine(watch.gpu() if watch else None, hello.versions),
        tallies=tallies,
        notes=notes,
    )
    found = commits(is_recorded=recorder.is_recorded)
    if found and watch is None:
        site.observer.step(
            f"no GPU here: no times; static facts as compiled for {site.device}, small sizes checked by the interpreter"
        )
    recorder.record(found)


def _look_around(site: Site, tree: Path) -> Hello:
    """Ask the working tree which cases there are, and whether the GPU is there by which asv labels the results."""
    with site.checkouts(tree) as sides, sides.worker(Mode.GPU, Arm.HEAD) as worker:
        hello = worker.hello
    if site.store.gpu is not None and hello.gpu_uuid is None:
        raise gpu_gone(site.store.gpu)
    return hello


def wanted_cases(series: Mapping[str, Series], hello: Hello, select: str) -> tuple[Case, ...]:
    """Return the cases to record: those that the suites declare, or every combination where one cannot be asked.

    Raises:
        UndecidedError: there is none.
    """
    declared = {entry.case for entry in hello.declared}
    asked = {case.suite for case in declared}
    cases = [case for suite in series.values() for case in suite.cases if suite.name not in asked or case in declared]
    selected = tuple(case for case in cases if is_selected(select, case.id))
    if not selected:
        raise UndecidedError(
            f"no case matches {select!r}" if cases else "the suites declare no case",
            why=f"asv finds {len(cases)} cases in the suites",
            todo="-k takes a part of a case's name, such as Matmul or bfloat16",
        )
    return selected
