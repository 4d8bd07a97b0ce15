from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flopwatch.static.interpreter_table import columns, with_column

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "interpreter.md"
VERSION = importlib.metadata.version("triton")


def test_the_page_tells_of_each_version_that_is_tested() -> None:
    table = columns(PAGE.read_text(encoding="utf-8"))
    assert set(table) == {"3.6.0", "3.7.1", "3.9.0"}
    assert {frozenset(column) for column in table.values()} == {frozenset(table["3.6.0"])}


@pytest.mark.skipif(
    VERSION not in columns(PAGE.read_text(encoding="utf-8")) or np.__version__ < "2.4",
    reason="the page does not tell of this Triton with this numpy",
)
def test_the_page_says_what_the_probes_find(child: Callable[..., str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n| feature | 1.0.0 |\n| --- | --- |\n\nAfter.\n", encoding="utf-8")
    child(f"from flopwatch.static.interpreter_table import main\nmain([{str(page)!r}])\n", interpret=True)
    written = page.read_text(encoding="utf-8")
    assert columns(written)[VERSION] == columns(PAGE.read_text(encoding="utf-8"))[VERSION]
    assert written.startswith("Before.\n\n| feature | 1.0.0 |")
    assert written.endswith("|\n\nAfter.\n")


def test_the_columns_of_other_versions_stay() -> None:
    page = "| feature | 3.6.0 |\n| --- | --- |\n| flip | right |\n| gone | repaired |\n"
    table = columns(with_column(page, "3.10.0", {"flip": "not covered"}))
    assert list(table) == ["3.6.0", "3.10.0"]
    assert table == {"3.6.0": {"flip": "right", "gone": "repaired"}, "3.10.0": {"flip": "not covered"}}
