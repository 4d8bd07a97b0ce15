"""``flopwatch profile``: where the time of cases goes, and how far from the roof they are."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.cli.console import report_console
from flopwatch.cli.device_option import add_device
from flopwatch.cli.json_option import add_json, claim_json, show
from flopwatch.cli.output_file import print_and_write
from flopwatch.cli.verb import add_verb
from flopwatch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flopwatch.cli.verb import Verbs

#: Where the files go by default; `flopwatch init` lets git ignore the folder.
OUT = Path(".flopwatch") / "profile"


def add_profile(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    profile = add_verb(
        verbs,
        "profile",
        _run,
        summary="show where the time of cases goes, by Triton's profiler; draw their roofline, which needs no GPU",
        description="Record the cases whose name has CASE in it with Triton's profiler, Proton: what their kernels\n"
        "take, what a call costs the host, and what a loop of calls waits for. Providers of one case take turns. With\n"
        "--roofline, draw the cases under the roofs of a GPU, from what was measured and estimates of the rest.",
        examples=(
            "flopwatch profile 'Matmul[8192x8192x8192,float16' --out profile",
            "flopwatch profile Attention --provider flopwatch --counters --memory",
            "flopwatch profile --show profile/profile.hatchet",
            "flopwatch profile Matmul --roofline matmul.svg --device b200",
        ),
        exit_codes={
            ExitCode.OK: "there is a profile, a tree or a roofline",
            ExitCode.UNDECIDED: "no such case, nothing could be profiled or placed, or interrupted",
            ExitCode.UNFIT: "there is no GPU, no Proton, or with --counters no Nsight Compute",
        },
    )
    profile.add_argument("case", nargs="?", metavar="CASE", help="cases whose name has this in it")
    profile.add_argument(
        "--provider",
        dest="providers",
        action="append",
        default=[],
        metavar="NAME",
        help="of these cases, only those that NAME computes; may be repeated (all)",
    )
    profile.add_argument(
        "--calls",
        type=_calls,
        metavar="N",
        help="calls of each case, in eight turns (as many as keep the GPU busy for 0.1 s)",
    )
    profile.add_argument("--out", type=Path, metavar="DIR", help=f"folder of the files ({OUT} in the repository)")
    profile.add_argument("--counters", action="store_true", help="read the GPU's counters too, with Nsight Compute")
    profile.add_argument("--memory", action="store_true", help="save a snapshot of torch's allocator for each case")
    profile.add_argument(
        "--show", type=Path, metavar="FILE", help="print the tree of a file that Proton wrote, and nothing else"
    )
    profile.add_argument("--roofline", type=Path, metavar="FILE", help="draw the roofline into FILE, .svg or .html")
    profile.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="of --roofline: take the points from the JSON of gate, compare or profile (asv's results)",
    )
    add_device(profile, "of --roofline: GPU whose roofs are drawn")
    add_json(profile)


def _run(arguments: argparse.Namespace) -> int:
    _require_one_task(arguments)
    if arguments.show is not None:
        return _show(arguments.show)
    return _roofline(arguments) if arguments.roofline is not None else _profile(arguments)


def _require_one_task(arguments: argparse.Namespace) -> None:
    """Make sure that the options belong together.

    Raises:
        UsageError: they do not.
    """
    records = arguments.calls or arguments.out or arguments.counters or arguments.memory
    others = arguments.providers or arguments.roofline or arguments.source or arguments.device or arguments.json
    if arguments.show is not None and (arguments.case or records or others):
        raise UsageError("--show prints a file, and nothing else", todo="leave out CASE and all other options")
    if arguments.roofline is not None and records:
        raise UsageError(
            "--roofline records nothing", todo="leave out --calls, --out, --counters and --memory, or --roofline"
        )
    if arguments.roofline is None and (arguments.source or arguments.device):
        raise UsageError("--from and --device belong to --roofline", todo="name --roofline FILE.svg")
    if arguments.roofline is not None and arguments.roofline.suffix.lower() not in (".svg", ".html"):
        raise UsageError(
            f"{arguments.roofline} is neither a picture nor a page", todo="name a file that ends in .svg or .html"
        )
    if arguments.show is None and arguments.roofline is None and not arguments.case:
        raise UsageError("no case is named", todo="name a part of a case's name, such as Matmul")


def _profile(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.profile.run import ProfileOptions, run_profile  # noqa: PLC0415 - as above
    from flopwatch.report.profile import print_profile  # noqa: PLC0415 - as above

    root = git.repository_root(arguments.repository)
    options = ProfileOptions(
        select=arguments.case,
        out=arguments.out or root / OUT,
        providers=tuple(arguments.providers),
        calls=arguments.calls,
        counters=arguments.counters,
        snapshot=arguments.memory,
    )
    claim_json(arguments.json)
    with Progress(Console(stderr=True)) as progress:
        profile = run_profile(options, root, observer=progress)
    console = report_console()
    show(profile, arguments.json, lambda: print_profile(profile, console))
    return profile.exit_code


def _show(path: Path) -> int:
    from flopwatch.profile.hatchet import read_hatchet  # noqa: PLC0415 - so that --help answers at once
    from flopwatch.report.profile import print_tree  # noqa: PLC0415 - as above

    print_tree(read_hatchet(path), report_console())
    return ExitCode.OK


def _roofline(arguments: argparse.Namespace) -> int:
    # Imported here so that --help answers at once.
    from rich.console import Console  # noqa: PLC0415 - as above

    from flopwatch import git  # noqa: PLC0415 - as above
    from flopwatch.cli.progress import Progress  # noqa: PLC0415 - as above
    from flopwatch.profile.roofline import RooflineOptions, gather  # noqa: PLC0415 - as above
    from flopwatch.report.foreign import safe  # noqa: PLC0415 - as above
    from flopwatch.report.roofline_plot import headline, roofline_page, roofline_svg  # noqa: PLC0415 - as above

    path: Path = arguments.roofline
    root = git.repository_root(arguments.repository)
    options = RooflineOptions(
        select=arguments.case or "",
        providers=tuple(arguments.providers),
        device=arguments.device,
        source=arguments.source,
    )
    claim_json(arguments.json)
    claim_json(path)
    with Progress(Console(stderr=True)) as progress:
        found = gather(options, root, observer=progress)
    draw = roofline_svg if path.suffix.lower() == ".svg" else roofline_page
    console = report_console()

    def report() -> None:
        console.print(safe(f"{headline(found)} -> {path}"), soft_wrap=True)
        for line in found.left_out:
            console.print(safe(f"left out: {line}"), soft_wrap=True)

    print_and_write(lambda: show(found, arguments.json, report), path, lambda: draw(found))
    return ExitCode.OK


def _calls(text: str) -> int:
    """Read a number of calls."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of calls")
    return int(text)
