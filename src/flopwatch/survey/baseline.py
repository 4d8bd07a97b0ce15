"""Facts that are held in a repository: a file of one row a configuration, which drifts where the compiler's work does.

The file is JSON, its rows sorted and a line each, so that what changed is what a diff shows. It has counted facts
alone: they are the same on every machine and wherever a file lies. Fingerprints of code are not, on every Triton.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Required, TypedDict

from flopwatch.errors import UsageError
from flopwatch.model import from_json
from flopwatch.static.names import function_name
from flopwatch.static.recorder import Autotune

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from flopwatch.model import KernelFacts

#: Of the file; it changes with `FACTS`.
FORMAT = 1
#: What a row holds beside its key, where it is known.
FACTS = (
    "registers",
    "accumulator_registers",
    "scalar_registers",
    "spill_store_bytes",
    "spill_load_bytes",
    "stack_bytes",
    "shared_bytes",
    "tensor_memory_columns",
    "num_warps",
    "num_stages",
    "occupancy",
    "code_bytes",
)
#: Counts by class, which are held likewise.
COUNTS = ("instructions", "loop_instructions")
#: The programs whose other version makes other code.
COMPILERS = ("triton", "ptxas")
_KEY = ("kernel", "device", "variant", "config")
_MISSING = "none"
_CONFIGURATION = "configuration"


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """What a file holds.

    Attributes:
        versions: of the compilers that made it.
        autotune: which configurations of autotuned kernels it has.
        devices: that it was made for.
        rows: facts by name, of each kernel, device, variant and configuration.
    """

    versions: dict[str, str]
    autotune: str
    devices: tuple[str, ...]
    rows: dict[tuple[str, str, str, str], dict[str, Any]]


class _Row(TypedDict, total=False):
    """A row of the file."""

    kernel: Required[str]
    device: Required[str]
    variant: Required[str]
    config: Required[str]
    failure: str
    registers: int
    accumulator_registers: int
    scalar_registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int
    tensor_memory_columns: int
    num_warps: int
    num_stages: int
    occupancy: float
    code_bytes: int
    instructions: dict[str, int]
    loop_instructions: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Head:
    """What the file has in every format."""

    flopwatch_static: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    """The file."""

    autotune: Autotune
    devices: tuple[str, ...]
    facts: tuple[_Row, ...]
    triton: str = ""
    ptxas: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """One fact that is not as it is held.

    Attributes:
        kernel: the name of the kernel.
        device: the key of the device.
        variant: the types of its arguments.
        config: its configuration.
        fact: what differs; "configuration" where one of both does not have it at all.
        held: its value in the file; "none" where there is none.
        found: its value now, likewise.
    """

    kernel: str
    device: str
    variant: str
    config: str
    fact: str
    held: str
    found: str

    @property
    def text(self) -> str:
        """One line for a person."""
        return f"{self.kernel} on {self.device} [{self.config}] ({self.variant}): {self.brief}"

    @property
    def brief(self) -> str:
        """What differs, without where."""
        if self.fact != _CONFIGURATION:
            return f"{self.fact} {self.held} -> {self.found}"
        return "gone" if self.is_gone else "new"

    @property
    def is_gone(self) -> bool:
        """Whether there is no such configuration any more."""
        return self.fact == _CONFIGURATION and self.found == _MISSING


def baseline_of(
    facts: Iterable[KernelFacts], *, versions: Mapping[str, str], autotune: str, devices: Iterable[str]
) -> Baseline:
    """Return what is to be held of facts."""
    return Baseline(
        versions={name: versions[name] for name in COMPILERS if name in versions},
        autotune=autotune,
        devices=tuple(sorted(devices)),
        rows={fact.key: _row(fact) for fact in facts},
    )


def drifts(held: Baseline, found: Baseline, *, partial: bool) -> Iterator[Drift]:
    """Yield where facts differ from those that are held, by kernel, device, variant and configuration.

    Args:
        held: the file.
        found: what is true now.
        partial: only some cases were compiled: what they do not launch is not known to be gone, and kernels of one name
            may have other numbers.
    """
    rows = {key: row for key, row in held.rows.items() if key[1] in found.devices}
    for key in sorted(rows.keys() | found.rows.keys()):
        old, new = rows.get(key), found.rows.get(key)
        kernel, device, variant, config = key
        if partial and (new is None or new in _alike(rows, key)):
            continue
        if old is None or new is None:
            before, after = (_MISSING if row is None else "there" for row in (old, new))
            differing = [(_CONFIGURATION, before, after)]
        else:
            differing = list(_differing(old, new))
        for fact, before, after in differing:
            yield Drift(
                kernel=kernel, device=device, variant=variant, config=config, fact=fact, held=before, found=after
            )


def _alike(
    rows: Mapping[tuple[str, str, str, str], dict[str, Any]], key: tuple[str, str, str, str]
) -> Iterator[object]:
    """Yield the rows of a configuration of all kernels that are called alike."""
    kernel, *rest = key
    for (name, *others), row in rows.items():
        if others == rest and function_name(name) == function_name(kernel):
            yield row


def other_compiler(held: Baseline, found: Baseline) -> str:
    """Say which compiler is another than the file's; "" where none is.

    >>> held, found = (
    ...     baseline_of([], versions={"triton": version}, autotune="all", devices=[]) for version in ("3.6.0", "3.7.1")
    ... )
    >>> other_compiler(held, found)
    'it is of triton 3.6.0, and this is triton 3.7.1'
    """
    sides = [[f"{name} {side.versions.get(name, _MISSING)}" for name in COMPILERS] for side in (held, found)]
    pairs = [(old, new) for old, new in zip(*sides, strict=True) if old != new]
    if not pairs:
        return ""
    return f"it is of {', '.join(old for old, _ in pairs)}, and this is {', '.join(new for _, new in pairs)}"


def write_text(baseline: Baseline) -> str:
    """Return the text of the file."""
    head = {
        "flopwatch_static": FORMAT,
        **dict(sorted(baseline.versions.items())),
        "autotune": baseline.autotune,
        "devices": list(baseline.devices),
    }
    rows = [json.dumps({**dict(zip(_KEY, key, strict=True)), **row}) for key, row in sorted(baseline.rows.items())]
    lines = [*(f"{json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()), '"facts": [']
    return "\n".join(["{", *lines, ",\n".join(rows), "]", "}"]) + "\n"


def read_baseline(path: Path) -> Baseline:
    """Read a file.

    Raises:
        UsageError: there is none, or it is no baseline of this format.
    """
    import msgspec  # noqa: PLC0415 - likewise in `flopwatch.model`

    todo = "flopwatch static --baseline FILE --write makes one"
    try:
        data = path.read_bytes()
        written = from_json(data, _Head).flopwatch_static
        if written != FORMAT:
            raise UsageError(
                f"{path} is of another flopwatch",
                why=f"its format is {written}, and this one writes {FORMAT}",
                todo=todo,
            )
        file = from_json(data, _File)
    except FileNotFoundError:
        raise UsageError(f"there is no baseline {path}", todo=todo) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read", why=str(error.strerror or error), todo=todo) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no baseline", why=str(error), todo=todo) from None
    rows: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for place, row in enumerate(file.facts):
        key = (row["kernel"], row["device"], row["variant"], row["config"])
        if key in rows:
            raise UsageError(f"{path} is no baseline", why=f"a configuration twice - at `$.facts[{place}]`", todo=todo)
        rows[key] = {name: value for name, value in row.items() if name not in _KEY}
    versions = {name: version for name in COMPILERS if (version := getattr(file, name))}
    return Baseline(versions=versions, autotune=file.autotune.value, devices=file.devices, rows=rows)


def _row(fact: KernelFacts) -> dict[str, Any]:
    """Return what is known of a configuration; a failure by its kind, for messages name addresses and files."""
    if fact.failure is not None:
        return {"failure": fact.failure.kind}
    row = {name: value for name in FACTS if (value := getattr(fact, name)) is not None}
    return row | {name: dict(sorted(getattr(fact, name).items())) for name in COUNTS if getattr(fact, name)}


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if name in COUNTS:
            counts = (before or {}, after or {})
            for kind in sorted(counts[0].keys() | counts[1].keys()):
                numbers = [side.get(kind, 0) for side in counts]
                if numbers[0] != numbers[1]:
                    yield f"{name} {kind}", str(numbers[0]), str(numbers[1])
        else:
            yield name, _text(before), _text(after)


def _text(value: object) -> str:
    return _MISSING if value is None else str(value)
