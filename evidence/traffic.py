"""Hold the traffic model against a GPU's counters: ``python -m evidence.traffic OUT.json [-k Matmul]``.

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
import contextlib
import csv
import datetime as dt
import io
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopwatch.errors import FlopwatchError, MachineError
from flopwatch.model import to_json
from flopwatch.static import pretend_gpu
from flopwatch.static.traffic import Traffic, traffic_of
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_SECTORS = ("lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum")
_TENSOR = re.compile(r"sm__ops_path_tensor_src_\w+_sparsity_off\b")
_TIME = "gpu__time_duration.sum"
_SECTOR_BYTES = 32
#: Where Nsight Compute is installed when it is not on the path.
_USUAL = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_LONGEST_SECONDS = 300.0


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
    parser = argparse.ArgumentParser(
        prog="python -m evidence.traffic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("-k", dest="select", default="", help="only cases whose name has this in it")
    parser.add_argument("--device", default="h200", help="the GPU that is there, as flopwatch calls it (h200)")
    parser.add_argument("--run", nargs="+", metavar="SUITE", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run:
        run_case(*options.run)
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
    counters, missing = known_counters(_output([profiler, "--query-metrics"]))
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
            failures[case] = f"took more than {_LONGEST_SECONDS:.0f} s under the profiler"
    return Comparison(
        measured=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        device=device,
        profiler=next((line for line in _output([profiler, "--version"]).splitlines() if "Version" in line), ""),
        missing_counters=missing,
        launches=tuple(launches),
        failures=failures,
    )


def find_profiler() -> str:
    """Return the path of Nsight Compute.

    Raises:
        MachineError: it is not installed.
    """
    found = shutil.which("ncu")
    if found is None:
        places = [path for pattern in _USUAL for path in Path("/").glob(pattern.removeprefix("/"))]
        found = str(places[-1]) if places else None
    if found is None:
        raise MachineError(
            "there is no Nsight Compute",
            why=f"ncu is neither on the path nor at {' or '.join(_USUAL)}",
            todo="run this on a machine with a GPU and the CUDA toolkit's profilers",
        )
    return found


def known_counters(query: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    r"""Return which counters the profiler has for this GPU, and which it lacks, by what ``--query-metrics`` prints.

    >>> known_counters("dram__bytes_read  # of bytes\nsm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off  # ops")[0]
    ('dram__bytes_read.sum', 'sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off.sum')
    """
    names = {line.split()[0] for line in query.splitlines() if line.strip()}
    wanted = (*_BYTES, *_SECTORS, _TIME)
    there = [name for name in wanted if name.removesuffix(".sum") in names]
    tensor = sorted(f"{name}.sum" for name in names if _TENSOR.fullmatch(name))
    missing = [name for name in wanted if name not in there]
    return (*there, *tensor), tuple(missing if tensor else [*missing, "sm__ops_path_tensor_*.sum"])


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


@contextlib.contextmanager
def first_configurations() -> Iterator[None]:
    """Let every autotuner know its first configuration only: then nothing is timed, and both sides run the same."""
    from triton.runtime.autotuner import Autotuner  # noqa: PLC0415 - not before a GPU is pretended

    original = Autotuner.run

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - untyped triton
        configs = tuner.configs
        tuner.configs = configs[:1]
        try:
            return original(tuner, *args, **kwargs)
        finally:
            tuner.configs = configs

    Autotuner.run = run
    try:
        yield
    finally:
        Autotuner.run = original


def profile_case(
    profiler: str, counters: Sequence[str], kernels: Sequence[str], case: Sequence[str]
) -> list[dict[str, float]]:
    """Return the counters of each launch of these kernels, in order.

    Raises:
        MachineError: the profiler failed, or saw none of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "counters.csv"
        command = [profiler, "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
        command += ["--cache-control", "all", "--clock-control", "none", "--metrics", ",".join(counters)]
        command += ["--kernel-name", f"regex:^({'|'.join(map(re.escape, kernels))})$"]
        command += [sys.executable, "-m", "evidence.traffic", str(log.with_suffix(".json")), "--run", *case]
        done = subprocess.run(  # noqa: S603 - the profiler, on this very program
            command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=_LONGEST_SECONDS
        )
        text = log.read_text() if log.exists() else ""
    found = read_counters(text, counters)
    if done.returncode or not found:
        said = "\n".join((text + done.stdout + done.stderr).strip().splitlines()[-5:])
        raise MachineError(
            "the counters cannot be read",
            why=said or f"ncu ended with {done.returncode} and saw none of {', '.join(kernels)}",
            todo="for ERR_NVGPUCTRPERM: run as root, or let the driver's NVreg_RestrictProfilingToAdminUsers be 0",
        )
    return found


def read_counters(text: str, counters: Sequence[str]) -> list[dict[str, float]]:
    r"""Return the counters of each launch in the profiler's raw CSV, whose second row has the units.

    >>> text = '==PROF== note\n"ID","Kernel Name","dram__bytes_read.sum"\n"","","byte"\n"0","k","1,024"\n'
    >>> read_counters(text, ["dram__bytes_read.sum", "another"])
    [{'dram__bytes_read.sum': 1024.0}]
    """
    table = "\n".join(line for line in text.splitlines() if line.startswith('"'))
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row.get("ID")]
    return [
        {name: float(row[name].replace(",", "")) for name in counters if _is_number(row.get(name) or "")}
        for row in rows
    ]


def ratios(model: Traffic, counters: dict[str, float]) -> dict[str, float]:
    """Return the counters over what the model says, of what both know."""
    tensor = sum(value for name, value in counters.items() if name.startswith("sm__ops_path_tensor"))
    pairs = {
        "dram read": (counters.get(_BYTES[0]), model.unique_load_bytes),
        "dram write": (counters.get(_BYTES[1]), model.unique_store_bytes),
        "l2 read": (_times(counters.get(_SECTORS[0])), model.load_bytes),
        "l2 write": (_times(counters.get(_SECTORS[1])), model.store_bytes),
        "tensor core": (tensor, model.total_dot_flops),
    }
    return {name: seen / said for name, (seen, said) in pairs.items() if seen is not None and said}


def _times(sectors: float | None) -> float | None:
    return None if sectors is None else sectors * _SECTOR_BYTES


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[\d,]+(\.\d+)?(e[+-]?\d+)?", text) is not None


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_SECONDS)  # noqa: S603 - the profiler
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
