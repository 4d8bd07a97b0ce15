"""What the compiler made of each configuration: why some need not be timed, and how long the others take at least."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.gate.sides import Arm
from flopwatch.static.recorder import Autotune
from flopwatch.static.traffic import bound_of
from flopwatch.static.traffic.result import SECTOR_BYTES
from flopwatch.survey.lanes import Lanes, Lot
from flopwatch.tune.client import in_config
from flopwatch.tune.result import Candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flopwatch.measure.client import Code
    from flopwatch.model import Case
    from flopwatch.static.device import Device
    from flopwatch.static.traffic import Traffic
    from flopwatch.survey.store import Outcome

#: Schedulers of a multiprocessor; AMD's has as many SIMD units. Each issues for one warp at a time: with fewer resident
#: warps some have nothing to issue, ever. More is no rule: the best matmul of an H200 has 8 of 64 (2026-11-20).
SCHEDULERS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a configuration may not do.

    Attributes:
        spill_bytes: spilled per thread at the most.
        occupancy: share of the warp slots at the least; a warp for each scheduler is asked for in any case.
    """

    spill_bytes: int = 0
    occupancy: float = 0.0


def compile_all(
    cases: Sequence[tuple[Case, Sequence[str]]], device: Device, code: Code, tell: Callable[[int, int], None]
) -> dict[Case, Outcome]:
    """Compile each case in each of its configurations, by as many workers as there are cores.

    Args:
        cases: with the configurations of each.
        device: the GPU that is compiled for.
        code: what is compiled.
        tell: hears how many are done, of how many.

    Returns:
        Of each case in each configuration what became of it.
    """
    lot = Lot(Arm.HEAD, device, code)
    lanes = Lanes([lot], autotune=Autotune.ALL, tell=tell)
    lanes.compile([in_config(case, config) for case, configs in cases for config in configs], lambda _: ())
    return lot.outcomes


def candidates_of(  # noqa: PLR0917 - one row of facts each
    case: Case, configs: Sequence[str], own: Sequence[str], kernel: str, outcomes: dict[Case, Outcome], device: Device
) -> tuple[Candidate, ...]:
    """Put together what is known of each configuration of a case, in their order."""
    return tuple(
        _candidate(config, outcomes.get(in_config(case, config)), kernel, device, own=config in own)
        for config in configs
    )


def prune(candidates: Sequence[Candidate], device: Device, limits: Limits) -> tuple[Candidate, ...]:
    """Say of each candidate why it need not be timed, if so.

    Where the limits leave none of those that can run, such as where all of them spill, these stay.

    Args:
        candidates: in their declared order; of those with the same code and grid the first is timed.
        device: the GPU that they were compiled for.
        limits: what they may not do.
    """
    seen: dict[tuple[str, tuple[int, ...]], str] = {}
    found = []
    for candidate in candidates:
        reason = candidate.pruned or _beyond(candidate, device, limits)
        key = (candidate.code, candidate.grid)
        if not reason and candidate.code and candidate.grid and key in seen:
            reason = f"the same machine code and grid as {seen[key]}"
        elif not reason:
            seen[key] = candidate.name
        found.append(replace(candidate, pruned=reason))
    if any(not candidate.pruned for candidate in found):
        return tuple(found)
    return tuple(candidates)


def with_current(candidates: Sequence[Candidate], current: str) -> tuple[Candidate, ...]:
    """Have the current choice timed whatever the facts say of it, and in place of one with the same code and grid."""
    mine = {(one.code, one.grid): one.name for one in candidates if one.config == current and one.code and one.grid}
    found = []
    for candidate in candidates:
        twin = mine.get((candidate.code, candidate.grid), "")
        reason = candidate.pruned or (f"the same machine code and grid as {twin}" if twin else "")
        found.append(replace(candidate, pruned="" if candidate.config == current else reason))
    return tuple(found)


def ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those that were not pruned, the likeliest to be fast first: by their estimate, then by occupancy."""
    return sorted(
        (candidate for candidate in candidates if not candidate.pruned),
        key=lambda one: (math.inf if one.estimate_seconds is None else one.estimate_seconds, -(one.occupancy or 0.0)),
    )


def estimate_seconds(traffic: Traffic, device: Device) -> float | None:
    """Estimate how long a launch takes, at the device's peaks; None where its traffic is not known.

    Its dots, by the multiprocessor that gets most programs; or what memory moves if each wave reads its own sectors
    anew and all results are written once. Latency, bank conflicts and issue slots are not in it, nor that small tiles
    feed tensor cores badly: it tells tiles that leave multiprocessors idle or read too much, and nothing of warps and
    stages.
    """
    bound = bound_of(traffic, device)
    if bound is None:
        return None
    shares = traffic.programs / device.sms
    idle = math.ceil(shares) / shares
    anew = 0.0
    if traffic.wave_sectors is not None and traffic.wave_programs:
        read = traffic.wave_sectors * SECTOR_BYTES * traffic.programs / traffic.wave_programs
        anew = (read + (traffic.unique_store_bytes or 0)) / (device.memory_gbps * 1e9)
    return max(bound.compute_seconds * idle, bound.memory_seconds, anew)


def _candidate(config: str, outcome: Outcome | None, kernel: str, device: Device, *, own: bool) -> Candidate:
    if outcome is None:
        return Candidate(config=config, own=own, pruned="not compiled")
    if outcome.cause:
        return Candidate(config=config, own=own, pruned=outcome.cause)
    facts = [fact for fact in outcome.facts if fact.kernel == kernel]
    failed = next((fact.failure for fact in facts if fact.failure is not None), None)
    if failed is not None or not facts:
        why = f"{failed.kind}: {(failed.message.splitlines() or [''])[0]}" if failed else "the kernel is not launched"
        return Candidate(config=config, own=own, pruned=why)
    worst = max(facts, key=lambda fact: (fact.spill_bytes or 0, fact.registers or 0))
    launches = [traffic for traffic in outcome.traffic if traffic.kernel == kernel]
    estimates = [estimate_seconds(launch, device) for launch in launches]
    known = [seconds for seconds in estimates if seconds is not None]
    return Candidate(
        config=config,
        own=own,
        registers=worst.registers,
        spill_bytes=worst.spill_bytes,
        shared_bytes=worst.shared_bytes,
        occupancy=worst.occupancy,
        code=" ".join(sorted(fact.code_fingerprint for fact in facts)),
        grid=tuple(size for launch in launches for size in launch.grid),
        estimate_seconds=sum(known) if known and len(known) == len(estimates) else None,
    )


def _beyond(candidate: Candidate, device: Device, limits: Limits) -> str:
    """Say which limit a candidate is beyond; "" where it is within all of them."""
    if candidate.spill_bytes is not None and candidate.spill_bytes > limits.spill_bytes:
        return f"spills {candidate.spill_bytes} bytes a thread"
    if candidate.occupancy is None:
        return ""
    warps = round(candidate.occupancy * device.max_warps_per_sm)
    if warps < SCHEDULERS:
        return f"{warps} resident {'warp' if warps == 1 else 'warps'} for {SCHEDULERS} schedulers"
    if candidate.occupancy < limits.occupancy:
        return f"occupancy {candidate.occupancy:.1%}, less than {limits.occupancy:.1%}"
    return ""
