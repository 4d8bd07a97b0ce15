"""The file that holds the settings, as text: what it has is kept byte for byte, and a waiver is put at its end."""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from flopwatch.waivers import Waiver

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def waiver_block(waiver: Waiver) -> str:
    r"""Write a waiver as TOML.

    >>> import datetime
    >>> from flopwatch.waivers import Waiver
    >>> until = datetime.date(2026, 12, 31)
    >>> print(waiver_block(Waiver(case="Add*", reason='"int64"', owner="Ada", until=until, limit_percent=5)))
    [[tool.flopwatch.waivers]]
    case = "Add*"
    reason = "\"int64\""
    owner = "Ada"
    until = 2026-12-31
    limit_percent = 5.0
    <BLANKLINE>
    """
    return (
        "[[tool.flopwatch.waivers]]\n"
        f"case = {_string(waiver.case)}\n"
        f"reason = {_string(waiver.reason)}\n"
        f"owner = {_string(waiver.owner)}\n"
        f"until = {waiver.until.isoformat()}\n"
        f"limit_percent = {float(waiver.limit_percent)!r}\n"
    )


def _string(text: str) -> str:
    """Write a TOML basic string; what does not print is escaped, so that the file says what it seems to say."""
    return '"' + "".join(_ESCAPES.get(character) or _character(character) for character in text) + '"'


def _character(character: str) -> str:
    return character if character.isprintable() else f"\\U{ord(character):08X}"


def with_waiver(data: bytes, waiver: Waiver) -> bytes:
    """Return the file with a waiver at its end; the bytes before it stay, its line ends are those of the file.

    Raises:
        UsageError: the result would not be the same settings and one waiver more, as where the waivers are written as
            an inline array.
    """
    block = waiver_block(waiver)
    gap = "\n" if data.endswith(b"\n") else "\n\n"
    line_end = "\r\n" if b"\r\n" in data else "\n"
    changed = data + (gap + block).replace("\n", line_end).encode()
    why = ""
    try:
        if _parse(changed) != _with_table(_parse(data), waiver):
            why = "the file would read differently than it should"
    except tomllib.TOMLDecodeError as error:
        why = str(error)
    if why:
        raise UsageError(
            "the waiver cannot be put at the end of pyproject.toml",
            why=why,
            todo="head each waiver of the file with [[tool.flopwatch.waivers]]; the file is as it was",
        )
    return changed


def _parse(data: bytes) -> dict[str, Any]:
    # Numbers stay text: NaN would not equal itself.
    return tomllib.loads(data.decode(), parse_float=str)


def _with_table(settings: dict[str, Any], waiver: Waiver) -> dict[str, Any]:
    table = {
        "case": waiver.case,
        "reason": waiver.reason,
        "owner": waiver.owner,
        "until": waiver.until,
        "limit_percent": repr(float(waiver.limit_percent)),
    }
    settings.setdefault("tool", {}).setdefault("flopwatch", {}).setdefault("waivers", []).append(table)
    return settings


def replace_file(path: Path, data: bytes) -> None:
    """Give a file new content all at once: whatever goes wrong, it has either the old or the new."""
    path = path.resolve()  # a link stays a link
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            shutil.copymode(path, temporary)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
