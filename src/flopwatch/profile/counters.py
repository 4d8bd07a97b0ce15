"""Read a GPU's counters with NVIDIA's Nsight Compute, ``ncu``.

The names of counters differ between GPUs; those that the GPU does not have are left out and named.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flopwatch.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DRAM_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
L2_SECTORS = ("lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum")
KERNEL_TIME = "gpu__time_duration.sum"
TENSOR = re.compile(r"sm__ops_path_tensor_(op_[a-z]+_)?src_\w+_sparsity_off\b")
#: Where Nsight Compute is installed when it is not on the path.
USUAL_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
#: Of one program under the profiler, which runs each kernel several times over.
LONGEST_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One launch: the kernel's name, and its counters."""

    kernel: str
    values: dict[str, float]


def find_profiler() -> str:
    """Return the path of Nsight Compute: of PATH, of CUDA_HOME, or where it is usually.

    Raises:
        MachineError: it is not installed.
    """
    home = os.environ.get("CUDA_HOME", "")
    found = shutil.which("ncu") or (shutil.which("ncu", path=f"{home}/bin") if home else None)
    if found is None:
        places = [path for pattern in USUAL_PLACES for path in Path("/").glob(pattern.removeprefix("/"))]
        found = str(places[-1]) if places else None
    if found is None:
        raise MachineError(
            "there is no Nsight Compute",
            why=f"ncu is neither on PATH, nor in CUDA_HOME/bin, nor at {' or '.join(USUAL_PLACES)}",
            todo="run this on a machine with a GPU and the CUDA toolkit's profilers",
        )
    return found


def ask_profiler(profiler: str, *arguments: str) -> str:
    """Return what the profiler prints of itself, such as its version or the counters that it knows.

    Raises:
        subprocess.TimeoutExpired: it takes more than `LONGEST_SECONDS`.
    """
    done = subprocess.run(  # noqa: S603 - the profiler
        [profiler, *arguments], capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
    )
    return done.stdout


def known_counters(
    query: str, wanted: Sequence[str] = (*DRAM_BYTES, *L2_SECTORS, KERNEL_TIME)
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    r"""Return which counters the profiler has for this GPU, and which it lacks, by what ``--query-metrics`` prints.

    To the wanted ones come those of the tensor cores, whose names have the types of the operands.

    >>> known_counters("dram__bytes_read  # of bytes\nsm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off  # ops")[0]
    ('dram__bytes_read.sum', 'sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off.sum')
    """
    names = {line.split()[0] for line in query.splitlines() if line.strip()}
    there = [name for name in wanted if name.partition(".")[0] in names]
    tensor = sorted(f"{name}.sum" for name in names if TENSOR.fullmatch(name))
    missing = [name for name in wanted if name not in there]
    return (*there, *tensor), tuple(missing if tensor else [*missing, "sm__ops_path_tensor_*.sum"])


def count(
    profiler: str,
    counters: Sequence[str],
    program: Sequence[str],
    *,
    options: Sequence[str] = (),
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Launch]:
    """Run a program under the profiler, which flushes the caches before every pass; return its launches in order.

    Args:
        profiler: path of ncu.
        counters: those that are read.
        program: the command line.
        options: of ncu, such as which kernels.
        cwd: where it runs.
        environment: of the program; this process's by default.

    Raises:
        MachineError: the profiler failed, or saw no kernel.
        subprocess.TimeoutExpired: it takes more than `LONGEST_SECONDS`.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "counters.csv"
        command = [profiler, "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
        command += ["--cache-control", "all", "--clock-control", "none", "--metrics", ",".join(counters)]
        done = subprocess.run(  # noqa: S603 - the profiler, on a program of ours
            [*command, *options, *program],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=cwd,
            env=environment,
            timeout=LONGEST_SECONDS,
        )
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    found = read_launches(text, counters)
    if done.returncode or not found:
        said = "\n".join((text + done.stdout + done.stderr).strip().splitlines()[-5:])
        raise MachineError(
            "the counters cannot be read",
            why=said or f"ncu ended with {done.returncode} and saw no kernel",
            todo="for ERR_NVGPUCTRPERM: run as root, or let the driver's NVreg_RestrictProfilingToAdminUsers be 0",
        )
    return found


def read_launches(text: str, counters: Sequence[str]) -> list[Launch]:
    r"""Return the counters of each launch in the profiler's raw CSV, whose second row has the units.

    >>> text = '==PROF== note\n"ID","Kernel Name","dram__bytes_read.sum"\n"","","byte"\n"0","k","1,024"\n'
    >>> read_launches(text, ["dram__bytes_read.sum", "another"])
    [Launch(kernel='k', values={'dram__bytes_read.sum': 1024.0})]
    """
    table = "\n".join(line for line in text.splitlines() if line.startswith('"'))
    return [
        Launch(
            kernel=row.get("Kernel Name") or "",
            values={name: float(row[name].replace(",", "")) for name in counters if _is_number(row.get(name) or "")},
        )
        for row in csv.DictReader(io.StringIO(table))
        if row.get("ID")
    ]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[\d,]+(\.\d+)?(e[+-]?\d+)?", text) is not None
