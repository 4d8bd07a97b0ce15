"""Triton's compiler in a worker: what it can know before it is asked, and what need not be compiled twice."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime import cache
from triton.runtime.cache import FileCacheManager

from flopwatch.measure.machine import toolchain_versions
from flopwatch.static.session import cache_folder

if TYPE_CHECKING:
    from flopwatch.static.device import Device


def get_ready(device: Device) -> None:
    """Let Triton learn once what the key of every kernel has in it: its own code, and the version of ptxas.

    It reads all of itself, libtriton's 0.46 GB among it, in each process at the first launch: 0.5 s, which a pair of
    processes would spend twice, one after the other (triton 3.7.1, a core with SHA extensions, 2026-11-23). A fork has
    what its parent knows.
    """
    # Whatever goes wrong goes wrong again at the first launch, where it is told of the case that it happens to.
    with contextlib.suppress(Exception):
        cache.triton_key()
        make_backend(GPUTarget(device.backend, device.arch, device.warp_size)).hash()


def ptxas_for(device: Device) -> Path | None:
    """Return the assembler that Triton runs for a device; None where it has none, as for AMD's.

    Which of its two it is goes by the architecture and by Triton's version: 3.9 has Hopper's code assembled by what its
    wheel calls ptxas-blackwell, as it was Blackwell's alone until then.
    """
    if device.backend != "cuda":
        return None
    from triton.backends.nvidia.compiler import get_ptxas  # noqa: PLC0415 - a Triton for AMD alone may lack it

    with contextlib.suppress(RuntimeError):  # neither where an environment variable says nor in the wheel
        return Path(get_ptxas(device.arch).path)
    return None


def toolchain_of(device: Device) -> dict[str, str]:
    """Return the versions of all that compiles for a device, and of the CUDA that torch was built with.

    Its ptxas is asked too, in processes of their own: HELLO is not asked of the workers that measure pairs.
    """
    versions = toolchain_versions(ptxas_for(device))
    return versions | {"cuda": torch.version.cuda} if torch.version.cuda else versions


def import_for_pretence() -> None:
    """Import what torch does at the first tensor without memory, SymPy: 0.8 s (torch 2.13, 2026-11-23)."""
    torch.randn(1, device="meta")


def reuse_compiled(device: Device) -> None:
    """Have Triton take, from now on, what was compiled for a pretended `device` and lies in its cache.

    The key of a kernel names its source, its arguments, the options, the architecture and the compiler, so that it is
    what Triton would make. Whoever has chosen another cache keeps it.
    """
    if triton.knobs.cache.manager_class is None:
        folder = cache_folder(device)
        triton.knobs.cache.manager_class = type("CompiledBefore", (_CompiledBefore,), {"folder": folder})


class _CompiledBefore(FileCacheManager):  # type: ignore[misc] # triton has no types
    """Triton's cache, which looks into `folder` for a kernel that it does not have; it writes nothing there."""

    folder: str

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Return the files of a kernel by their names; None where it has to be compiled."""
        found: dict[str, str] | None = super().get_group(filename)
        if found is not None or not Path(self.folder, self.key).is_dir():
            return found
        with triton.knobs.cache.scope():
            triton.knobs.cache.dir = self.folder
            before: dict[str, str] | None = FileCacheManager(self.key).get_group(filename)
        # What did not fit the device that was pretended has empty files (`flopwatch.static.stages`).
        if before and all(Path(path).stat().st_size for path in before.values()):
            return before
        return None
