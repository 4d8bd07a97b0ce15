from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.report.annotations import MAX_OF_A_KIND, annotate, find_suites
from flopwatch.report.reported import Reported

if TYPE_CHECKING:
    from tests.report.conftest import Gates

GOLDEN = Path(__file__).parent / "golden"
PLACES = {"Matmul": ("benchmarks/matmul.py", 12)}


@pytest.mark.parametrize("name", ["clean", "slower", "unsure", "broken", "unfit", "concluded", "waived"])
def test_the_annotations_are_the_golden_file(name: str, gates: Gates) -> None:
    text = annotate([Reported(result=getattr(gates, name))], PLACES)
    assert text == (GOLDEN / f"annotations-{name}.txt").read_text(encoding="utf-8")


def test_a_refused_result_is_an_error() -> None:
    refused = Reported(result=None, refusal="$: no JSON")
    assert annotate([refused], {}) == (
        "::error title=flopwatch::Refused: the result cannot be believed, and nothing is decided. $: no JSON\n"
    )


def test_no_more_are_written_than_github_shows(gates: Gates) -> None:
    slower = gates.slower.verdicts[1]
    many = tuple(replace(slower, case=replace(slower.case, values=(str(number),))) for number in range(40))
    lines = annotate([Reported(result=replace(gates.slower, verdicts=many))], {}).splitlines()
    assert len(lines) == MAX_OF_A_KIND
    assert lines[-1] == "::error title=flopwatch::and 32 more annotations of this kind"


def test_suites_are_found_where_they_are_declared(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "matmul.py").write_text('"""Suites."""\n\n\nclass Matmul(Suite):\n    pass\n', encoding="utf-8")
    (folder / "broken.py").write_bytes(b"\xff\xfe class")
    assert find_suites(folder) == {"Matmul": ("benchmarks/matmul.py", 4)}


def test_suites_of_a_folder_within_others_have_the_path_that_the_repository_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "python" / "benchmarks"
    folder.mkdir(parents=True)
    (folder / "matmul.py").write_text("class Matmul(Suite):\n    pass\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert find_suites(Path("./python/benchmarks/")) == {"Matmul": ("python/benchmarks/matmul.py", 1)}
