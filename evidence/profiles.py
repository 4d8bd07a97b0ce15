"""Profile 8192^3 by cuBLAS, torch and the bundled kernel on a GPU: ``python -m evidence.profiles OUT_DIR``.

Takes less than a minute. Into the folder go Proton's tree and timeline, ``profile.json``, ``profile.txt`` with what the
terminal shows, and ``roofline.svg`` of these cases. ``profile.json`` is kept as ``evidence/h200/profile-DATE.json``, of
which ``python -m evidence.profiles --docs`` makes the part of docs/profile.md.
"""

from __future__ import annotations

import argparse
import io
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from evidence.page import filled
from flopwatch.errors import FlopwatchError
from flopwatch.model import from_json, to_json
from flopwatch.profile import Profile, ProfileOptions, run_profile
from flopwatch.profile.roofline import RooflineOptions, gather
from flopwatch.report.profile import print_profile
from flopwatch.report.roofline_plot import roofline_svg

ROOT = Path(__file__).parent.parent
SUITES = Path(__file__).parent / "profiled"
PAGE = ROOT / "docs" / "profile.md"
NOTHING = (
    "Not recorded yet: nobody has run this on a GPU and kept what it found as `evidence/h200/profile-DATE.json`, and\n"
    "there are no numbers to show until then."
)
#: Columns of the text, so that it is the same everywhere.
COLUMNS = 140


def main(arguments: list[str]) -> None:
    """Profile, and write the files; or write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence.profiles", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT_DIR")
    parser.add_argument("--docs", action="store_true", help="only write the page again, of the newest that is kept")
    parser.add_argument("--counters", action="store_true", help="read the GPU's counters too, with Nsight Compute")
    parser.add_argument("--memory", action="store_true", help="save snapshots of torch's allocator")
    options = parser.parse_args(arguments)
    if options.docs:
        write_page(newest())
        return
    if options.out is None:
        parser.error("name the folder that the files go to")
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


def newest() -> Path | None:
    """Return the newest profile under evidence/; None where there is none."""
    return max((ROOT / "evidence").glob("*/profile-*.json"), default=None)


def write_page(kept: Path | None, page: Path = PAGE) -> None:
    """Write the generated part of docs/profile.md."""
    page.write_text(filled(page.read_text(encoding="utf-8"), {"profile": shown(kept)}), encoding="utf-8")


def shown(kept: Path | None) -> str:
    """Return what the terminal showed of a profile that is kept, but for where its files were."""
    if kept is None:
        return NOTHING
    text = io.StringIO()
    print_profile(replace(from_json(kept.read_bytes(), Profile), files={}), Console(file=text, width=COLUMNS))
    lines = "\n".join(line.rstrip() for line in text.getvalue().splitlines())
    return f"Recorded as `{kept.relative_to(kept.parents[2])}`:\n\n```text\n{lines}\n```"


if __name__ == "__main__":
    main(sys.argv[1:])
