from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.scaffold.conftest import ADD

from flopwatch.config import Config
from flopwatch.errors import UsageError
from flopwatch.scaffold.layout import Layout, find_layout, python_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.scaffold.conftest import Stranger

    Make = Callable[[Mapping[str, str]], Stranger]


def layout(repository: Stranger, *, config: Config | None = None) -> Layout:
    files = python_files(repository.root)
    return find_layout(repository.root, files, files, config=config)


@pytest.mark.parametrize(
    ("files", "source", "packages"),
    [
        (["src/mk/__init__.py", "src/mk/ops/add.py"], "src", ("mk",)),
        (["src/mk/add.py"], "src", ("mk",)),
        (["src/add.py"], "src", ("add",)),
        (["mk/__init__.py", "mk/ops/__init__.py", "mk/ops/add.py"], "", ("mk",)),
        (["kernels.py"], "", ("kernels",)),
        (["python/mk/__init__.py", "python/mk/a.py"], "python", ("mk",)),
        (["a/__init__.py", "b/__init__.py"], "", ("a", "b")),
        (["mk/__init__.py", "tests/test_a.py", "docs/conf.py", "setup.py", "mk/test_b.py"], "", ("mk",)),
    ],
)
def test_packages_are_found_where_they_are(
    files: list[str], source: str, packages: tuple[str, ...], stranger: Make
) -> None:
    found = layout(stranger(dict.fromkeys(files, ADD)))
    assert (found.source, found.packages) == (source, packages)


def test_files_that_git_ignores_are_none_of_the_repository(stranger: Make) -> None:
    repository = stranger({"mk/__init__.py": "", ".gitignore": "venv/\n"})
    (repository.root / "venv").mkdir()
    (repository.root / "venv" / "torch.py").write_text("")
    (repository.root / "mk" / "new.py").write_text("")
    assert python_files(repository.root) == ("mk/__init__.py", "mk/new.py")


def test_a_repository_without_a_package_is_told_so(stranger: Make) -> None:
    with pytest.raises(UsageError, match="there is no Python package"):
        layout(stranger({"README.md": ""}))


def test_settings_that_are_there_decide(stranger: Make) -> None:
    config = Config(packages=("other.kernels",), source="lib", main="trunk")
    found = layout(stranger({"mk/__init__.py": ""}), config=config)
    assert (found.source, found.packages, found.main) == ("lib", ("other.kernels",), "trunk")
    assert found.holds("lib/other/kernels/a.py")
    assert not found.holds("lib/other/a.py")
    assert not found.holds("mk/__init__.py")


def test_the_main_branch_is_the_remotes(stranger: Make) -> None:
    repository = stranger({"mk/__init__.py": ""})
    assert layout(repository).main == "main"
    repository.git("branch", "-m", "trunk")
    assert layout(repository).main == "trunk"
    repository.git("update-ref", "refs/remotes/origin/devel", "HEAD")
    repository.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/devel")
    assert layout(repository).main == "devel"


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("git@github.com:me/mk.git", "https://github.com/me/mk"),
        ("https://user:secret@github.com/me/mk.git", "https://github.com/me/mk"),
        ("https://github.com/me/mk/", "https://github.com/me/mk"),
        ("/srv/mk.git", ""),
        ("file:///srv/mk", ""),
    ],
)
def test_the_page_is_that_of_the_remote_without_a_password(remote: str, url: str, stranger: Make) -> None:
    repository = stranger({"mk/__init__.py": ""})
    repository.git("remote", "add", "origin", remote)
    assert layout(repository).url == url


@pytest.mark.parametrize(
    ("name", "text", "installable"),
    [
        ("setup.py", "", True),
        ("pyproject.toml", "[project]\nname='a'\n", True),
        ("pyproject.toml", "[tool.x]\n", False),
    ],
)
def test_pip_installs_what_has_a_project(name: str, text: str, installable: bool, stranger: Make) -> None:
    assert layout(stranger({"mk/__init__.py": "", name: text})).installable == installable
