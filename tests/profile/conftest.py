"""Files of the installed Proton's own writer, without a GPU.

Its "instrumentation" backend needs no CUPTI: scopes, metrics and operators go the same way into the same file. Kernels
have no time there; the stand-in for one gives itself what CUPTI would have measured, under the same keys.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

#: Two contenders of one point take two turns of three calls; a call of the first has one kernel, of the second two.
RECORD = """\
import sys
from pathlib import Path

import torch
from triton import profiler
from triton._C.libproton import proton as library
from triton.profiler.flags import flags

from flopwatch.measure.protocol import DeclaredCase
from flopwatch.model import Case
from flopwatch.profile import recorder


def start(name, *, context, data):
    flags.profiling_on = True
    return library.start(name, context, data, "instrumentation", "cuda")


profiler.start = start
sys.modules["triton.profiler.scope"].set_metric_kernels = lambda: None  # since Triton 3.7 it compiles for the GPU
torch.cuda.synchronize = lambda: None


def kernel(name, nanoseconds):
    number = library.record_scope()
    library.enter_op(number, name)
    metrics = {"time (ns)": nanoseconds, "count": 1}
    try:
        library.add_metrics(number, metrics, {})
    except TypeError:  # before Triton 3.7
        library.add_metrics(number, metrics)
    library.exit_op(number, name)


def contender(provider, *kernels):
    case = Case(suite="Matmul", values=("8192x8192x8192", "float16", provider))
    declared = DeclaredCase(
        case=case, small=case, own=provider == "flopwatch", max_diff_eps=None, flops=1.0e12, bytes_moved=4.0e8
    )
    call = lambda *_: [kernel(*each) for each in kernels]
    return recorder.Contender(declared=declared, call=call, choices=(), call_seconds=1e-3, host_seconds=1e-5)


ours = contender("flopwatch", ("matmul_kernel", 1_500_000))
torchs = contender("torch", ("nvjet_hsh_256x128", 1_400_000), ("splitKreduce", 100_000))
proton = recorder.Proton(Path(sys.argv[1]))
with proton.recording("profile", data="tree"):
    for _ in range(2):
        for one in (ours, torchs):
            one.call()  # outside of what is recorded
            proton.record(one, (), 3)
with proton.recording("timeline", data="trace"):
    proton.record(ours, (), 1)
"""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the installed Proton wrote a tree and a timeline."""
    folder: Path = tmp_path_factory.mktemp("proton")
    script = folder / "record.py"
    script.write_text(RECORD, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder
