"""Whether what the machine measures can be trusted: rules on its snapshots.

The rules see slot 0 and slot 1 of a pair, never base and head, and treat the slots alike: what is thrown away must not
depend on what is on trial, or the bound on false alarms would not hold.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopwatch.errors import MachineError
from flopwatch.measure.machine import ThrottleReason, decode_reasons
from flopwatch.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from flopwatch.measure.machine import Gpu, Snapshot

#: A GPU that does these protects itself from heat or from its power supply, and runs at a clock that no pair can trust.
#: The software power cap is not among them: an H200 works at its 700 W in every large kernel (2026-11-20), and pairs
#: that take turns cancel it to 0.05 %.
DISQUALIFYING = frozenset(
    {
        ThrottleReason.HW_SLOWDOWN,
        ThrottleReason.SW_THERMAL,
        ThrottleReason.HW_THERMAL,
        ThrottleReason.HW_POWER_BRAKE,
    }
)

#: Relative difference between the mean clocks of two slots past which one pair by itself says nothing of a case. The
#: margin under which slowdowns are not reported is 0.5 % by default, and a kernel bound by arithmetic follows the clock
#: one to one: a larger difference could make a verdict by itself.
MAX_CLOCK_DIFFERENCE = 0.005

#: The difference must also be this many times its own standard error. Under the power cap the clock moves by 30 MHz
#: from turn to turn, and the mean of 32 readings with it: of clean pairs of 8192^3, 0.08 % apart in time, half had
#: clocks 0.5 to 1 % apart (H200, 2026-11-21).
CLOCK_ERRORS = 4.0

#: Degrees to the hardware's slowdown that an idle GPU must have left. On Hopper the driver's own slowdown begins 2
#: degrees before the hardware's (`nvidia-smi -q -d TEMPERATURE`: slowdown limit -2 C, operating limit 0 C), and load
#: heats: a chip at rest with less than this is badly cooled, or not at rest.
MIN_MARGIN_C = 10

#: Free memory without which nothing is started: two processes with a CUDA context and torch's kernels (about 0.6 GiB
#: each), the L2 flush, and sets of inputs of twice the L2 cache (60 MB on an H200) on both sides, doubled. A caller
#: who knows the largest case asks for more.
MIN_FREE_BYTES = 4 << 30

#: Degrees a minute past which the temperature rises too fast; that it falls while few cases are confirmed is no fault.
#: A suite of 60 cases runs for 150 s; at this slope it would use up 25 degrees, all that a warm GPU has left before it
#: slows down.
MAX_SLOPE_C_PER_MIN = 10.0

#: The slope is of the second half of the snapshots, because the load itself heats the chip at first, and is not judged
#: in runs shorter than this: the chip and its heat sink need tens of seconds to settle.
MIN_SLOPE_SPAN_S = 60.0

#: The slope must be past the limit by this many times its own standard error, on so many snapshots: after a large
#: product the chip is 10 degrees warmer than after a copy. From the last case of each of 8 pairs, in random order, a
#: slope of more than 10 degrees a minute came out in 4 of 100 runs on a GPU that stayed at 47 (H200, 2026-11-21).
SLOPE_ERRORS = 4.0
MIN_SLOPE_SNAPSHOTS = 10
UNKNOWN_SLOPE = (0.0, math.inf)

#: Share of invalid (pair, case) samples past which the whole run is worth nothing. With a quarter gone the minimum
#: detectable effect grows by sqrt(4/3), 15 %, and what remains is the machine's choice.
MAX_INVALID_SHARE = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One reason not to trust the machine: what, why, and what to do."""

    what: str
    why: str = ""
    todo: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotReading:
    """What was read of the GPU after the turns of one slot of a pair, for one case.

    Attributes:
        sm_clock_mhz: mean clock of the multiprocessors; None where it could not be read.
        sm_clock_error_mhz: standard error of that mean, the readings taken as independent.
        reasons: why the clocks were not higher, in any of the turns.
    """

    sm_clock_mhz: float | None
    reasons: tuple[ThrottleReason, ...]
    sm_clock_error_mhz: float = 0.0

    @classmethod
    def of(cls, clocks_mhz: Iterable[int], reason_bits: Iterable[int]) -> SlotReading:
        """Sum up what `Watch.clock` and `Watch.reason_bits` returned; what they could not read is left out.

        >>> SlotReading.of([1980, 1965, -1], [0, 4]).sm_clock_mhz
        1972.5
        """
        clocks = [clock for clock in clocks_mhz if clock > 0]
        mask = 0
        for bits in reason_bits:
            mask |= max(bits, 0)
        return cls(
            sm_clock_mhz=statistics.fmean(clocks) if clocks else None,
            reasons=decode_reasons(mask),
            sm_clock_error_mhz=statistics.stdev(clocks) / math.sqrt(len(clocks)) if len(clocks) > 1 else 0.0,
        )


def before(gpu: Gpu, snapshot: Snapshot, *, needed_bytes: int = MIN_FREE_BYTES) -> tuple[Fault, ...]:
    """Return why nothing should be measured on an idle GPU.

    Args:
        gpu: what it is.
        snapshot: how it does, before any worker was started.
        needed_bytes: memory that both sides of the largest case need together.
    """
    faults = []
    if snapshot.processes:
        faults.append(_busy(snapshot.processes, gpu.name))
    if gpu.mig:
        faults.append(
            Fault(
                what=f"{gpu.name} is cut into MIG instances",
                why="the instances share clocks and power: what runs in another one moves the times of this one",
                todo="measure on a GPU with MIG disabled",
            )
        )
    if reasons := _disqualifying(snapshot.reasons or ()):
        faults.append(
            Fault(
                what=f"{gpu.name} holds its clocks down while idle: {_names(reasons)}",
                why="it protects itself from heat or from its power supply",
                todo="check cooling and power: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
            )
        )
    if snapshot.margin_c is not None and snapshot.margin_c < MIN_MARGIN_C:
        faults.append(
            Fault(
                what=f"{gpu.name} is {snapshot.margin_c} degrees C from where it slows down, before any load",
                why=f"at rest it should be {MIN_MARGIN_C} degrees away or more",
                todo="let it cool, and check its cooling",
            )
        )
    if snapshot.free_memory_bytes is not None and snapshot.free_memory_bytes < needed_bytes:
        faults.append(
            Fault(
                what=f"{gpu.name} has {format_bytes(snapshot.free_memory_bytes)} of free memory",
                why=f"both sides together need {format_bytes(needed_bytes)}",
                todo="stop what holds it (nvidia-smi tells), or measure smaller cases",
            )
        )
    return tuple(faults)


def pair_fault(first: SlotReading, second: SlotReading) -> str:
    """Return why a pair says nothing of a case by itself; empty where it does. The slots' order makes no difference.

    >>> cool = SlotReading.of([1980], [0])
    >>> pair_fault(cool, SlotReading.of([1965], [0]))
    'the clocks of the two slots differ by 0.76 % (1965 and 1980 MHz)'
    >>> pair_fault(cool, cool)
    ''
    """
    if reasons := _disqualifying((*first.reasons, *second.reasons)):
        return f"the GPU slowed down during the pair: {_names(reasons)}"
    clocks_mhz = clocks_apart(first, second)
    if clocks_mhz is None:
        return ""
    low, high = sorted(clocks_mhz)
    difference = 2 * (high - low) / (high + low)
    return f"the clocks of the two slots differ by {difference * 100:.2f} % ({low:.0f} and {high:.0f} MHz)"


def clocks_apart(first: SlotReading, second: SlotReading) -> tuple[float, float] | None:
    """Return the mean clocks of two slots, in MHz, where these differ and nothing else is wrong; None elsewhere.

    >>> clocks_apart(SlotReading.of([1980], [0]), SlotReading.of([1965], [0]))
    (1980.0, 1965.0)
    """
    if _disqualifying((*first.reasons, *second.reasons)):
        return None
    zero, one = first.sm_clock_mhz, second.sm_clock_mhz
    if zero is None or one is None:
        return None
    error = math.hypot(first.sm_clock_error_mhz, second.sm_clock_error_mhz)
    differ = 2 * abs(one - zero) / (one + zero) > MAX_CLOCK_DIFFERENCE and abs(one - zero) > CLOCK_ERRORS * error
    return (zero, one) if differ else None


def over_run(snapshots: Sequence[Snapshot], *, ours: Collection[int], invalid: int, measured: int) -> tuple[Fault, ...]:
    """Return why a run as a whole is worth nothing.

    Args:
        snapshots: taken during the run, in order.
        ours: every process that we had on the GPU at any time.
        invalid: (pair, case) samples that are not used for what `pair_fault` says of them.
        measured: all of them.
    """
    faults = []
    if foreign := newcomers(snapshots, ours=ours):
        faults.append(_busy(foreign, "the GPU"))
    slope, error = temperature_slope(snapshots)
    if slope - SLOPE_ERRORS * error > MAX_SLOPE_C_PER_MIN:
        faults.append(
            Fault(
                what=f"the GPU's temperature moved by {slope:+.1f} degrees C a minute",
                why=f"past {MAX_SLOPE_C_PER_MIN:g} a minute its clocks do not settle",
                todo="check its cooling, wait until it has settled, and run again",
            )
        )
    if measured and invalid / measured > MAX_INVALID_SHARE:
        faults.append(
            Fault(
                what=f"{invalid} of {measured} samples are invalid",
                why="the GPU slowed down, for heat or for want of power",
                todo="check cooling and power, and that nothing else uses the GPU; then run again",
            )
        )
    return tuple(faults)


def newcomers(snapshots: Iterable[Snapshot], *, ours: Collection[int]) -> set[int]:
    """Return the processes on the GPU that are not ours.

    In a container the driver may number processes as another namespace does. Then none of ours is found among them, all
    are unknown, and which are foreign cannot be told: none is returned. Those that were there before any of ours are
    `before`'s to find.
    """
    seen = {process for snapshot in snapshots for process in snapshot.processes or ()}
    return seen - set(ours) if seen & set(ours) else set()


def temperature_slope(snapshots: Sequence[Snapshot]) -> tuple[float, float]:
    """Return how fast the temperature moves in the second half of a run, and the standard error of that.

    Both are in degrees C a minute, by least squares. Nothing is known, 0 give or take infinity, where the snapshots
    span less than `MIN_SLOPE_SPAN_S`, are fewer than `MIN_SLOPE_SNAPSHOTS`, or do not tell the temperature.
    """
    told = [(snapshot.time_s, snapshot.temperature_c) for snapshot in snapshots if snapshot.temperature_c is not None]
    if not told or told[-1][0] - told[0][0] < MIN_SLOPE_SPAN_S:
        return UNKNOWN_SLOPE
    middle_s = (told[0][0] + told[-1][0]) / 2
    times, degrees = zip(*((time_s, celsius) for time_s, celsius in told if time_s >= middle_s), strict=True)
    if len(set(times)) < MIN_SLOPE_SNAPSHOTS:
        return UNKNOWN_SLOPE
    slope, start = statistics.linear_regression(times, degrees)
    residual = math.hypot(*(celsius - start - slope * time_s for time_s, celsius in zip(times, degrees, strict=True)))
    error = residual / math.sqrt(len(times) - 2) / (statistics.pstdev(times) * math.sqrt(len(times)))
    return slope * 60, error * 60


def describe(faults: Sequence[Fault]) -> str:
    """Say in a line what is wrong, why and what to do; "" where there is no fault."""
    return "; ".join(f"{fault.what} ({fault.why}): {fault.todo}" for fault in faults)


def require(faults: Sequence[Fault]) -> None:
    """Go on only where there is no fault.

    Raises:
        MachineError: there is one; all are named.
    """
    if faults:
        raise MachineError(
            f"the machine is unfit: {'; '.join(fault.what for fault in faults)}",
            why="; ".join(fault.why for fault in faults if fault.why),
            todo="; ".join(fault.todo for fault in faults if fault.todo),
        )


def _busy(processes: Collection[int], where: str) -> Fault:
    names = ", ".join(map(str, sorted(processes)))
    return Fault(
        what=f"{where} is used by another process ({names})",
        why="it takes turns with what is measured, and moves clocks and caches",
        todo="stop it (nvidia-smi names it), or choose another GPU with CUDA_VISIBLE_DEVICES",
    )


def _disqualifying(reasons: Iterable[ThrottleReason]) -> list[ThrottleReason]:
    present = set(reasons) & DISQUALIFYING
    return [reason for reason in ThrottleReason if reason in present]


def _names(reasons: Iterable[ThrottleReason]) -> str:
    return ", ".join(reason.value for reason in reasons)
