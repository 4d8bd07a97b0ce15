"""What a survey says, as plain lines and cells that a terminal and Markdown share."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopwatch.errors import ExitCode
from flopwatch.report.causes import CODE
from flopwatch.report.failed import failed
from flopwatch.report.wording import count, grouped, several
from flopwatch.static.comparison import Severity
from flopwatch.static.recorder import Autotune
from flopwatch.units import format_bytes, format_seconds, short_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flopwatch.model import KernelFacts
    from flopwatch.static.comparison import FactChange
    from flopwatch.survey import Drift, LaunchWork, Survey

#: More kernels or devices than this are counted, not named.
MAX_NAMES = 4
#: The columns of `rows`.
COLUMNS = ("registers", "spills", "shared", "occupancy", "tensor cores", "code")
#: The columns of `launch_rows`.
LAUNCH_COLUMNS = ("case", "kernel", "device", "at best", "FLOPs of dots", "bytes", "waves", "wave reuse", "imbalance")
#: Of them, the first that is to the right.
FIRST_NUMBER = 3
_TENSOR = re.compile(r"[A-Z]+MMA(?=\.|$)|V_(?:S?MFMAC?|WMMA)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One configuration as it is shown, of all devices for which nothing of it differs.

    Attributes:
        kernel: its name, and the dtype that tells its variants apart: its first pointer's.
        variant: the types of its arguments.
        config: its settings but for what is switched off.
        devices: for which it was compiled.
        cells: of `COLUMNS`; of what does not compile or fit, the kind of error and nothing more.
        spills: whether it does.
        failed: whether it does not compile or fit.
        launched: some case launches it, but for trials of the autotuner.
    """

    kernel: str
    variant: str
    config: str
    devices: tuple[str, ...]
    cells: tuple[str, ...]
    spills: bool
    failed: bool
    launched: bool


def sentence(survey: Survey) -> str:
    """Say the verdict in one sentence, as the exit code says it."""
    match ExitCode(survey.exit_code):
        case ExitCode.REGRESSED:
            return _regressed(survey)
        case ExitCode.UNDECIDED:
            return _undecided(survey)
        case _:
            return _fine(survey)


def provenance(survey: Survey) -> str:
    """Say what was compiled, by what, and how long that took."""
    sides = " -> ".join(short_commit(side) for side in (survey.base, survey.head) if side is not None)
    versions = ", ".join(f"{name} {version}" for name, version in survey.versions.items())
    parts = [sides, "no GPU was used", versions, format_seconds(survey.seconds)]
    match survey.autotune:
        case Autotune.PREDICTED:
            parts.insert(1, "of autotuned kernels the configurations that a call would time")
        case Autotune.FIRST:
            parts.insert(1, "the first configuration of each autotuned kernel alone")
        case Autotune.ALL:
            pass
    return "; ".join(parts)


def compile_line(survey: Survey) -> str:
    """Say what compiling took, stage by stage, and what took longest; "" where nobody took the time.

    Each is of when and where it was compiled, so that it is told and not judged.
    """
    timed = [fact for fact in survey.facts if fact.compile_seconds]
    if not timed:
        return ""
    stages: Counter[str] = Counter()
    for fact in timed:
        stages.update(fact.compile_seconds)
    longest = max(timed, key=lambda fact: sum(fact.compile_seconds.values()))
    each = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in stages.items())
    before = sum(sum(fact.compile_seconds.values()) for fact in survey.base_facts)
    of_base = f", of base {format_seconds(before)}" if before else ""
    return (
        f"compiling took {format_seconds(stages.total())} when it was done{of_base}: {each};"
        f" the longest {format_seconds(sum(longest.compile_seconds.values()))}, {longest.kernel} [{longest.config}]"
        f" for {longest.device}"
    )


def change_lines(changes: Iterable[FactChange]) -> list[tuple[Severity, str]]:
    """Write each difference once for all devices that have it, the worst first.

    Code that differs in no number is a line a kernel.
    """
    order = list(Severity)
    told = [change for change in changes if change.fact != CODE or change.severity is not Severity.NOTE]
    devices = grouped((replace(change, device=""), change.device) for change in told)
    lines = [(change.severity, replace(change, device=", ".join(names)).text) for change, names in devices]
    lines.sort(key=lambda line: order.index(line[0]))
    recoded = Counter(change.kernel for change in changes if change.fact == CODE and change.severity is Severity.NOTE)
    lines += [
        (Severity.NOTE, f"{kernel}: other code in {count(number, 'configuration')}, of equal registers and spills")
        for kernel, number in recoded.items()
    ]
    return lines


def drift_lines(drifts: Sequence[Drift]) -> list[str]:
    """Write what drifted, a line a configuration, of all devices that have it."""
    by_row = grouped(((drift.kernel, drift.config, drift.variant, drift.device), drift.brief) for drift in drifts)
    devices = grouped(
        ((kernel, config, variant, ", ".join(facts)), device) for (kernel, config, variant, device), facts in by_row
    )
    return [
        f"{kernel} on {', '.join(names)} [{config}] ({variant}): {facts}"
        for (kernel, config, variant, facts), names in devices
    ]


def missing_lines(survey: Survey) -> list[str]:
    """Write what cannot run as it is launched, or is not known: not compiled at all, or not counted."""
    failures = grouped(
        (f"{fact.kernel} [{fact.config}]: {_failure(fact)}", fact.device) for fact in survey.unlaunchable
    )
    lines = [f"does not compile or fit on {', '.join(devices)}: {text}" for text, devices in failures]
    strays = grouped(
        ((f"{launch.kernel} [{launch.config}]: {text}", launch.device), launch.case.id)
        for launch in survey.astray
        for text in launch.out_of_bounds
    )
    by_device = grouped((f"{text}, in {several(cases)}", device) for (text, device), cases in strays)
    lines += [f"leaves its tensors on {', '.join(devices)}: {text}" for text, devices in by_device]
    for side, words in (("head", "not compiled"), ("base", "not compiled on base")):
        gaps = grouped((gap.cause, gap.case.id) for gap in survey.gaps if gap.side == side)
        lines += [f"{words}: {several(list(dict.fromkeys(cases)))}: {cause}" for cause, cases in gaps]
    uncounted = grouped((fact.uncounted, fact.device) for fact in survey.facts if fact.uncounted)
    lines += [f"instructions not counted on {', '.join(devices)}: {why}" for why, devices in uncounted]
    return lines


def rows(facts: Iterable[KernelFacts]) -> list[Row]:
    """Return a row for each configuration, and several where devices differ, by kernel, variant and configuration."""
    shown = [
        (
            Row(
                kernel=f"{fact.kernel} {fact.variant.split(',')[0].split(':')[0].lstrip('*')}",
                variant=fact.variant,
                config=" ".join(item for item in fact.config.split(",") if not item.endswith("=False")),
                devices=(),
                cells=_cells(fact),
                spills=bool(fact.spill_bytes),
                failed=fact.failure is not None,
                launched=fact.chosen,
            ),
            fact,
        )
        for fact in sorted(facts, key=lambda fact: (fact.kernel, fact.variant, fact.config))
    ]
    together = grouped(((fact.config, row), fact.device) for row, fact in shown)
    return [replace(row, devices=tuple(devices)) for (_, row), devices in together]


def launch_rows(survey: Survey) -> list[tuple[str, ...]]:
    """Return the cells of `LAUNCH_COLUMNS` for each launch of a case, those that devices share once."""
    cells = ((launch.case.id, launch.kernel, *_launch_cells(launch)) for launch in survey.launches)
    together = grouped(zip(cells, (launch.device for launch in survey.launches), strict=True))
    return [(case, kernel, ", ".join(devices), *numbers) for (case, kernel, *numbers), devices in together]


def _launch_cells(launch: LaunchWork) -> tuple[str, ...]:
    least = "" if launch.least_seconds is None else f"{format_seconds(launch.least_seconds)}, {launch.limit}"
    return (
        least or ("unknown" if launch.unknown else ""),
        "" if not launch.dot_flops else f"{launch.dot_flops:.4g}",
        "" if launch.compulsory_bytes is None else format_bytes(launch.compulsory_bytes),
        "" if launch.waves is None else f"{launch.waves:.2f}",
        "" if launch.wave_reuse is None else f"{launch.wave_reuse:.1f}",
        "" if launch.imbalance is None else f"{launch.imbalance:.2f}",
    )


def _cells(fact: KernelFacts) -> tuple[str, ...]:
    if fact.failure is not None:
        return (fact.failure.kind, *("" for _ in COLUMNS[1:]))
    limit = f", {fact.occupancy_limit}" if fact.occupancy_limit else ""
    return (
        "unknown" if fact.registers is None else str(fact.registers),
        format_bytes(fact.spill_bytes or 0) if fact.spill_bytes else "0",
        format_bytes(fact.shared_bytes or 0),
        "" if fact.occupancy is None else f"{fact.occupancy * 100:.0f} %{limit}",
        tensor_cores(fact.instructions),
        "" if fact.code_bytes is None else format_bytes(fact.code_bytes),
    )


def tensor_cores(instructions: dict[str, int]) -> str:
    """Name the instructions of tensor cores by their kind; "" where there are none.

    >>> tensor_cores({"HGMMA.64x256x16.F32": 4, "HMMA.16816.F32": 64, "FFMA": 9, "HMMA.1688.F32": 8, "all": 99})
    '4 HGMMA, 72 HMMA'
    """
    kinds: Counter[str] = Counter()
    for name, number in instructions.items():
        if found := _TENSOR.match(name):
            kinds[found[0]] += number
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


def _failure(fact: KernelFacts) -> str:
    assert fact.failure is not None  # noqa: S101 - chosen by the caller
    lines = fact.failure.message.strip().splitlines() or [""]
    return f"{fact.failure.kind}: {lines[0] if len(lines) == 1 else f'{lines[0]} {lines[-1].strip()}'}"


def _subject(survey: Survey) -> str:
    """Say what was compiled for what."""
    names = sorted({fact.kernel for fact in survey.facts})
    what = f"{count(len(survey.facts), 'configuration')} of {_named(names, 'kernel')}"
    return f"{what} for {_named(survey.devices, 'device')}"


def _named(names: Sequence[str], noun: str) -> str:
    if len(names) > MAX_NAMES:
        return count(len(names), noun)
    return " and ".join(names).replace(" and ", ", ", max(len(names) - 2, 0))


def _regressed(survey: Survey) -> str:
    if survey.held is not None and survey.drifts:
        places = {(drift.kernel, drift.device, drift.variant, drift.config) for drift in survey.drifts}
        return (
            f"Drifted: {count(len(places), 'configuration')} {_are(len(places))} not as {survey.held.path} holds them."
        )
    if survey.base is None:
        parts = []
        for words, found in (
            ("Does not compile or fit", survey.unlaunchable),
            ("Leaves its tensors", survey.astray),
        ):
            if found:
                names, devices = (sorted({getattr(each, name) for each in found}) for name in ("kernel", "device"))
                parts.append(f"{words}: {_named(names, 'kernel')} for {_named(devices, 'device')}")
        return f"{'; '.join(parts)}; of {_subject(survey)}."
    return f"Regressed: {'; '.join(failed(survey.failed_changes))}."


def _undecided(survey: Survey) -> str:
    if survey.held is not None and survey.held.refusal:
        return f"Not compared with {survey.held.path}: {survey.held.refusal}."
    if not survey.facts:
        return "Undecided: no kernel could be compiled without running."
    cases = len({gap.case for gap in survey.new_gaps})
    return f"Undecided: {count(cases, 'case')} could be compiled on base and not on head."


def _fine(survey: Survey) -> str:
    if survey.held is not None and survey.held.written:
        return f"Written: {survey.held.path} holds {_subject(survey)}."
    if survey.held is not None:
        return f"No drift: {_subject(survey)} {_are(len(survey.facts))} as {survey.held.path} holds them."
    spilling = sum(bool(fact.spill_bytes) for fact in survey.facts)
    trials = sum(fact.failure is not None for fact in survey.facts)
    rest = f"; {spilling} spill{'s' if spilling == 1 else ''}" if spilling else ""
    if survey.base is None:
        rest += (
            f"; {count(trials, 'trial')} of the autotuner {'does' if trials == 1 else 'do'} not fit" if trials else ""
        )
        return f"What is launched compiles and fits: {_subject(survey)}{rest}."
    warnings = sum(change.severity is Severity.WARN for change in survey.fact_changes)
    if not survey.fact_changes:
        return f"Nothing changed: no static fact of {_subject(survey)} differs from base."
    told = f"{count(warnings, 'warning')}, which a gate on a GPU has to judge" if warnings else "no warning"
    return f"Nothing regressed: {told}; {count(len(survey.fact_changes), 'difference')} in {_subject(survey)}."


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def hidden(survey: Survey) -> Iterator[str]:
    """Yield what a report of a comparison leaves out."""
    if survey.base is not None or survey.held is not None:
        number = count(len(survey.facts), "configuration")
        yield f"{number} compiled: --all shows them, --json has all that is known of each."
