"""A profile in a terminal: what a call takes and what it costs the host, Proton's tree, and the counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from flopwatch.report.foreign import safe
from flopwatch.report.wording import count
from flopwatch.static.devices import device_called
from flopwatch.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from rich.console import Console

    from flopwatch.model import Choice
    from flopwatch.profile.hatchet import Frame
    from flopwatch.profile.result import Profile, ProfiledCase

#: A loop of calls that leaves the GPU without a kernel for more than this share of its time waits for the host. Less is
#: no sign of that: between kernels that are queued a GPU needs time as well.
WAITS_FROM = 0.25
_SECTOR_BYTES = 32
_TENSOR = "sm__ops_path_tensor"


def print_profile(profile: Profile, console: Console) -> None:
    """Print a profile."""
    console.print(safe(headline(profile), "bold"), soft_wrap=True)
    console.print(safe(_provenance(profile), "dim"), soft_wrap=True)
    ran = [case for case in profile.cases if case.kernel_seconds]
    if ran:
        console.print()
        console.print(_cases(profile, ran))
        console.print()
        print_tree(profile.tree, console)
    for line in _lines(profile):
        console.print(safe(line), soft_wrap=True)
    for case in profile.cases:
        if case.counters:
            console.print()
            console.print(_counters(case))
    for name, path in profile.files.items():
        console.print(safe(f"{name}: {path}"), soft_wrap=True)


def headline(profile: Profile) -> str:
    """Say in one sentence what was profiled, and how much of a call is the GPU's."""
    ran = [case for case in profile.cases if case.kernel_seconds]
    if not ran:
        return "Nothing could be profiled."
    waiting = [case for case in ran if waits(case)]
    what = f"{count(len(ran), 'case')} on {profile.gpu}"
    if not waiting:
        return f"{what}: a loop of calls keeps the GPU busy."
    if len(ran) == 1:
        return f"{what}: a loop of calls waits for the host."
    return f"{what}: loops of {len(waiting)} wait for the host."


def print_tree(root: Frame, console: Console) -> None:
    """Print Proton's tree: times and work of all calls; rates of the frames whose work was declared."""
    table = Table(title="Proton's tree, all calls", title_justify="left")
    table.add_column("frame", overflow="fold")
    for name in ("time", "share", "launches", "a launch", "TFLOPS", "GB/s"):
        table.add_column(name, justify="right", no_wrap=True)
    total = root.seconds
    for depth, frame in root.walk():
        seconds, launches = frame.seconds, frame.launches
        table.add_row(
            safe(frame.name, indent=2 * depth),
            format_seconds(seconds) if seconds else "",
            f"{100 * seconds / total:.1f} %" if total and seconds else "",
            str(launches) if launches else "",
            format_seconds(seconds / launches) if seconds and launches else "",
            rate(frame.flops, seconds, "TFLOPS"),
            rate(frame.bytes_moved, seconds, "GB/s"),
        )
    console.print(table)


def rate(work: float, seconds: float, unit: str) -> str:
    """Write a throughput without its unit; "" where there is none.

    >>> rate(1.1e12, 2e-3, "TFLOPS"), rate(0.0, 2e-3, "GB/s")
    ('550.0', '')
    """
    return format_rate(work / seconds, unit).removesuffix(f" {unit}") if work and seconds else ""


def _cases(profile: Profile, cases: list[ProfiledCase]) -> Table:
    device = device_called(profile.gpu)
    table = Table(title="One call", title_justify="left")
    table.add_column("case", overflow="fold")
    for name in ("kernels", "TFLOPS", "GB/s", "of the roof", "cold", "host", "in a loop", "without a kernel"):
        table.add_column(name, justify="right", no_wrap=True)
    for case in cases:
        seconds = case.kernel_seconds or 0.0
        least = device.least_seconds(case.flops, case.bytes_moved, case.case.values) if device else 0.0
        table.add_row(
            safe(case.case.id),
            format_seconds(seconds),
            rate(case.flops, seconds, "TFLOPS"),
            rate(case.bytes_moved, seconds, "GB/s"),
            f"{100 * least / seconds:.1f} %" if least else "",
            *(
                format_seconds(value) if value is not None else ""
                for value in (case.call_seconds, case.host_seconds, case.wall_seconds, case.idle_seconds)
            ),
        )
    return table


def waits(case: ProfiledCase) -> bool:
    """Tell whether a loop of calls waits for the host."""
    idle, wall = case.idle_seconds, case.wall_seconds
    return bool(wall) and idle is not None and wall is not None and idle > WAITS_FROM * wall


def _lines(profile: Profile) -> Iterator[str]:
    """Yield what the tables do not say."""
    for case in profile.cases:
        if waits(case) and case.host_seconds is not None and case.idle_seconds is not None:
            yield (
                f"{case.case.id}: the host needs {format_seconds(case.host_seconds)} a call, and the GPU is without a"
                f" kernel for {format_seconds(case.idle_seconds)} of it"
            )
        for choice in ran_in(case, {frame.name for _, frame in profile.tree.walk()}):
            yield f"{case.case.id}: {choice.kernel} runs in {choice.config}"
        if case.memory is not None:
            yield (
                f"{case.case.id}: a call takes {format_bytes(case.memory.peak_bytes)} of memory at its peak, and leaves"
                f" {format_bytes(max(round(case.memory.growth_bytes), 0))} behind"
            )
        if case.failure is not None:
            yield f"{case.case.id} failed: {case.failure.kind}: {case.failure.message}"
    for note in profile.notes:
        yield f"note: {note}"


def ran_in(case: ProfiledCase, kernels: Collection[str]) -> list[Choice]:
    """Return the choices of the autotuners whose kernels were recorded; those of kernels that make inputs were not.

    A kernel may give itself a name that begins with that of its function.
    """
    return [choice for choice in case.choices if any(name.startswith(choice.kernel) for name in kernels)]


def _counters(case: ProfiledCase) -> Table:
    table = Table(title=safe(f"Counters of one call of {case.case.id}, caches flushed"), title_justify="left")
    table.add_column("counter", overflow="fold")
    for launch in case.counters:
        table.add_column(safe(launch.kernel), justify="right", overflow="fold")
    for name, values in counter_rows([launch.counters for launch in case.counters]):
        table.add_row(name, *("" if value is None else counter(name, value) for value in values))
    return table


def counter_rows(launches: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, list[float | None]]]:
    """Yield each counter with its value in each of these launches, but for those of tensor cores that are all zero.

    Of the tensor cores there is a counter for each pair of types, and all but one or two are zero.
    """
    for name in dict.fromkeys(name for counters in launches for name in counters):
        values = [counters.get(name) for counters in launches]
        if not name.startswith(_TENSOR) or any(values):
            yield name, values


def counter(name: str, value: float) -> str:
    """Write a counter by what its name says that it counts.

    >>> counter("dram__bytes_read.sum", 2048.0), counter("lts__t_sectors_srcunit_tex_op_read.sum", 64.0)
    ('2 KiB', '2 KiB')
    >>> counter("gpu__time_duration.sum", 1500.0), counter("lts__t_sector_hit_rate.pct", 81.254)
    ('1.500 µs', '81.3 %')
    """
    if name == "gpu__time_duration.sum":
        return format_seconds(value * 1e-9)
    if "pct" in name:
        return f"{value:.1f} %"
    if "__bytes" in name:
        return format_bytes(round(value))
    if "__t_sectors" in name:
        return format_bytes(round(value * _SECTOR_BYTES))
    return f"{value:.4g}"


def _provenance(profile: Profile) -> str:
    versions = " ".join(f"{name} {profile.versions[name]}" for name in ("torch", "triton") if name in profile.versions)
    return f"{profile.gpu}; {versions}; {format_seconds(profile.seconds)}"
