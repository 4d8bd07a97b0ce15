from __future__ import annotations

import importlib.metadata
import json
import tomllib
from typing import TYPE_CHECKING

import pytest

from flopwatch.scaffold.requirement import SOURCE, requirement

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FOLDER = {"url": "file:///home/me/flopwatch", "dir_info": {"editable": True}}
REPOSITORY = {"url": "https://example.org/flopwatch.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}


def installed(folder: Path, origin: object = None) -> importlib.metadata.Distribution:
    """Write what pip leaves of a distribution."""
    info = folder / "flopwatch-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: flopwatch\nVersion: 1.2\n", encoding="utf-8")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    return importlib.metadata.Distribution.at(info)


@pytest.mark.parametrize(
    ("origin", "asked_for"),
    [
        (None, "flopwatch[history]==1.2"),
        (REPOSITORY, f"flopwatch[history] @ git+https://example.org/flopwatch.git@{COMMIT}"),
        (FOLDER, f"flopwatch[history] @ git+{SOURCE}"),
    ],
    ids=["from an index", "from a repository", "from a folder"],
)
def test_others_get_flopwatch_from_where_this_one_is_from(tmp_path: Path, origin: object, asked_for: str) -> None:
    assert requirement("history", distribution=installed(tmp_path, origin)) == asked_for


def test_an_extra_need_not_be_wanted(tmp_path: Path) -> None:
    assert requirement(distribution=installed(tmp_path)) == "flopwatch==1.2"


def test_one_that_runs_without_being_installed_is_from_a_folder_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: iter(()))

    assert requirement("history") == f"flopwatch[history] @ git+{SOURCE}"


def test_the_repository_is_the_one_that_is_installed_as_the_source(pytestconfig: pytest.Config) -> None:
    project = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["urls"]["Source"] == SOURCE
