from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from evidence.edits import Edit, Move

from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("text", ["", "return 1024\nreturn 1024\n"])
def test_an_edit_without_one_place_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text, encoding="utf-8")

    with pytest.raises(UsageError, match=r"a\.py has [02] places to edit"):
        Edit(path="a.py", old="return 1024", new="return 64").apply(tmp_path)


def test_an_edit_of_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'return 1024' is looked for"):
        Edit(path="gone.py", old="return 1024", new="return 64").apply(tmp_path)


@pytest.mark.parametrize(("path", "to"), [("gone.py", "new.py"), ("a.py", "b.py")])
def test_a_move_that_would_lose_a_file_is_refused(tmp_path: Path, path: str, to: str) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()

    with pytest.raises(UsageError, match="cannot become"):
        Move(path=path, to=to).apply(tmp_path)
