"""``python -m evidence ledger`` and ``python -m evidence power``: decide what was recorded again, and write it down.

What is found goes beside the recording as JSON, and from there into docs/evidence.md and its plots.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from evidence import document, ledger, power, rivals
from evidence.samples import recordings
from flopwatch.model import to_json

if TYPE_CHECKING:
    from collections.abc import Callable


#: Core seconds of all runs (AMD EPYC, 2 cores, 2026-11-23): `nox -s ledger`, and ten times a power of 30 runs.
CORE_SECONDS = {"ledger": 240.0, "rivals": 150.0, "power": 1600.0}


def main(arguments: list[str]) -> None:
    """Find out what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m evidence", description=__doc__)
    parser.add_argument("what", choices=["ledger", "power", "docs"], help="docs only writes the page again")
    parser.add_argument("recording", type=Path, nargs="?", help="the newest under evidence/, if none is given")
    parser.add_argument("--runs", type=int, help=f"{ledger.RUNS} of the ledger, {power.RUNS} of each planted slowdown")
    parser.add_argument("--out", type=Path, help="a folder for a trial: findings and page go there")
    options = parser.parse_args(arguments)
    kept = recordings()
    if not (options.recording or kept):
        sys.exit("there is no recording under evidence/; make one on a GPU: python -m evidence.record FILE")
    path: Path = options.recording or kept[-1]
    findings = options.out or path.parent
    page = document.PAGE
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        page = Path(shutil.copy(document.PAGE, options.out))
    jobs: dict[str, Callable[[], object]] = {}
    if options.what == "ledger":
        jobs["ledger"] = lambda: ledger.make(path, options.runs or ledger.RUNS)
        jobs["rivals"] = lambda: rivals.make(path, rivals.RUNS)
    elif options.what == "power":
        jobs["power"] = lambda: power.make(path, options.runs or power.RUNS, power.spin_recordings(path))
    for name, find in jobs.items():
        sys.stdout.write(f"{name}: {about(name, options.runs)}\n")
        sys.stdout.flush()
        begun = time.monotonic()
        (findings / f"{path.stem}.{name}.json").write_bytes(to_json(find(), indent=1) + b"\n")
        sys.stdout.write(f"{name}: {time.monotonic() - begun:.0f} s\n")
    document.write(document.Findings.read(findings, path.stem), page)


def about(name: str, runs: int | None = None) -> str:
    """Say about how long a job takes on this machine, as nothing else is told until it is done."""
    usual = {"ledger": ledger.RUNS, "power": power.RUNS}.get(name)
    share = runs / usual if runs and usual else 1.0
    seconds = CORE_SECONDS[name] * share / (os.cpu_count() or 1)
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(seconds, 10):.0f} s"  # noqa: PLR2004


if __name__ == "__main__":
    main(sys.argv[1:])
