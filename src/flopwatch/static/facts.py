"""The facts of every kernel that a recorder saw."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopwatch.errors import UnsupportedTritonError
from flopwatch.model import Failure, KernelFacts, from_json, to_json
from flopwatch.static.amdgcn import amd_resources, count_amd_instructions
from flopwatch.static.elf import code_fingerprint
from flopwatch.static.occupancy import Occupancy, occupancy
from flopwatch.static.ptxas import METADATA_KEY
from flopwatch.static.sass import InstructionCounts, count_instructions
from flopwatch.static.stage_times import TIMES_KEY

if TYPE_CHECKING:
    from flopwatch.static.device import Device
    from flopwatch.static.recorder import Launch, LaunchFailure, Recorder

_LONGEST_MESSAGE = 2000
# In the keys of counts that are kept; the number changes with what is counted.
_COUNTS = "flopwatch instructions 1"
_COUNTS_FILE = "instructions.json"
# Of kernels for AMD, which cases share; their texts are of 0.13 MB (the bundled suites, triton 3.7.1, 2026-11-22).
_KEPT_COUNTS = 256
# What a kernel for AMD is to Triton.
_AMD_TEXT, _AMD_BINARY = "amdgcn", "hsaco"
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
    counts, uncounted = _counted(recorder)
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
            fact = _compiled(launch, kernel, recorder.device, chosen=_key(launch) in chosen)
            facts[_key(launch)] = _with_counts(fact, counts.get(code_fingerprint(_binary(kernel))), uncounted)
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
    metadata, taken = kernel.metadata, resources(kernel)
    resident = kernel_occupancy(kernel, device)
    return KernelFacts(
        kernel=launch.kernel,
        device=device.key,
        config=launch.config or "",
        variant=launch.variant,
        chosen=chosen,
        registers=taken.get("registers"),
        accumulator_registers=taken.get("accumulator_registers"),
        scalar_registers=taken.get("scalar_registers"),
        spill_store_bytes=taken.get("spill_store_bytes"),
        spill_load_bytes=taken.get("spill_load_bytes"),
        stack_bytes=taken.get("stack_bytes"),
        shared_bytes=metadata.shared,
        tensor_memory_columns=_tensor_memory(kernel) if device.has_tensor_memory else None,
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
        occupancy=resident.share if resident else None,
        occupancy_limit=resident.limit if resident else "",
        code_fingerprint=kernel_fingerprint(kernel),
        compile_seconds=getattr(metadata, TIMES_KEY, {}),
    )


def resources(kernel: Any) -> dict[str, int]:  # noqa: ANN401 - triton's
    """Return a compiled kernel's registers, stack and spills as `KernelFacts` names them.

    It is empty where nobody listened to ptxas when the kernel was compiled.
    """
    if text := kernel.asm.get(_AMD_TEXT):
        return asdict(amd_resources(text))
    told: dict[str, int] = getattr(kernel.metadata, METADATA_KEY, {})
    return told


def kernel_occupancy(kernel: Any, device: Device) -> Occupancy | None:  # noqa: ANN401 - triton's
    """Return how many blocks of a compiled kernel a multiprocessor holds; None where its registers are not known."""
    taken, metadata = resources(kernel), kernel.metadata
    if not taken:
        return None
    return occupancy(
        device,
        registers=taken["registers"],
        shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        tensor_memory_columns=_tensor_memory(kernel),
        scalar_registers=taken.get("scalar_registers", 0),
    )


def _tensor_memory(kernel: Any) -> int:  # noqa: ANN401 - triton's
    return getattr(kernel.metadata, "tmem_size", None) or 0


def _binary(kernel: Any) -> bytes:  # noqa: ANN401 - triton's
    binary: bytes = kernel.asm[_AMD_BINARY if _AMD_BINARY in kernel.asm else "cubin"]
    return binary


def _counted(recorder: Recorder) -> tuple[dict[str, InstructionCounts], str]:
    """Return the instruction counts of all that was compiled, by fingerprint of code, or why there are none.

    They are kept beside Triton's cache: of the bundled suites' 66 cases, 26 bring code that is new, and each of these
    costs 0.35 s, 9 s of 47 s (triton 3.7.1, sm_90, an empty cache, 2 cores, 2026-11-21). Those for AMD are read from
    text in 10 ms, and kept by this process alone.
    """
    kernels = [kernel for kernel in recorder.compiled.values() if _binary(kernel)]  # what does not fit has no code
    if recorder.device.is_amd:
        return {code_fingerprint(_binary(kernel)): _amd_instructions(kernel.asm[_AMD_TEXT]) for kernel in kernels}, ""
    from triton.runtime.cache import get_cache_manager  # noqa: PLC0415 - heavy

    counts: dict[str, InstructionCounts] = {}
    missing: dict[str, bytes] = {}
    managers = {}
    for kernel in kernels:
        fingerprint = code_fingerprint(_binary(kernel))
        key = f"{_COUNTS} {recorder.device.arch} {fingerprint}"
        managers[fingerprint] = get_cache_manager(hashlib.sha256(key.encode()).hexdigest())
        kept = managers[fingerprint].get_file(_COUNTS_FILE)
        if kept is None:
            missing[fingerprint] = _binary(kernel)
        else:
            counts[fingerprint] = from_json(Path(kept).read_bytes(), InstructionCounts)
    try:
        fresh = count_instructions(missing, int(recorder.device.arch))
    except UnsupportedTritonError as error:
        return counts, f"{error.what}: {error.why}"
    for fingerprint, counted in fresh.items():
        managers[fingerprint].put(to_json(counted), _COUNTS_FILE)
    return counts | fresh, ""


@functools.lru_cache(maxsize=_KEPT_COUNTS)
def _amd_instructions(text: str) -> InstructionCounts:
    return count_amd_instructions(text)


def _with_counts(fact: KernelFacts, counts: InstructionCounts | None, uncounted: str) -> KernelFacts:
    if counts is None:
        return replace(fact, uncounted=uncounted)
    return replace(
        fact,
        code_bytes=counts.code_bytes,
        instructions=counts.instructions,
        loop_instructions=counts.loop_instructions,
    )


def kernel_fingerprint(kernel: Any) -> str:  # noqa: ANN401 - triton's
    """Hash a compiled kernel's code and what the launcher hands over beside it."""
    beside = {name: getattr(kernel.metadata, name, None) for name in _LAUNCH_METADATA}
    text = code_fingerprint(_binary(kernel)) + repr(sorted(beside.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
