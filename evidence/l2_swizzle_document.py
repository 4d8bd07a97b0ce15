"""The page of the study of L2 swizzling: its generated parts, between markers as in docs/evidence.md, and its plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evidence.l2_swizzle import HIT_RATE, MEASURED, PREDICTED, ROOT, Measurement, Prediction
from evidence.page import filled, table
from flopwatch.model import from_json
from flopwatch.profile.counters import DRAM_BYTES
from flopwatch.report.escape import markdown_code
from flopwatch.report.line_plot import line_plot
from flopwatch.report.study import timed, told, unit, values
from flopwatch.report.wording import effect
from flopwatch.static import find_device
from flopwatch.study.decisions import speed_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from evidence.l2_swizzle import Predicted
    from evidence.memory_trace import Reading
    from flopwatch.study.result import StudyResult

PAGE = ROOT / "docs" / "studies" / "l2_swizzle.md"
#: Pairs of lines that answer the question, a column each.
ANSWERS = (("flopwatch 8", "flopwatch none"), ("tilelang 10", "tilelang none"), ("flopwatch 8", "torch"))
NOT_YET = "Not measured yet: `python -m evidence.l2_swizzle measure` does so on a GPU."


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What is kept; the measurement is None where there was none yet."""

    prediction: Prediction
    measurement: Measurement | None

    @classmethod
    def read(cls, predicted: Path = PREDICTED, measured: Path = MEASURED) -> Findings:
        """Read the files."""
        return cls(
            prediction=from_json(predicted.read_bytes(), Prediction),
            measurement=from_json(measured.read_bytes(), Measurement) if measured.is_file() else None,
        )


def write(findings: Findings | None = None, page: Path = PAGE) -> None:
    """Write the page again, and its plots beside it."""
    findings = findings or Findings.read()
    page.write_text(filled(page.read_text(encoding="utf-8"), blocks(findings)), encoding="utf-8")
    for name, plot in plots(findings).items():
        (page.parent / f"l2_swizzle-{name}.svg").write_text(plot, encoding="utf-8")


def blocks(findings: Findings) -> dict[str, str]:
    """Return the generated parts by name."""
    found = findings.measurement
    return {
        "check": check(findings.prediction),
        "waves": waves(findings.prediction),
        "memory-time": memory_time(findings.prediction),
        "answer": NOT_YET if found is None else unfit(found.study) or answer(found.study),
        "measured": NOT_YET if found is None else unfit(found.study) or measured(found),
        "counted": NOT_YET if found is None else counted(found, findings.prediction),
        "memory": NOT_YET if found is None else memory(found),
    }


def plots(findings: Findings) -> dict[str, str]:
    """Return the plots by name: what memory has to give, and what was measured."""
    asked: dict[str, dict[str, float]] = {}
    for each in findings.prediction.predicted:
        asked.setdefault(each.line, {})[each.size] = each.all_waves_bytes / 1e9
    sizes = list(dict.fromkeys(each.size for each in findings.prediction.predicted))
    drawn = {"predicted": line_plot(asked, sizes, title="What all waves read, predicted", across="size", unit="GB")}
    if findings.measurement is not None and not unfit(findings.measurement.study):
        study = findings.measurement.study
        title = f"{unit(study)} of each order on {study.gpu}"
        drawn["measured"] = line_plot(values(study), study.points, title=title, across="size", unit=unit(study))
    return drawn


def check(prediction: Prediction) -> str:
    """Say whether the traffic model agrees with what was computed from the order of the tiles."""
    modelled = [each for each in prediction.predicted if each.modelled_bytes is not None]
    if prediction.disagreeing:
        return f"The traffic model says otherwise of {', '.join(prediction.disagreeing)}."
    return (
        f"The traffic model, which evaluates the compiled kernel, says the same of all {len(modelled)} first waves, to"
        " the byte."
    )


def waves(prediction: Prediction) -> str:
    """Tell the bytes of a wave, in the mean."""
    return _by_size(prediction, lambda each: f"{each.all_waves_bytes / each.waves / 1e6:.0f}")


def memory_time(prediction: Prediction) -> str:
    """Tell the bytes of all waves, and the time that memory takes for them over the least time of the arithmetic."""
    device = find_device(prediction.device)

    def cell(each: Predicted) -> str:
        arithmetic = 2 * int(each.size) ** 3 / (device.peaks.float16 * 1e12)
        share = each.all_waves_bytes / (device.memory_gbps * 1e9) / arithmetic
        return f"{each.all_waves_bytes / 1e9:.1f} ({100 * share:.0f} %)"

    return _by_size(prediction, cell)


def _by_size(prediction: Prediction, cell: Callable[[Predicted], str]) -> str:
    sizes = list(dict.fromkeys(each.size for each in prediction.predicted))
    lines = list(dict.fromkeys(each.line for each in prediction.predicted))
    cells = {(each.line, each.size): cell(each) for each in prediction.predicted}
    return table(["order", *sizes], [[line, *(cells[line, size] for size in sizes)] for line in lines], left=1)


def unfit(study: StudyResult) -> str:
    """Say why a measurement answers nothing; "" where it does."""
    if study.unfit:
        return f"The machine was unfit, so that its times are worth nothing: {markdown_code(study.unfit)}"
    return "" if timed(study) else "Nothing could be measured: `python -m evidence.l2_swizzle measure` says why."


def answer(study: StudyResult) -> str:
    """Tell, size by size, what an order gains over another, and whether the conclusions hold."""
    pairs = [(line, other) for line, other in ANSWERS if {line, other} <= {each.line for each in timed(study)}]
    rows = [[at, _best(study, at), *(_gain(study, line, other, at) for line, other in pairs)] for at in study.points]
    heads = ["size", "fastest order of ours", *(f"{line} beside {other}" for line, other in pairs)]
    return "\n".join([table(heads, rows, left=1), "", *(f"- {told(each)}" for each in study.decisions)])


def _best(study: StudyResult, at: str) -> str:
    own = [each for each in timed(study) if each.at == at and each.case.provider == "flopwatch"]
    return min(own, key=lambda each: each.seconds or 0.0).line.partition(" ")[2] if own else ""


def _gain(study: StudyResult, line: str, other: str, at: str) -> str:
    found = speed_between(study, line, other, at)
    if found is None:
        return ""
    slower = (None if bound is None else -bound for bound in (found.upper, found.lower))
    return effect(-found.estimate, *slower)


def measured(found: Measurement) -> str:
    """Tell what each line reached."""
    study, reached = found.study, values(found.study)
    versions = ", ".join(f"{name} {version}" for name, version in study.versions.items())
    rows = [
        [line, *(f"{numbers[at]:.1f}" if at in numbers else "" for at in study.points)]
        for line, numbers in reached.items()
    ]
    notes = [f"- {each.case.id}: {markdown_code(each.reason)}" for each in study.measured if each.reason]
    notes += [f"- {markdown_code(note)}" for note in study.notes]
    notes += [f"- {what}: {markdown_code(cause)}" for what, cause in found.failures.items()]
    where = (
        f"{unit(study)} on {study.gpu}, {found.measured}, {versions}; the median of {len(study.rounds)} rounds. Errors"
        f" are {_largest_error(study):.2f} eps at most."
    )
    parts = [where, "", table(["line", *study.points], rows, left=1), "", "![](l2_swizzle-measured.svg)"]
    return "\n".join([*parts, "", *notes])


def _largest_error(study: StudyResult) -> float:
    return max((each.numbers.max_diff_eps or 0.0 for each in study.measured if each.numbers is not None), default=0.0)


def counted(found: Measurement, prediction: Prediction) -> str:
    """Hold what the profiler counted against what was predicted, and against what the memory can deliver in a call."""
    if not found.counted:
        return "The counters could not be read; the cause stands above."
    asked = {(each.line, each.size): each.all_waves_bytes for each in prediction.predicted}
    took = {(each.line, each.at): each.seconds for each in timed(found.study)}
    peak = find_device(prediction.device).memory_gbps * 1e9
    rows = []
    for each in found.counted:
        read, hits = each.values.get(DRAM_BYTES[0]), each.values.get(HIT_RATE)
        predicted, seconds = asked.get((each.line, each.size)), took.get((each.line, each.size))
        rows.append(
            [
                each.line,
                each.size,
                "" if hits is None else f"{hits:.1f} %",
                "" if read is None else f"{read / 1e9:.1f}",
                "" if predicted is None else f"{predicted / 1e9:.1f}",
                "" if read is None or seconds is None else f"{100 * read / seconds / peak:.0f} %",
            ]
        )
    heads = ["line", "size", "L2 hits", "GB read of memory", "GB predicted", "of the memory's peak, while a call runs"]
    return table(heads, rows, left=2)


def memory(found: Measurement) -> str:
    """Tell what each time left behind, and what stays when all is dropped."""
    rows = [
        [
            each.what,
            str(each.times),
            *_mib(each.growth),
            *_mib(each.released - each.before),
        ]
        for each in found.memory
    ]
    heads = ["", "times", "tensors", "torch's cache", "GPU", "tensors", "torch's cache", "GPU"]
    when = f" ({found.study.gpu}, {found.traced or found.measured})"
    return f"In MiB: first what each time leaves behind, then what is left when all was dropped{when}.\n\n" + table(
        heads, rows, left=1
    )


def _mib(reading: Reading) -> Iterable[str]:
    return (f"{value / 2**20:.2f}" for value in (reading.tensors, reading.cached, reading.device))
