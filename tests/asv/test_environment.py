from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.asv.conftest import Recorded


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"matrix": {"req": {"numpy": ["2.0"]}}}, 'the environment type "shared" installs nothing'),
        ({"pythons": ["3.11", "3.12"]}, 'the environment type "shared" has one interpreter'),
        ({"shared_python": "/nowhere/python"}, "no interpreter /nowhere/python"),
    ],
    ids=["matrix", "pythons", "shared_python"],
)
def test_what_it_cannot_do_is_said_without_a_traceback(
    repository: Recorded, conf: dict[str, object], message: str
) -> None:
    repository.commit_seconds(1e-3)
    repository.configure(**conf)

    process = repository.asv("setup")

    assert process.returncode == 1
    assert message in process.stdout
    assert "Traceback" not in process.stdout


def test_a_repository_without_settings_is_an_error_that_says_what_to_do(repository: Recorded) -> None:
    repository.commit_seconds(1e-3)
    repository.write("pyproject.toml", "")

    process = repository.asv("setup")

    assert process.returncode == 1
    assert "name the code under test" in process.stdout
    assert "Traceback" not in process.stdout
