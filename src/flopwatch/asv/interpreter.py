"""What the interpreter that runs every commit has: probed by running it, because asv may run in another one."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flopwatch.errors import UsageError
from flopwatch.model import from_json

_DEADLINE_S = 300.0
#: Prints one line of JSON; whatever torch says at import goes elsewhere. torch takes seconds to import, so it is only
#: asked where there is a driver for a GPU: NVIDIA's library, or AMD's device.
_PROBE = """
import contextlib, ctypes, importlib.metadata, importlib.util, json, os, sys
def driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return os.path.exists("/dev/kfd")
    return True
needed = ("flopwatch", "asv_runner", "torch", "triton")
missing = [name for name in needed if importlib.util.find_spec(name) is None]
found = {"python": "%d.%d" % sys.version_info[:2], "missing": missing}
if not missing:
    found["torch"], found["triton"] = map(importlib.metadata.version, ("torch", "triton"))
if not missing and driver():
    with contextlib.redirect_stdout(sys.stderr):
        import torch
        found["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """What one interpreter has: versions, and the name of its first GPU, None without one."""

    python: str
    missing: tuple[str, ...] = ()
    torch: str = ""
    triton: str = ""
    gpu: str | None = None


def find_interpreter(configured: str | None) -> str:
    """Return the path of the interpreter: the one of asv.conf.json's ``shared_python``, or that which runs asv.

    Links are kept: the interpreter of a virtual environment is one, and its target has none of the packages.

    Raises:
        UsageError: there is no such program.
    """
    if not configured:
        return sys.executable
    found = shutil.which(configured)
    if found is None:
        raise UsageError(
            f"no interpreter {configured}",
            why='asv.conf.json names it as "shared_python"',
            todo="give the path of the python that has torch and triton, or remove the key to use the one of asv",
        )
    return str(Path(found).absolute())


@functools.cache
def probe_interpreter(python: str) -> Interpreter:
    """Run `python` once and return what it has.

    Raises:
        UsageError: it does not run, or lacks something that the benchmarks need.
    """
    try:
        # -P: the folder from which asv is started must not stand in for an installed package.
        probe = subprocess.run(  # noqa: S603 - the interpreter that the user chose, our own program
            [python, "-P", "-c", _PROBE], capture_output=True, text=True, timeout=_DEADLINE_S, check=True
        )
        found = from_json(probe.stdout, Interpreter)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"{python} cannot be asked for its versions",
            why=(getattr(error, "stderr", None) or str(error)).strip(),
            todo="check that it runs and that `import torch` works in it",
        ) from None
    if found.missing:
        raise UsageError(
            f"{python} lacks {', '.join(found.missing)}",
            why="it runs the benchmarks of every commit",
            todo='install flopwatch[history] there, or name another interpreter: "shared_python" in asv.conf.json',
        )
    return found
