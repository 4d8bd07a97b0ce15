"""What the compiler had of a kernel at each level, from Triton's own language down to the machine's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopwatch.errors import UsageError
from flopwatch.static.nvdisasm import run_nvdisasm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flopwatch.static.device import Device
    from flopwatch.static.recorder import Recorder

#: The levels of each of Triton's backends, in the order of compiling.
LEVELS = {
    "cuda": ("ttir", "ttgir", "llir", "ptx", "sass"),
    "hip": ("ttir", "ttgir", "llir", "amdgcn"),
}
_SASS, _CUBIN = "sass", "cubin"


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
    return run_nvdisasm(binary, "--print-code", "--print-line-info-inline")
