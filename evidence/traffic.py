"""Hold the traffic model against a GPU's counters: ``python -m evidence.traffic OUT.json [-k Matmul]``, on a GPU.

With ``--table`` it prints what a file has as a table, on any machine.

Each case is compiled for a pretended GPU and its launches are evaluated (`flopwatch.static.traffic`); then it runs once
under NVIDIA's Nsight Compute, which flushes the caches before every pass. On both sides an autotuned kernel has its
first configuration alone. Written down is what the model says, what the counters say, and the second over the first:

=====================  ================================================  ==============================================
ratio                  counters                                          the model's
=====================  ================================================  ==============================================
dram read              ``dram__bytes_read.sum``                          bytes of different sectors read; the least that
                                                                         may be, more where the L2 cache is too small
dram write             ``dram__bytes_write.sum``                         bytes of different sectors written; less where
                                                                         they are still in the L2 cache at the end
l2 read                ``lts__t_sectors_srcunit_tex_op_read.sum`` x 32   bytes that lanes ask for; less where the L1
                                                                         cache or one instruction serves several, more
                                                                         where sectors are used in part
l2 write               ``lts__t_sectors_srcunit_tex_op_write.sum`` x 32  bytes that lanes write
tensor core            ``sm__ops_path_tensor_*.sum``                     FLOPs of dots; none where FMA does them
=====================  ================================================  ==============================================

The names of counters differ between GPUs; those that the GPU does not have are left out and named in the file.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.routes import take_plain_kernels
from flopwatch.errors import FlopwatchError, MachineError
from flopwatch.model import from_json, to_json
from flopwatch.profile.counters import (
    DRAM_BYTES,
    L2_SECTORS,
    LONGEST_SECONDS,
    ask_profiler,
    count,
    find_profiler,
    known_counters,
)
from flopwatch.sanitize.worker import first_configurations
from flopwatch.static import pretend_gpu
from flopwatch.static.traffic import Traffic, traffic_of
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent
#: Suite and parameters; what a GPU does in less than a minute each, of all kinds of kernels.
CASES = (
    ("VectorAdd", "67108864", "float32"),
    ("VectorAddSizes", "65536", "bfloat16"),
    ("Matmul", "1024x1024x1024", "float16"),
    ("Matmul", "4096x4096x4096", "float16"),
    ("Matmul", "8192x8192x8192", "bfloat16"),
    ("Matmul", "16x4096x4096", "float16"),
    ("Matmul", "1000x1000x1000", "float16"),
    ("MatmulSizes", "1023x1025x1027", "float16"),
    ("MatmulSizes", "8192x8192x128", "float16"),
    ("Attention", "4x8x4096x64", "full"),
    ("Attention", "4x8x4096x64", "causal"),
    ("ImageAttention", "32x12x197x64", "full"),
    ("DecoderAttention", "1x32x4096x128", "causal"),
)
_SECTOR_BYTES = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One launch: the model's numbers, the counters, and the counters over the model."""

    case: str
    model: Traffic
    counters: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What a run of this program found; `failures` are cases with what went wrong."""

    measured: str
    device: str
    profiler: str
    missing_counters: tuple[str, ...]
    launches: tuple[Compared, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)


def main(arguments: list[str]) -> None:
    """Compare, and write the file."""
    take_plain_kernels()  # the model reads no Gluon
    parser = argparse.ArgumentParser(
        prog="python -m evidence.traffic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("-k", dest="select", default="", help="only cases whose name has this in it")
    parser.add_argument("--device", default="h200", help="the GPU that is there, as flopwatch calls it (h200)")
    parser.add_argument("--table", action="store_true", help="measure nothing, print what the file has")
    parser.add_argument("--run", nargs="+", metavar="SUITE", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run:
        run_case(*options.run)
        return
    if options.table:
        sys.stdout.write(table(from_json(options.out.read_bytes(), Comparison)))
        return
    try:
        comparison = compare(options.select, options.device)
    except FlopwatchError as error:
        sys.exit(str(error))
    options.out.write_bytes(to_json(comparison, indent=1) + b"\n")
    for launch in comparison.launches:
        ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in launch.ratios.items())
        sys.stdout.write(f"{launch.case} {launch.model.kernel}: {ratios}\n")
    for case, cause in comparison.failures.items():
        sys.stdout.write(f"{case}: {cause}\n")


def compare(select: str, device: str) -> Comparison:
    """Compare every selected case.

    Raises:
        MachineError: there is no profiler, or it may not read the counters.
    """
    profiler = find_profiler()
    counters, missing = known_counters(ask_profiler(profiler, "--query-metrics"))
    launches: list[Compared] = []
    failures: dict[str, str] = {}
    for suite, *values in CASES:
        case = f"{suite}({', '.join(values)})"
        if select not in case:
            continue
        sys.stderr.write(f"{case}\n")
        try:
            modelled = model_case(suite, values, device)
            names = sorted({launch.kernel for launch in modelled})
            measured = profile_case(profiler, counters, names, [suite, *values])
            if len(measured) != len(modelled):
                failures[case] = f"{len(modelled)} launches are modelled and {len(measured)} were measured"
            else:
                launches += [
                    Compared(case=case, model=launch, counters=seen, ratios=ratios(launch, seen))
                    for launch, seen in zip(modelled, measured, strict=True)
                ]
        except subprocess.TimeoutExpired:
            failures[case] = f"took more than {LONGEST_SECONDS:.0f} s under the profiler"
    return Comparison(
        measured=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        device=device,
        profiler=next((line for line in ask_profiler(profiler, "--version").splitlines() if "Version" in line), ""),
        missing_counters=missing,
        launches=tuple(launches),
        failures=failures,
    )


def model_case(suite: str, values: Sequence[str], device: str) -> list[Traffic]:
    """Return what the model says of each launch of a case, in order."""
    with first_configurations(), pretend_gpu(device) as recorder:
        _call(suite, values)
    return list(traffic_of(recorder))


def run_case(suite: str, *values: str) -> None:
    """Run a case once; this is what the profiler watches."""
    import torch  # noqa: PLC0415 - not before a GPU is pretended

    if not torch.cuda.is_available():
        raise MachineError("there is no GPU", todo="run this where torch.cuda.is_available()")
    with first_configurations():
        _call(suite, values)
    torch.cuda.synchronize()


def _call(name: str, values: Sequence[str]) -> None:
    suite = discover(ROOT / "benchmarks").suites[name]()
    suite.run(*suite.inputs(*values, seed=0))


def profile_case(
    profiler: str, counters: Sequence[str], kernels: Sequence[str], case: Sequence[str]
) -> list[dict[str, float]]:
    """Return the counters of each launch of these kernels, in order.

    Raises:
        MachineError: the profiler failed, or saw none of them.
    """
    program = [sys.executable, "-m", "evidence.traffic", os.devnull, "--run", *case]
    only = ("--kernel-name", f"regex:^({'|'.join(map(re.escape, kernels))})$")
    return [launch.values for launch in count(profiler, counters, program, options=only, cwd=ROOT)]


def ratios(model: Traffic, counters: dict[str, float]) -> dict[str, float]:
    """Return the counters over what the model says, of what both know."""
    tensor = sum(value for name, value in counters.items() if name.startswith("sm__ops_path_tensor"))
    pairs = {
        "dram read": (counters.get(DRAM_BYTES[0]), model.unique_load_bytes),
        "dram write": (counters.get(DRAM_BYTES[1]), model.unique_store_bytes),
        "l2 read": (_times(counters.get(L2_SECTORS[0])), model.load_bytes),
        "l2 write": (_times(counters.get(L2_SECTORS[1])), model.store_bytes),
        "tensor core": (tensor or None, model.total_dot_flops),  # 0: no counter has the type of these operands
    }
    return {name: seen / said for name, (seen, said) in pairs.items() if seen is not None and said}


def table(comparison: Comparison) -> str:
    """Return the ratios of all launches as a Markdown table."""
    names = list(dict.fromkeys(name for launch in comparison.launches for name in launch.ratios))
    rows = [["case", *names], [":--", *["--:"] * len(names)]]
    rows += [
        [launch.case, *(f"{launch.ratios[name]:.2f}" if name in launch.ratios else "" for name in names)]
        for launch in comparison.launches
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _times(sectors: float | None) -> float | None:
    return None if sectors is None else sectors * _SECTOR_BYTES


if __name__ == "__main__":
    main(sys.argv[1:])
