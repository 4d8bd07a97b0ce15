"""What the harness itself costs: to find suites, to decide, to read a history, to report."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tests.asv.scale import write_history

from flopwatch import git
from flopwatch.history import read_history
from flopwatch.report.markdown import comment
from flopwatch.report.page import page
from flopwatch.report.reported import Origin, Reported, report_on
from flopwatch.stats import Design, Stage, decide
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from benchmarks_host.conftest import Ratio
    from flopwatch.stats.prior import FloatArray

ROOT = Path(__file__).parent.parent
#: As an H200 gave it; its cases are repeated.
RESULT = ROOT / "tests" / "report" / "h200" / "gate-slower.json"
CASES, PAIRS, DEVIATION = 60, 42, 0.003
#: Thirty series for each of the suites' cases: 10,200 results in all.
COMMITS, HISTORY_CASES = 34, 10


def test_discovery(ratio: Ratio) -> None:
    """Import this repository's suites anew, torch and the kernels being loaded."""
    path = list(sys.path)

    def work() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
            del sys.modules[name]
        if not discover(ROOT / "benchmarks").suites:
            raise AssertionError("no suites were found")
        sys.path[:] = path

    ratio(work)


def test_statistics(ratio: Ratio) -> None:
    """Decide a run of 60 clean cases with 42 pairs each, to all of its looks."""
    design = Design(pairs=PAIRS, first_look=PAIRS, confirm_pairs=PAIRS)

    def work() -> None:
        rng = np.random.default_rng(20261122)

        def sample(rows: Sequence[int], pairs: int, _stage: Stage) -> FloatArray:
            return rng.normal(0, DEVIATION, (len(rows), pairs))

        decide(design, [0.005] * CASES, sample)

    ratio(work)


def test_reading_asv_results(ratio: Ratio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a case's history out of 10,200 results; git, whose processes are not counted, answers each question once."""
    repository = tmp_path / "repository"
    write_history(repository, commits=COMMITS, cases=HISTORY_CASES)
    monkeypatch.setattr(git, "git", functools.cache(git.git))
    ratio(lambda: read_history(repository, "Matmul[0,flopwatch]"))


def test_reading_a_result(ratio: Ratio) -> None:
    """Read a gate's result, and check it against itself."""
    ratio(lambda: report_on(RESULT, origin=Origin()))


def test_the_comment(ratio: Ratio) -> None:
    """Render 60 cases as Markdown."""
    report = _report()
    ratio(lambda: comment([report]))


def test_the_page(ratio: Ratio) -> None:
    """Render 60 cases as a page, plots included."""
    report = _report()
    ratio(lambda: page([report]))


def _report() -> Reported:
    """Return a report of 60 cases, repeated under other names."""
    result = report_on(RESULT, origin=Origin()).result
    if result is None:
        raise AssertionError("the recorded result is refused")
    verdicts = tuple(
        replace(verdict, case=replace(verdict.case, values=(f"{number}", *verdict.case.values[1:])))
        for number in range(CASES)
        for verdict in [result.verdicts[number % len(result.verdicts)]]
    )
    return Reported(result=replace(result, verdicts=verdicts))
