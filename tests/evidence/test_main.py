from __future__ import annotations

import os

import pytest
from evidence.__main__ import about


@pytest.mark.parametrize(
    ("name", "runs", "cores", "expected"),
    [
        ("power", None, 2, "about 13 min"),
        ("power", 30, 2, "about 80 s"),
        ("ledger", 30, 2, "about 10 s"),
        ("rivals", 30, 1, "about 2 min"),
    ],
)
def test_a_job_says_how_long_it_takes_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, name: str, runs: int | None, cores: int, expected: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert about(name, runs) == expected
