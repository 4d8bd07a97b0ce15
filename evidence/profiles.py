"""Profile 8192^3 by cuBLAS, torch and the bundled kernel on a GPU: ``python -m evidence.profiles OUT_DIR``.

Takes less than a minute. Into the folder go Proton's tree and timeline, ``profile.json``, ``profile.txt`` with what the
terminal shows, and ``roofline.svg`` of these cases.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from flopwatch.errors import FlopwatchError
from flopwatch.model import to_json
from flopwatch.profile import ProfileOptions, run_profile
from flopwatch.profile.roofline import RooflineOptions, gather
from flopwatch.report.profile import print_profile
from flopwatch.report.roofline_plot import roofline_svg

ROOT = Path(__file__).parent.parent
SUITES = Path(__file__).parent / "profiled"
#: Columns of the text, so that it is the same everywhere.
COLUMNS = 140


def main(arguments: list[str]) -> None:
    """Profile, and write the files."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.profiles", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--counters", action="store_true", help="read the GPU's counters too, with Nsight Compute")
    parser.add_argument("--memory", action="store_true", help="save snapshots of torch's allocator")
    options = parser.parse_args(arguments)
    out: Path = options.out
    try:
        profile = run_profile(
            ProfileOptions(select="Product[", out=out, counters=options.counters, snapshot=options.memory),
            ROOT,
            benchmarks=SUITES,
        )
        record = out / "profile.json"
        record.write_bytes(to_json(profile, indent=1) + b"\n")
        with (out / "profile.txt").open("w", encoding="utf-8") as text:
            print_profile(profile, Console(file=text, width=COLUMNS))
        print_profile(profile, Console(width=COLUMNS))
        found = gather(RooflineOptions(source=record), ROOT)
        (out / "roofline.svg").write_text(roofline_svg(found), encoding="utf-8")
    except FlopwatchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
