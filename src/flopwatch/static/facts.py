"""The facts of every kernel that a recorder saw."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from flopwatch.model import Failure, KernelFacts
from flopwatch.static.elf import code_fingerprint
from flopwatch.static.occupancy import occupancy
from flopwatch.static.ptxas import METADATA_KEY

if TYPE_CHECKING:
    from flopwatch.static.devices import Device
    from flopwatch.static.recorder import Launch, LaunchFailure, Recorder

_LONGEST_MESSAGE = 2000
# What the launcher hands over beside the code. Two kernels of equal code that differ here do not run alike.
_LAUNCH_METADATA = (
    "shared",
    "num_warps",
    "num_ctas",
    "cluster_dims",
    "tmem_size",
    "global_scratch_size",
    "launch_pdl",
    "launch_cooperative_grid",
)


def kernel_facts(recorder: Recorder) -> tuple[KernelFacts, ...]:
    """Return the facts of each kernel, variant and configuration once, sorted by them.

    A configuration launched outside the autotuner's trials is `chosen`. One that did not compile or fit has a
    `failure` and no numbers. Interpreted launches have no facts.
    """
    facts: dict[tuple[str, str, str], KernelFacts] = {}
    chosen = {_key(launch) for launch in recorder.launches if not launch.tuning} | {
        _key(failure) for failure in recorder.failures if not failure.tuning
    }
    for failure in recorder.failures:
        if failure.config is not None:
            facts[_key(failure)] = _failed(failure, recorder.device, chosen=_key(failure) in chosen)
    for launch in recorder.launches:
        if launch.binary_hash:
            kernel = recorder.compiled[launch.binary_hash]
            facts[_key(launch)] = _compiled(launch, kernel, recorder.device, chosen=_key(launch) in chosen)
    return tuple(facts[key] for key in sorted(facts))


def _key(seen: Launch | LaunchFailure) -> tuple[str, str, str]:
    return (seen.kernel, seen.variant, seen.config or "")


def _failed(seen: LaunchFailure, device: Device, *, chosen: bool) -> KernelFacts:
    return KernelFacts(
        kernel=seen.kernel,
        device=device.key,
        config=seen.config or "",
        variant=seen.variant,
        chosen=chosen,
        failure=Failure(kind=type(seen.error).__name__, message=str(seen.error).strip()[:_LONGEST_MESSAGE]),
    )


def _compiled(launch: Launch, kernel: Any, device: Device, *, chosen: bool) -> KernelFacts:  # noqa: ANN401 - triton's
    metadata = kernel.metadata
    ptxas: dict[str, int] = getattr(metadata, METADATA_KEY)
    resident = occupancy(
        device,
        registers=ptxas["registers"],
        shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        tensor_memory_columns=getattr(metadata, "tmem_size", None) or 0,
    )
    return KernelFacts(
        kernel=launch.kernel,
        device=device.key,
        config=launch.config or "",
        variant=launch.variant,
        chosen=chosen,
        registers=ptxas["registers"],
        spill_store_bytes=ptxas["spill_store_bytes"],
        spill_load_bytes=ptxas["spill_load_bytes"],
        stack_bytes=ptxas["stack_bytes"],
        shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
        occupancy=resident.share,
        occupancy_limit=resident.limit,
        code_fingerprint=kernel_fingerprint(kernel),
    )


def kernel_fingerprint(kernel: Any) -> str:  # noqa: ANN401 - triton's
    """Hash a compiled kernel's code and what the launcher hands over beside it."""
    beside = {name: getattr(kernel.metadata, name, None) for name in _LAUNCH_METADATA}
    text = code_fingerprint(kernel.asm["cubin"]) + repr(sorted(beside.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
