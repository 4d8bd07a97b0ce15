"""What the compiler had of a kernel at each level, from Triton's own language down to the machine's."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopwatch.errors import UnsupportedTritonError, UsageError
from flopwatch.static.sass import find_nvdisasm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flopwatch.static.devices import Device
    from flopwatch.static.recorder import Recorder

#: The levels of each of Triton's backends, in the order of compiling.
LEVELS = {
    "cuda": ("ttir", "ttgir", "llir", "ptx", "sass"),
    "hip": ("ttir", "ttgir", "llir", "amdgcn"),
}
_SASS, _CUBIN = "sass", "cubin"
_DEADLINE_S = 120.0


def levels_of(device: Device, asked: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the levels that are asked for, in the order of compiling; all that the device has where none is.

    Raises:
        UsageError: it has not got one of them.

    >>> from flopwatch.static.devices import find_device
    >>> levels_of(find_device("h200"), ["ptx", "ttir"])
    ('ttir', 'ptx')
    """
    known = LEVELS[device.backend]
    wanted = set(asked) or set(known)
    unknown = sorted(wanted - set(known))
    if unknown:
        raise UsageError(
            f"no level is called {unknown[0]!r} on {device.key}",
            why=f"its compiler goes through {', '.join(known)}",
            todo=f"choose some of these, as in --level {','.join(known[:2])}",
        )
    return tuple(level for level in known if level in wanted)


def ir_texts(
    recorder: Recorder, kernels: Sequence[tuple[str, str, str]], levels: Sequence[str]
) -> dict[tuple[str, str, str, str], str]:
    """Return what a recorder saw compiled, by name, variant, configuration and level.

    Args:
        recorder: that saw the launches.
        kernels: by name, variant and configuration; those that it did not see compiled are left out.
        levels: of `LEVELS`.

    Raises:
        UnsupportedTritonError: machine code is asked for and cannot be listed.
    """
    found: dict[tuple[str, str, str, str], str] = {}
    for launch in recorder.launches:
        key = (launch.kernel, launch.variant, launch.config or "")
        if launch.binary_hash and key in kernels and (*key, levels[0]) not in found:
            kernel = recorder.compiled[launch.binary_hash]
            found |= {(*key, level): _text(kernel, level) for level in levels}
    return found


def _text(kernel: Any, level: str) -> str:  # noqa: ANN401 - triton's
    return list_machine_code(kernel.asm[_CUBIN]) if level == _SASS else str(kernel.asm[level])


def list_machine_code(binary: bytes) -> str:
    """Return what nvdisasm lists of a CUDA binary, with the lines of the source where the binary has them.

    Raises:
        UnsupportedTritonError: Triton has no nvdisasm, or it does not understand the binary.
    """
    program = find_nvdisasm()
    if program is None:
        raise UnsupportedTritonError(
            "Triton has no nvdisasm",
            why="its wheel has one, in backends/nvidia/bin",
            todo="install Triton from PyPI, or name a nvdisasm in TRITON_NVDISASM_PATH",
        )
    with tempfile.TemporaryDirectory(prefix="flopwatch-") as folder:
        file = Path(folder, "code.cubin")
        file.write_bytes(binary)
        command = [str(program), "--print-code", "--print-line-info-inline", str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)  # noqa: S603 - Triton's own program
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed(str(error)) from None
    if done.returncode:
        raise _failed(next(iter(done.stderr.strip().splitlines()), f"exit {done.returncode}"))
    return done.stdout


def _failed(why: str) -> UnsupportedTritonError:
    return UnsupportedTritonError(
        "nvdisasm does not list the machine code",
        why=why[:500],
        todo="reinstall triton, unset TRITON_NVDISASM_PATH, or leave out --level sass",
    )
