"""Configurations as Triton's tuner writes them, and the space of them that is searched."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING, TypeAlias

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: What a space names: a setting, and the values to try.
Space: TypeAlias = "Mapping[str, Sequence[str]]"

#: A configuration of the bundled kernels takes 0.5 to 0.9 s of a core to compile (sm_90, triton 3.7.1, 2026-11-22); so
#: many take 4 minutes on 4 cores.
MOST = 1200
#: Settings of a launch that each configuration has; what else it has is the kernel's own.
LAUNCH_SETTINGS = ("num_warps", "num_ctas", "num_stages", "maxnreg")
#: A value may have commas of its own: what comes after one that parts settings is a name.
_BETWEEN = re.compile(r", (?=\w+: )")


def settings_of(config: str) -> dict[str, str]:
    """Read a configuration.

    >>> settings_of("BLOCK: 128, num_warps: 4, maxnreg: None")
    {'BLOCK': '128', 'num_warps': '4', 'maxnreg': 'None'}
    >>> settings_of("TILE: (64, 32), num_warps: 4")
    {'TILE': '(64, 32)', 'num_warps': '4'}
    """
    return dict(item.split(": ", 1) for item in _BETWEEN.split(config) if ": " in item)


def config_of(settings: Mapping[str, str]) -> str:
    """Write a configuration as Triton does.

    >>> config_of({"BLOCK": "128", "num_warps": "4"})
    'BLOCK: 128, num_warps: 4'
    """
    return ", ".join(f"{name}: {value}" for name, value in settings.items())


def short(config: str) -> str:
    """Write a configuration without what it has in common with nearly all.

    >>> short("BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None")
    'BLOCK=128 num_warps=4 num_stages=3'
    """
    usual = {"num_ctas": "1", "maxnreg": "None"}
    return " ".join(f"{name}={value}" for name, value in settings_of(config).items() if usual.get(name) != value)


def parse_space(arguments: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Read ``NAME=VALUE,VALUE`` of the command line.

    Raises:
        UsageError: one of them is nothing of the kind, or a name comes twice.

    >>> parse_space(["BLOCK_M=64,128", "num_warps=4"])
    {'BLOCK_M': ('64', '128'), 'num_warps': ('4',)}
    """
    space: dict[str, tuple[str, ...]] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        values = tuple(dict.fromkeys(value.strip() for value in text.split(",")))
        if not name or not equals or not all(values):
            raise UsageError(
                f"--space {argument!r} declares no values",
                why="a setting stands before the sign of equality, its values behind it",
                todo="write it as BLOCK_M=64,128,256",
            )
        if name in space:
            raise UsageError(f"--space names {name} twice", todo=f"give all its values at once: {name}=A,B")
        space[name] = values
    return space


def configurations(own: Sequence[str], space: Space) -> tuple[str, ...]:
    """Return what is searched, in order: the kernel's own list, then what the space adds to it.

    The space replaces the settings that it names in each configuration of the list, by each combination of its values.

    Args:
        own: the configurations that the kernel's tuner chooses from.
        space: settings and their values; what it does not name stays.

    Raises:
        UsageError: a setting that the kernel does not have, a value of another kind, or too many combinations.

    >>> own = ["B: 64, num_warps: 4", "B: 128, num_warps: 4"]
    >>> configurations(own, {"num_warps": ["4", "8"]})[2:]
    ('B: 64, num_warps: 8', 'B: 128, num_warps: 8')
    """
    known = settings_of(own[0])
    unknown = [name for name in space if name not in known]
    if unknown:
        raise UsageError(
            f"the space names {', '.join(unknown)}, which the kernel's configurations do not have",
            why=f"they have {', '.join(known)}",
            todo="name settings of these, or give the kernel's autotuner a configuration that has it",
        )
    for name, values in space.items():
        wrong = [value for value in values if not _fits(name, value, known[name])]
        if wrong:
            raise UsageError(
                f"the space gives {name} the value {wrong[0]!r}",
                why=f"the kernel's first configuration has {name}: {known[name]}",
                todo="give it values of the same kind",
            )
    bases = tuple(dict.fromkeys(config_of({**settings_of(config), **dict.fromkeys(space, "?")}) for config in own))
    found = dict.fromkeys(own)
    number = len(bases) * math.prod(map(len, space.values())) if space else len(own)
    if number > MOST:
        raise UsageError(
            f"the space has {number} configurations, {MOST} at most are searched",
            why="each takes about 2 s of a core to compile",
            todo="leave out values",
        )
    if space:
        for values in itertools.product(*space.values()):
            combination = dict(zip(space, values, strict=True))
            found |= dict.fromkeys(config_of({**settings_of(base), **combination}) for base in bases)
    return tuple(found)


def _fits(name: str, value: str, usual: str) -> bool:
    """Tell whether a value is of the kind of the kernel's own; what a launch has is a number, or nothing."""
    if name in LAUNCH_SETTINGS:
        return (value.isdecimal() and int(value) > 0) or (name == "maxnreg" and value == "None")
    if usual in {"True", "False"}:
        return value in {"True", "False"}
    return value.isdecimal() if usual.isdecimal() else True
