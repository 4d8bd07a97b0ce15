from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.config import Config, load_config
from flopwatch.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, text: str) -> Path:
    (root / "pyproject.toml").write_text(text, encoding="utf-8")
    return root


def test_a_table_sets_its_keys_and_leaves_the_rest(tmp_path: Path) -> None:
    root = write(tmp_path, '[tool.flopwatch]\npackages = ["mine"]\nmargin_percent = 1.5\n')
    assert load_config(root) == Config(packages=("mine",), margin_percent=1.5)


def test_all_problems_are_shown_together(tmp_path: Path) -> None:
    root = write(tmp_path, '[tool.flopwatch]\nsource = 3\nspeed = "fast"\nmargin_percent = -1\n')
    with pytest.raises(ConfigError) as caught:
        load_config(root)
    message = str(caught.value)
    assert "4 problems" in message
    assert "speed: no such key" in message
    assert "source: Expected `str`, got `int`" in message
    assert "margin_percent: -1 is not" in message
    assert "packages: missing" in message


def test_a_repository_without_pyproject_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no pyproject\.toml"):
        load_config(tmp_path)


def test_broken_toml_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(write(tmp_path, "[tool.flopwatch\n"))
