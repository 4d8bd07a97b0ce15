"""The calibration as tables: the generated parts of docs/evidence-static.md, between markers as in docs/evidence.md."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evidence.page import filled, table
from evidence.planted import PLANTED
from evidence.refactorings import REFACTORINGS
from evidence.regressions import REGRESSIONS, UNTRIED, Regression, Sight
from evidence.samples import FOLDER
from evidence.static_records import Compilation, Measurement, Slowdown
from flopwatch.model import from_json
from flopwatch.static.comparison import FAIL_ALONE, FAIL_TOGETHER, RULES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flopwatch.static.comparison import FactChange

PAGE = FOLDER.parent / "docs" / "evidence-static.md"
RESULTS = FOLDER / "static"
#: What is measured, and what rules are therefore judged by.
MEASURED_DEVICE = "h200"
#: A rule of which more than half of what it fires on is not slower has no power.
LEAST_PRECISION = 0.5
#: What has to speak for a rule before it may fail on its own: so many regressions, each slower by this at least.
FAILS_FROM = 3
FAILS_BY = 0.02
_NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """What was compiled, one of each device and Triton, and what was measured; None where nothing was yet."""

    compilations: tuple[Compilation, ...]
    measurement: Measurement | None = None

    @classmethod
    def read(cls, folder: Path = RESULTS) -> Calibration:
        """Read what is kept: the device that is measured and the newest Triton first, and the newest measurement."""
        compilations = [from_json(path.read_bytes(), Compilation) for path in sorted(folder.glob("*-triton-*.json"))]
        compilations.sort(key=lambda each: [-int(part) for part in each.versions["triton"].split(".")[:3]])
        compilations.sort(key=lambda each: each.device != MEASURED_DEVICE)
        measured = sorted(folder.glob("measured-*.json"))
        return cls(
            compilations=tuple(compilations),
            measurement=from_json(measured[-1].read_bytes(), Measurement) if measured else None,
        )

    def slowdown(self, name: str) -> Slowdown | None:
        """Return what a change costs; None where that was not measured."""
        return (
            next((each for each in self.measurement.slowdowns if each.name == name), None) if self.measurement else None
        )

    def is_slower(self, name: str) -> bool | None:
        """Tell whether a change makes anything slower; a refactoring does not, by what it is."""
        slowdown = self.slowdown(name)
        if slowdown is not None:
            return slowdown.is_slower
        return None if isinstance(PLANTED[name], Regression) else False


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What a rule is worth.

    Attributes:
        fact: its name.
        fired: the changes on which it warns or fails, in any compilation for the device that is measured.
        meant: regressions that it should name.
        slower: those on which it fires, of which it is known that they are slower.
        not_slower: likewise that they are not.
        slowdowns: of those that were measured, as a share.
    """

    fact: str
    fired: tuple[str, ...]
    meant: tuple[str, ...]
    slower: tuple[str, ...]
    not_slower: tuple[str, ...]
    slowdowns: tuple[float, ...]

    @property
    def precision(self) -> float | None:
        """The share of what it fires on that is slower; None where nothing of it was measured."""
        known = len(self.slower) + len(self.not_slower)
        return len(self.slower) / known if known else None

    @property
    def recall(self) -> float | None:
        """The share of what it should name on which it fires."""
        return len(set(self.meant) & set(self.fired)) / len(self.meant) if self.meant else None

    @property
    def may_fail(self) -> bool:
        """Whether the measurements would bear that it fails on its own."""
        return not self.not_slower and sum(slowdown >= FAILS_BY for slowdown in self.slowdowns) >= FAILS_FROM


def is_named(compilation: Compilation, planted: Regression) -> bool:
    """Tell whether the rules say what happened."""
    return not {change.fact for change in compilation.findings(planted.name)}.isdisjoint(planted.facts)


def rules(calibration: Calibration) -> tuple[Rule, ...]:
    """Say what each rule is worth."""
    found = []
    for fact in RULES:
        fired = dict.fromkeys(
            name
            for compilation in calibration.compilations
            if compilation.device == MEASURED_DEVICE
            for name in compilation.heads
            if any(change.fact == fact for change in compilation.findings(name))
        )
        measured = [slowdown for name in fired if (slowdown := calibration.slowdown(name)) and slowdown.log_ratios]
        found.append(
            Rule(
                fact=fact,
                fired=tuple(fired),
                meant=tuple(each.name for each in REGRESSIONS if fact in each.facts),
                slower=tuple(name for name in fired if calibration.is_slower(name) is True),
                not_slower=tuple(name for name in fired if calibration.is_slower(name) is False),
                slowdowns=tuple(slowdown.bounds[1] for slowdown in measured),
            )
        )
    return tuple(found)


def powerless(calibration: Calibration) -> tuple[str, ...]:
    """Name the rules that are to be dropped: they fire on nothing that could try them, or on what is not slower."""
    return tuple(
        rule.fact
        for rule in rules(calibration)
        if (not rule.fired and rule.fact not in UNTRIED)
        or (rule.precision is not None and rule.precision < LEAST_PRECISION)
    )


def write(page: Path = PAGE) -> None:
    """Write the generated parts of the page."""
    page.write_text(filled(page.read_text(encoding="utf-8"), blocks(Calibration.read())), encoding="utf-8")


def blocks(calibration: Calibration) -> dict[str, str]:
    """Return the generated parts by name."""
    return {
        "summary": _summary(calibration),
        "compiled": _compiled(calibration),
        "measured": _measured(calibration.measurement),
        "regressions": _regressions(calibration),
        "refactorings": _refactorings(calibration),
        "rules": _rules(calibration),
    }


def _summary(calibration: Calibration) -> str:
    lines = []
    for each in calibration.compilations:
        coded = [planted for planted in REGRESSIONS if planted.sight is Sight.CODE]
        named = sum(is_named(each, planted) for planted in REGRESSIONS)
        quiet = sum(not each.findings(planted.name) for planted in REFACTORINGS)
        lines.append(
            f"* {each.device}, triton {each.versions['triton']}: **{named} of {len(REGRESSIONS)}** planted regressions"
            f" are named ({len(coded)} of them show\n  in compiled code), and {quiet} of {len(REFACTORINGS)}"
            " refactorings say nothing."
        )
    return "\n".join(lines)


def _compiled(calibration: Calibration) -> str:
    return "\n".join(
        f"* {each.device}: {_versions(each.versions)}; commit {each.commit[:12]}, {each.date}"
        for each in calibration.compilations
    )


def _measured(measurement: Measurement | None) -> str:
    if measurement is None:
        return "Nothing has been measured yet."
    gpu, commands = measurement.machine.gpu, "\n".join(f"$ {command}" for command in measurement.commands)
    return (
        f"One {gpu.name if gpu else 'machine without a GPU'}, {measurement.date},"
        f" driver {gpu.driver if gpu else 'none'}, {_versions(measurement.machine.versions)};"
        f" commit {measurement.commit[:12]}:\n\n```console\n{commands}\n```"
    )


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _regressions(calibration: Calibration) -> str:
    first, *others = calibration.compilations
    heads = ["planted", "what it is", "case", "seen", f"what the rules say, {_column(first)}", *map(_column, others)]
    rows = []
    for planted in REGRESSIONS:
        slowdown = calibration.slowdown(planted.name)
        rows.append(
            (
                f"`{planted.name}`",
                planted.cause,
                f"`{planted.case.removesuffix(',flopwatch]')}]`",
                planted.sight.value,
                _told(first, planted),
                *("named" if is_named(each, planted) else "no" for each in others),
                slowdown.text if slowdown else _NOT_MEASURED,
            )
        )
    return table([*heads, "slower by"], rows, left=len(heads))


def _told(compilation: Compilation, planted: Regression) -> str:
    """Say what names a regression, of the configuration that the tuner tries first, and what else is found."""
    findings = compilation.findings(planted.name)
    first = compilation.chosen(planted.name)
    naming = [change for change in findings if change.fact in planted.facts]
    naming.sort(key=lambda change: change.config not in first)
    others = ", ".join(dict.fromkeys(change.fact for change in findings if change.fact not in planted.facts))
    if not naming:
        return f"no; found are {others}" if others else "no"
    return f"**{_brief(naming[0])}**" + (f"; beside it {others}" if others else "")


def _brief(change: FactChange) -> str:
    """Write a finding for a cell of a table: a compiler's message is cut."""
    return change.brief.partition(", Required")[0].replace("|", "\\|") + (")" if ", Required" in change.brief else "")


def _refactorings(calibration: Calibration) -> str:
    heads = ["refactoring", "what it is", *map(_column, calibration.compilations)]
    rows = []
    for planted in REFACTORINGS:
        cells = []
        for each in calibration.compilations:
            findings, changes = each.findings(planted.name), each.changes(planted.name)
            notes = Counter(change.fact for change in changes)
            told = ", ".join(f"{count} of {fact}" for fact, count in notes.items())
            cells.append(
                "; ".join(map(_brief, findings)) if findings else f"nothing; notes: {told}" if told else "nothing"
            )
        rows.append((f"`{planted.name}`", planted.cause, *cells))
    return table(heads, rows, left=len(heads))


def _rules(calibration: Calibration) -> str:
    heads = ("rule", "severity", "fires on", "of them slower", "precision", "recall", "slowdowns", "fails by itself")
    rows = [
        (
            rule.fact,
            _severity(rule.fact),
            f"{len(rule.fired)}" if rule.fired else UNTRIED.get(rule.fact, "nothing"),
            f"{len(rule.slower)} of {len(rule.slower) + len(rule.not_slower)}",
            _share(rule.precision),
            _share(rule.recall),
            _range(rule.slowdowns),
            "borne out" if rule.may_fail else "no",
        )
        for rule in rules(calibration)
    ]
    return table(heads, rows, left=2)


def _severity(fact: str) -> str:
    """Say what a rule does: alone, and beside others."""
    beside = sorted({other for together in FAIL_TOGETHER if fact in together for other in together - {fact}})
    return "fails" if fact in FAIL_ALONE else f"warns, fails beside {', '.join(beside)}" if beside else "warns"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _range(slowdowns: Sequence[float]) -> str:
    if not slowdowns:
        return _NOT_MEASURED
    low, middle, high = min(slowdowns), statistics.median(slowdowns), max(slowdowns)
    return f"{100 * low:.0f} to {100 * high:.0f} %, median {100 * middle:.0f} %"


def _column(compilation: Compilation) -> str:
    return f"{compilation.device}, triton {compilation.versions['triton']}"
