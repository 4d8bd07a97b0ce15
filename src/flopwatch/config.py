"""What a repository tells flopwatch about itself: ``[tool.flopwatch]`` in its pyproject.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec

from flopwatch.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """The settings of one repository.

    Attributes:
        packages: dotted names of the code under test; both sides of a gate import these from their own checkout.
        source: the folder, relative to the repository root, from which `packages` are imported.
        benchmarks: the folder of the suites.
        main: the branch that a change is compared with.
        device: the GPU for which the static facts are compiled where none is named on the command line.
        margin_percent: a slowdown is reported as SLOWER only when it is proved larger than this.
        max_diff_eps: a result further than this from its float64 reference is BROKEN, in units of the dtype's epsilon
            relative to the largest reference magnitude; a suite may declare its own.
    """

    packages: tuple[str, ...] = ()
    source: str = "src"
    benchmarks: str = "benchmarks"
    main: str = "main"
    device: str = "h200"
    margin_percent: float = 0.5
    max_diff_eps: float = 8.0


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
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML", why=str(error)) from None
    problems = _problems(table) if isinstance(table, dict) else [f"flopwatch is {table!r}, not a table"]
    if problems:
        raise ConfigError(
            f"[tool.flopwatch] in {path} has {len(problems)} problem{'s' if len(problems) > 1 else ''}",
            why="; ".join(problems),
            todo="see docs/configuration.md for every key",
        )
    return msgspec.convert(table, Config)


def _problems(table: dict[str, Any]) -> list[str]:
    known = {field.name for field in fields(Config)}
    problems = [f"{key}: no such key (known: {', '.join(sorted(known))})" for key in table if key not in known]
    for key in known & table.keys():
        try:
            msgspec.convert({key: table[key]}, Config)
        except msgspec.ValidationError as error:
            problems.append(f"{key}: {error}")
    if "packages" not in table or not table["packages"]:
        problems.append('packages: missing; name the code under test, for example packages = ["mykernels"]')
    for key in ("margin_percent", "max_diff_eps"):
        value = table.get(key)
        if isinstance(value, int | float) and not 0 <= value < float("inf"):
            problems.append(f"{key}: {value} is not a finite number >= 0")
    return problems
