from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import UsageError
from flopwatch.scaffold.files import Action, PlannedFile, plan_file, write_files

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_file_is_written_with_its_folders(tmp_path: Path) -> None:
    file = plan_file(tmp_path, "a/b/c.txt", "text\n")
    assert file.action is Action.CREATE
    write_files(tmp_path, [file])
    assert (tmp_path / "a" / "b" / "c.txt").read_text() == "text\n"
    assert plan_file(tmp_path, "a/b/c.txt", "text\n").why == "it is as it would be written"


@pytest.mark.parametrize(("present", "by_hand"), [("mine\n", "add this"), ("mine, with flopwatch\n", "")])
def test_a_file_that_is_there_is_left_alone(present: str, by_hand: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(present)
    file = plan_file(tmp_path, "f", "text\n", by_hand="add this")
    assert (file.action, file.by_hand) == (Action.KEEP, by_hand)
    write_files(tmp_path, [file])
    assert (tmp_path / "f").read_text() == present


def test_a_folder_or_a_link_to_nowhere_in_its_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("folder", "link"):
        assert plan_file(tmp_path, name, "text").action is Action.KEEP


@pytest.mark.parametrize("obstacle", ["read-only file", "read-only folder", "file for a folder"])
def test_where_one_file_cannot_be_written_none_is(obstacle: str, tmp_path: Path) -> None:
    settings = tmp_path / "pyproject.toml"
    settings.write_text("[project]\n")
    folder = tmp_path / "folder"
    if obstacle == "file for a folder":
        folder.write_text("")
    else:
        folder.mkdir()
    target = settings if obstacle == "read-only file" else folder
    if obstacle.startswith("read-only"):
        target.chmod(0o555)
    files = [
        plan_file(tmp_path, "first.txt", "text"),
        PlannedFile(path="pyproject.toml", action=Action.APPEND, data=b"[project]\n[tool.flopwatch]\n"),
        plan_file(tmp_path, "folder/second.txt" if obstacle != "read-only file" else "second.txt", "text"),
    ]
    with pytest.raises(UsageError, match="wrote nothing") as caught:
        write_files(tmp_path, files)
    assert str(target) in caught.value.why
    assert settings.read_text() == "[project]\n"
    assert not (tmp_path / "first.txt").exists()


def test_a_file_that_has_come_to_be_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = plan_file(tmp_path, "f", "text\n")
    (tmp_path / "f").write_text("mine")
    with pytest.raises(FileExistsError):
        write_files(tmp_path, [file])
    assert (tmp_path / "f").read_text() == "mine"
