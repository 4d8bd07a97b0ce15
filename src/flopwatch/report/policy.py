"""What a repository accepts, as the checkout that reports has it: a result may not bring margins of its own.

A result carries the margin of each case, the slowdown that SAME excludes, its waivers, and the conclusions that it
watched. Where it comes from code that nobody has read, these must be those of the branch that the code is to enter.
"""

from __future__ import annotations

import math
import tomllib
from typing import TYPE_CHECKING, Any

from flopwatch.config import Config, WatchedClaim
from flopwatch.errors import ConfigError
from flopwatch.verdict import margin_of
from flopwatch.waivers import Waiver, WaiverState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flopwatch.gate import GateResult


def read_policy(root: Path) -> Config:
    """Read what ``[tool.flopwatch]`` accepts, with the standard library alone.

    The gate has checked the table before (`config.load_config`); here it is enough that nothing is misunderstood.

    Raises:
        ConfigError: there is no such file, or it is not of the form that the gate takes.
    """
    path = root / "pyproject.toml"
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("flopwatch", {})
        return Config(
            margin_percent=float(table.get("margin_percent", Config().margin_percent)),
            launch_margin_percent=float(table.get("launch_margin_percent", Config().launch_margin_percent)),
            same_within_percent=float(table.get("same_within_percent", Config().same_within_percent)),
            margins={pattern: float(percent) for pattern, percent in table.get("margins", {}).items()},
            waivers=tuple(Waiver(**waiver) for waiver in table.get("waivers", ())),
            conclusions=tuple(
                WatchedClaim(**{**claim, "at": tuple(claim.get("at", ("*",)))})
                for claim in table.get("conclusions", ())
            ),
        )
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read",
            why=str(error),
            todo="name the folder whose pyproject.toml has the margins and waivers that hold",
        ) from None


def violations(result: GateResult, policy: Config) -> Iterator[str]:
    """Yield what a result accepts that the repository does not."""
    if not math.isclose(result.same_within_percent, policy.same_within_percent):
        yield f"SAME excludes {result.same_within_percent:g} %, and not {policy.same_within_percent:g} %"
    for verdict in result.verdicts:
        margin = margin_of(policy.margin_of(verdict.case.id))
        if verdict.time is not None and not math.isclose(verdict.margin, margin, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{verdict.case.id}: another margin than the repository's"
    waived = [use.waiver for use in result.waivers if use.state is WaiverState.WAIVED]
    if not set(policy.waivers).issuperset(waived):
        yield "a waiver that the repository does not have"
    watched = [(claim.study, claim.says) for claim in policy.conclusions]
    if result.conclusions and [(found.study, found.says) for found in result.conclusions] != watched:
        yield "other conclusions than those that the repository watches"
