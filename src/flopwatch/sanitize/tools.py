"""The sanitizers: which there are, what each needs, and where it is found."""

from __future__ import annotations

import enum
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from flopwatch.errors import MachineError

#: The distribution that has compute-sanitizer, for whom no CUDA toolkit is installed.
WHEEL = "nvidia-cuda-sanitizer-api"
_NAME = "compute-sanitizer"
_VERSION_SECONDS = 60.0


class Tool(enum.Enum):
    """Who looks for faults.

    MEMCHECK to SYNCCHECK are compute-sanitizer's, and need an NVIDIA GPU. INTERPRETER is the guarded interpreter, and
    TRITON_VIZ the sanitizer of triton-viz; neither needs a GPU. ASAN is LLVM's AddressSanitizer in kernels of an AMD
    GPU; TRITON_SAN and TRITON_SAN_RACES are TritonSan, with LLVM's AddressSanitizer and ThreadSanitizer.
    """

    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"
    INTERPRETER = "interpreter"
    TRITON_VIZ = "triton-viz"
    ASAN = "asan"
    TRITON_SAN = "triton-san-asan"
    TRITON_SAN_RACES = "triton-san-tsan"

    @property
    def needs_gpu(self) -> bool:
        """Whether kernels run on a GPU under it."""
        return self in NVIDIA or self is Tool.ASAN


#: What looks at every case where there is an NVIDIA GPU.
NVIDIA = (Tool.MEMCHECK, Tool.RACECHECK, Tool.INITCHECK, Tool.SYNCCHECK)
#: What prints a report, and ends the process at its first fault.
LLVM = (Tool.ASAN, Tool.TRITON_SAN, Tool.TRITON_SAN_RACES)


def find_compute_sanitizer() -> str:
    """Return the path of compute-sanitizer: of PATH, of CUDA_HOME, or of NVIDIA's wheel.

    Raises:
        MachineError: there is none.
    """
    candidates = [shutil.which(_NAME)]
    candidates += [str(Path(home, "bin", _NAME)) for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        # The wheel's own launcher in cu13/bin is not always marked executable; this is what it starts.
        candidates += sorted(str(path) for path in Path(folder).glob(f"cu*/{_NAME}/{_NAME}"))
    for candidate in candidates:
        if candidate is not None and os.access(candidate, os.X_OK):
            return candidate
    raise MachineError(
        "there is no compute-sanitizer",
        why="it is neither on PATH, nor in CUDA_HOME/bin or /usr/local/cuda/bin, nor installed as a wheel",
        todo=f"pip install {WHEEL}, or look without a GPU: flopwatch sanitize --on cpu",
    )


def compute_sanitizer_version(path: str) -> str:
    """Return what compute-sanitizer says of its version; "" where it says nothing."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=_VERSION_SECONDS)  # noqa: S603 - the tool
    return version_in(done.stdout)


def version_in(text: str) -> str:
    r"""Return the version in what a tool prints.

    >>> version_in("Copyright (c) 2020-2026\nVersion 2026.4.0.0 (build 39022338) (public-release)")
    '2026.4.0.0'
    """
    found = re.search(r"Version (\d[\w.]*)", text)
    return found[1] if found else ""
