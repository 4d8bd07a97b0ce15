"""Record pairs of the same code on both sides: ``python -m evidence.record OUT.npz --seconds 400``.

What differs between the slots of such a pair is noise. The samples are what every figure about false alarms and about
power in docs/evidence.md is computed from.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.samples import Samples
from flopwatch import git
from flopwatch.config import load_config
from flopwatch.gate.pairs import Observer
from flopwatch.gate.sides import Arm, Sides
from flopwatch.measure.client import CaseFailed, Code, Mode, Nursery, Worker
from flopwatch.measure.machine import read_machine
from flopwatch.measure.nvml import Watch
from flopwatch.measure.pair import PairSample, sample_pair
from flopwatch.model import to_json
from flopwatch.record.ahead import can_compile_ahead, compile_ahead
from flopwatch.selection import is_selected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flopwatch.config import Config
    from flopwatch.measure.protocol import Plan
    from flopwatch.model import Case, Choice


def main() -> None:
    """Record until the time is up; every pair is kept as it ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=400.0, help="start no pair after this (400)")
    parser.add_argument("--pairs", type=int, default=1000, help="at most so many")
    parser.add_argument("-k", dest="select", default="", help="only cases whose name has this in it; 'A or B'")
    options = parser.parse_args()
    start = time.monotonic()
    root = git.repository_root(Path())
    config = load_config(root)
    code = Code.of(root, config, keep_choices=True)
    about: dict[str, object] = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "commit": git.resolve("HEAD", cwd=root),
        "command": f"python -m evidence.record {shlex.join(sys.argv[1:])}",
    }
    with Nursery(code) as zero, Nursery(code) as one:
        with Worker(Mode.GPU, code, nursery=zero) as worker:
            hello = worker.hello
            if hello.gpu_uuid is None:
                sys.exit("a recording needs a GPU")
            cases = [entry.case for entry in hello.declared if entry.own and is_selected(options.select, entry.case.id)]
            if not cases:
                sys.exit(f"no case has {options.select!r} in its name")
            pins = tuned(worker, config, root, cases)
        say(f"{len(cases)} cases tuned after {time.monotonic() - start:.1f} s")
        pairs: list[dict[str, PairSample]] = []
        plans: dict[str, Plan] = {}
        with Watch(hello.gpu_uuid) as watch:
            about["machine"] = to_json(read_machine(watch.gpu(), hello.versions)).decode()
            about["choices"] = {
                name: [f"{choice.kernel}: {choice.config}" for choice in chosen] for name, chosen in pins.items()
            }
            while len(pairs) < options.pairs and time.monotonic() - start < options.seconds:
                begun = time.monotonic()
                with Worker(Mode.GPU, code, nursery=zero) as first, Worker(Mode.GPU, code, nursery=one) as second:
                    found = {}
                    for case in secrets.SystemRandom().sample(cases, len(cases)):
                        try:
                            sample = sample_pair(
                                (first, second),
                                case,
                                plan=plans.get(case.id),
                                pins=(pins[case.id], pins[case.id]),
                                meter=watch,
                            )
                        except CaseFailed as error:
                            say(f"{case.id}: {error}")
                            continue
                        if sample.fault:
                            say(f"{case.id}: {sample.fault}")
                        plans[case.id] = sample.plan
                        found[case.id] = sample
                pairs.append(found)
                about["plans"] = {name: to_json(plan).decode() for name, plan in plans.items()}
                about["borrowed"] = sum(sample.borrowed for pair in pairs for sample in pair.values())
                unfinished = options.out.with_name(f"unfinished-{options.out.name}")
                Samples.collect(pairs, [case.id for case in cases], about).save(unfinished)
                unfinished.replace(options.out)
                say(f"pair {len(pairs)}: {time.monotonic() - begun:.1f} s; {watch.snapshot()}")


def tuned(worker: Worker, config: Config, root: Path, cases: Sequence[Case]) -> dict[str, tuple[Choice, ...]]:
    """Compile on all cores, and then let autotuners choose; return what they chose by case."""
    if can_compile_ahead(worker.hello, config.device, cases):
        sides = Sides(config, device=config.device, base_tree=root, head_tree=root)
        compile_ahead(sides, (Arm.HEAD,), cases, Observer())
    return {case.id: worker.tune(case) for case in cases}


def say(line: str) -> None:
    """Print at once."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
