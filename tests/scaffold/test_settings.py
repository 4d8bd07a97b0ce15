from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from flopwatch.config import load_config
from flopwatch.errors import ConfigError, UsageError
from flopwatch.scaffold.layout import Layout
from flopwatch.scaffold.settings import read_settings, settings_block, with_settings

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = Layout(source="", packages=("mk", "other"), main="trünk")
BLOCK = settings_block(LAYOUT, "suites")


@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"[project]\nname = 'a'\n",
        b"[project]\nname = 'a'",
        b"# only a comment, 100 % of it \xe2\x9c\x93\n",
        b"[tool.ruff]\r\nline-length = 100\r\nnan = nan\r\n",
        b"tool.black.line-length = 100\n",
        b"[tool]\n",
    ],
)
def test_the_table_is_appended_and_the_rest_is_kept_byte_for_byte(before: bytes, tmp_path: Path) -> None:
    after = with_settings(before, BLOCK)
    assert after.startswith(before)
    (tmp_path / "pyproject.toml").write_bytes(after)
    config = load_config(tmp_path)
    assert (config.packages, config.source, config.benchmarks, config.main) == (("mk", "other"), "", "suites", "trünk")


def test_line_ends_are_those_of_the_file() -> None:
    added = with_settings(b"a = 1\r\n", BLOCK).removeprefix(b"a = 1\r\n")
    assert added.count(b"\n") == added.count(b"\r\n") > 0


@pytest.mark.parametrize("before", [b"tool = { ruff = {} }\n", b"tool = 1\n", b"[[tool]]\n"])
def test_a_file_that_cannot_be_appended_to_is_told_so(before: bytes) -> None:
    with pytest.raises(UsageError, match="cannot be put at the end") as caught:
        with_settings(before, BLOCK)
    assert BLOCK in caught.value.todo


def test_only_what_is_not_the_default_is_written() -> None:
    table = tomllib.loads(settings_block(Layout(source="src", packages=("mk",)), "benchmarks"))
    assert table == {"tool": {"flopwatch": {"packages": ["mk"]}}}


@pytest.mark.parametrize("data", [b"[project", b"\xff", b"\xef\xbb\xbf[project]\n"])
def test_a_file_that_is_no_toml_is_an_error_that_names_it(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(data)
    with pytest.raises(ConfigError, match=r"pyproject\.toml is not valid TOML"):
        read_settings(tmp_path)


def test_settings_that_are_wrong_are_an_error_and_no_settings_are_none(tmp_path: Path) -> None:
    assert read_settings(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    assert read_settings(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text("[tool.flopwatch]\nmain = 1\n")
    with pytest.raises(ConfigError, match="2 problems"):
        read_settings(tmp_path)
