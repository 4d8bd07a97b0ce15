"""What a repository tells flopwatch about itself: ``[tool.flopwatch]`` in its pyproject.toml."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeGuard

from flopwatch.errors import ConfigError
from flopwatch.pattern import matches, pattern_problem, specificity
from flopwatch.waivers import Waiver, waiver_problems

if TYPE_CHECKING:
    from pathlib import Path


#: Of so many conclusions, at most, each can still be proved lost: `flopwatch.gate.conclusions` shares one level out.
MAX_CONCLUSIONS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedClaim:
    """A conclusion of a study that the gate watches.

    Attributes:
        study: the study's name.
        says: which of its conclusions, in the study's own words.
        at: of the points at which it is to be true, those at which it is watched, as patterns.
    """

    study: str
    says: str
    at: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The settings of one repository.

    Attributes:
        packages: dotted names of the code under test; both sides of a gate import these from their own checkout.
        source: the folder, relative to the repository root, from which `packages` are imported.
        benchmarks: the folder of the suites.
        main: the branch that a change is compared with.
        anchor: the commit whose time is the unit of the ratios that are recorded; "" records none.
        device: the GPU for which the static facts are compiled where none is named on the command line.
        margin_percent: a slowdown is reported as SLOWER only when it is proved larger than this.
        margins: margins of the cases that a pattern names, in percent; see `margin_of`.
        launch_margin_percent: likewise of what a call costs the host.
        same_within_percent: a case is SAME when a slowdown as large as this is ruled out.
        max_diff_eps: a result further than this from its float64 reference is BROKEN, in units of the dtype's epsilon
            relative to the largest reference magnitude; a suite may declare its own.
        waivers: slowdowns that are accepted for a time.
        conclusions: of studies, that the gate watches on a GPU.
    """

    packages: tuple[str, ...] = ()
    source: str = "src"
    benchmarks: str = "benchmarks"
    main: str = "main"
    anchor: str = ""
    device: str = "h200"
    margin_percent: float = 0.5
    margins: dict[str, float] = field(default_factory=dict)
    launch_margin_percent: float = 5.0
    same_within_percent: float = 1.0
    max_diff_eps: float = 8.0
    waivers: tuple[Waiver, ...] = ()
    conclusions: tuple[WatchedClaim, ...] = ()

    def margin_of(self, case_id: str) -> float:
        """Return the margin of a case in percent.

        Of the patterns that match, the most specific decides; of two that are as specific, the smaller margin.

        >>> config = Config(margins={"Attention*": 1.0, "Attention*lengths*": 2.0})
        >>> config.margin_of("Attention[2x8x512x64,lengths,float16]"), config.margin_of("Matmul[512,float16]")
        (2.0, 0.5)
        """
        matching = [(pattern, margin) for pattern, margin in self.margins.items() if matches(pattern, case_id)]
        default = ("", self.margin_percent)
        return min(matching, key=lambda item: (-specificity(item[0]), item[1]), default=default)[1]


def load_config(root: Path) -> Config:
    """Read ``[tool.flopwatch]`` from the pyproject.toml under `root`.

    Raises:
        ConfigError: naming every problem at once.
    """
    path = root / "pyproject.toml"
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("flopwatch", {})
    except FileNotFoundError:
        raise ConfigError(
            f"no pyproject.toml in {root}",
            why="flopwatch reads the repository's settings from its [tool.flopwatch] table",
            todo="run flopwatch inside the repository of your kernels",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML", why=str(error)) from None
    problems = _problems(table) if isinstance(table, dict) else [f"flopwatch is {table!r}, not a table"]
    if problems:
        raise ConfigError(
            f"[tool.flopwatch] in {path} has {len(problems)} problem{'s' if len(problems) > 1 else ''}",
            why="; ".join(problems),
            todo="see docs/configuration.md for every key",
        )
    import msgspec  # noqa: PLC0415 - reports of untrusted results are made without it

    return msgspec.convert(table, Config)


def _problems(table: dict[str, Any]) -> list[str]:
    import msgspec  # noqa: PLC0415 - as above

    known = {field.name for field in fields(Config)}
    problems = [f"{key}: no such key (known: {', '.join(sorted(known))})" for key in table if key not in known]
    for key, value in table.items():
        if key in known - {"waivers"}:
            try:
                msgspec.convert({key: value}, Config)
            except msgspec.ValidationError as error:
                problems.append(f"{key}: {error}")
    if "packages" not in table or not table["packages"]:
        problems.append('packages: missing; name the code under test, for example packages = ["mykernels"]')
    problems += [
        f"{key}: {table[key]} is not a finite number >= 0"
        for key in ("margin_percent", "launch_margin_percent", "max_diff_eps")
        if _is_number(table.get(key)) and not 0 <= table[key] < math.inf
    ]
    same_within = table.get("same_within_percent")
    if _is_number(same_within) and not 0 < same_within < math.inf:
        problems.append(f"same_within_percent: {same_within} is not a finite number > 0")
    problems += _margin_problems(table.get("margins")) + _waivers_problems(table.get("waivers", []))
    return problems + _conclusions_problems(table.get("conclusions", []))


def _margin_problems(margins: object) -> list[str]:
    problems = []
    for pattern, percent in margins.items() if isinstance(margins, dict) else ():
        if problem := pattern_problem(pattern):
            problems.append(f"margins: the pattern {problem}")
        if _is_number(percent) and not 0 <= percent < math.inf:
            problems.append(f"margins.{pattern!r}: {percent} is not a finite number >= 0")
    return problems


def _waivers_problems(waivers: object) -> list[str]:
    if not isinstance(waivers, list):
        return ["waivers: not a list; each is headed [[tool.flopwatch.waivers]], in double brackets"]
    problems = []
    first: dict[object, int] = {}
    for index, waiver in enumerate(waivers):
        if not isinstance(waiver, dict):
            problems.append(f"waivers[{index}]: {waiver!r} is not a table")
            continue
        problems += [f"waivers[{index}].{key}: {problem}" for key, problem in waiver_problems(waiver).items()]
        case = waiver.get("case")
        if isinstance(case, str) and first.setdefault(case, index) != index:
            problems.append(f"waivers[{index}].case: waivers[{first[case]}] is of the same cases, keep one")
    return problems


def _conclusions_problems(conclusions: object) -> list[str]:
    if not isinstance(conclusions, list):
        return []  # told as of the wrong type
    known = [field.name for field in fields(WatchedClaim)]
    tables = [(index, table) for index, table in enumerate(conclusions) if isinstance(table, dict)]
    problems = [
        f"conclusions[{index}].{key}: no such key (known: {', '.join(known)})"
        for index, table in tables
        for key in table
        if key not in known
    ]
    if len(conclusions) > MAX_CONCLUSIONS:
        problems.append(f"conclusions: {len(conclusions)}, and {MAX_CONCLUSIONS} at most can be watched")
    seen = [(table.get("study"), table.get("says")) for _, table in tables]
    problems += [f"conclusions[{index}]: there before" for index, claim in enumerate(seen) if claim in seen[:index]]
    return problems


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float)
