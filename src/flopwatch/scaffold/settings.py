"""``[tool.flopwatch]``, put at the end of a pyproject.toml that has none; what the file has is kept byte for byte."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

from flopwatch.config import Config, load_config
from flopwatch.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.scaffold.layout import Layout


def read_settings(root: Path) -> Config | None:
    """Return the settings that the repository has; None without a table ``[tool.flopwatch]``.

    Raises:
        ConfigError: the file is no TOML, or the table is wrong.
    """
    path = root / "pyproject.toml"
    if not path.exists():
        return None
    try:
        tool = _parse(path.read_bytes()).get("tool", {})
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML", why=str(error), todo="repair it; nothing was written") from None
    return load_config(root) if isinstance(tool, dict) and "flopwatch" in tool else None


def settings_block(layout: Layout, benchmarks: str) -> str:
    """Write the table: the packages, and what is not as it is by default.

    >>> from flopwatch.scaffold.layout import Layout
    >>> print(settings_block(Layout(source="", packages=("mykernels",)), "benchmarks"))
    # What flopwatch watches here; its page on configuration has every key.
    [tool.flopwatch]
    packages = ["mykernels"]
    source = ""
    <BLANKLINE>
    """
    default = Config()
    lines = ["# What flopwatch watches here; its page on configuration has every key.", "[tool.flopwatch]"]
    lines.append(f"packages = [{', '.join(map(_string, layout.packages))}]")
    for key, value in (("source", layout.source), ("benchmarks", benchmarks), ("main", layout.main)):
        if value != getattr(default, key):
            lines.append(f"{key} = {_string(value)}")
    return "\n".join(lines) + "\n"


def with_settings(data: bytes, block: str) -> bytes:
    """Return the file with the table at its end, in the file's own line ends.

    Raises:
        UsageError: the result would not be the same settings and this table, as where ``tool`` is an inline table.
    """
    gap = "" if not data else "\n" if data.endswith(b"\n") else "\n\n"
    line_end = "\r\n" if b"\r\n" in data else "\n"
    changed = data + (gap + block).replace("\n", line_end).encode()
    why = ""
    try:
        wanted = _parse(data)
        wanted.setdefault("tool", {})["flopwatch"] = _parse(block.encode())["tool"]["flopwatch"]
        if _parse(changed) != wanted:
            why = "the file would read differently than it should"
    except (tomllib.TOMLDecodeError, TypeError) as error:
        why = str(error)
    if why:
        raise UsageError(
            "[tool.flopwatch] cannot be put at the end of pyproject.toml",
            why=why,
            todo=f"put these lines where they belong, and run flopwatch init again; nothing was written:\n{block}",
        )
    return changed


def _parse(data: bytes) -> dict[str, Any]:
    # Numbers stay text: NaN would not equal itself.
    return tomllib.loads(data.decode(), parse_float=str)


def _string(text: str) -> str:
    """Write a TOML basic string, which a JSON string is where it has no escapes of UTF-16."""
    return json.dumps(text, ensure_ascii=False)
