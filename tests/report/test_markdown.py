from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flopwatch.report.markdown import COMMENT_BYTES, MAX_ROWS, SUMMARY_BYTES, TAG, comment, job_summary
from flopwatch.report.reported import Origin, Reported

if TYPE_CHECKING:
    from tests.report.conftest import Gates

GOLDEN = Path(__file__).parent / "golden"
ORIGIN = Origin(pull_request=7, sha="0123456789abcdef0123456789abcdef01234567")
REFUSED = Reported(result=None, refusal="$.verdicts[3].time.estimate: a number that is not finite", origin=ORIGIN)


@pytest.mark.parametrize(
    "name", ["laptop", "spilling", "clean", "slower", "unsure", "broken", "unfit", "concluded", "waived"]
)
def test_the_comment_is_the_golden_file(name: str, gates: Gates) -> None:
    # To accept a change: write comment(...) into the file, and read it on GitHub as a reviewer would.
    text = comment([Reported(result=getattr(gates, name), origin=ORIGIN)])
    assert text == (GOLDEN / f"comment-{name}.md").read_text(encoding="utf-8")


def test_the_comment_of_a_refused_result_is_the_golden_file() -> None:
    assert comment([REFUSED]) == (GOLDEN / "comment-refused.md").read_text(encoding="utf-8")


def test_the_summary_is_the_golden_file(gates: Gates) -> None:
    text = job_summary([Reported(result=gates.slower), REFUSED])
    assert text == (GOLDEN / "summary-slower.md").read_text(encoding="utf-8")


def test_the_verdict_is_first_and_the_next_command_last(gates: Gates) -> None:
    lines = comment([Reported(result=gates.slower)]).splitlines()
    assert lines[0] == TAG
    assert lines[1].startswith("### Regressed: ")
    assert [line for line in lines if line][-1].startswith("**Next:** `flopwatch gate a1b2c3d4e5f6 0123456789ab -k ")


def test_a_comment_without_room_keeps_the_verdict_and_the_next_command(gates: Gates) -> None:
    slower = gates.slower.verdicts[1]
    many = tuple(
        replace(slower, case=replace(slower.case, values=(f"{number}x{'1' * 70}",) * 8), notes=("long " * 200,))
        for number in range(3000)
    )
    report = Reported(result=replace(gates.slower, verdicts=many, notes=("x" * 3000,) * 500))
    text = comment([report])
    assert 0.5 * COMMENT_BYTES < len(text.encode()) <= COMMENT_BYTES
    assert text.splitlines()[1].startswith("### Regressed: 3000 cases slower ")
    assert "**Next:** `flopwatch gate " in text
    assert f"{3000 - MAX_ROWS} further rows" in text
    assert 0.5 * SUMMARY_BYTES < len(job_summary([report]).encode()) <= SUMMARY_BYTES


def test_every_broken_case_has_a_row_that_says_what_is_wrong(gates: Gates) -> None:
    rows = [line for line in comment([Reported(result=gates.broken)]).splitlines() if line.startswith("| 🔴")]
    assert len(rows) == 3
    assert "`error 12 eps, was 0.5, ceiling 2`" in rows[0]
    assert "`fails on head, runs on base (CompilationError: " in rows[1]


def test_without_a_gpu_the_table_has_errors_and_a_sentence_says_what_was_not_measured(gates: Gates) -> None:
    result = replace(gates.broken, gpu=None, pairs=())
    text = comment([Reported(result=result)])
    assert "| 🔴 | `Matmul[1024x1024x1024,float16,flopwatch]` | 0.5 | 12 | broken |" in text
    assert "| 🔴 | `Matmul[1x1x1,float16,flopwatch]` | 0.5 | `CompilationError` | broken |" in text
    assert "Not measured: time and memory" in text
    assert job_summary([Reported(result=result)]).count("| `Matmul[") == len(result.verdicts)


def test_each_fold_ends_where_it_began(gates: Gates) -> None:
    many = replace(gates.slower, notes=("``` </details> | `x`",) * 5000)
    text = comment([Reported(result=many)])
    assert text.count("<details>") == text.count("\n</details>\n")
    assert text.count("```") == 2 * text.count("<details>")
    assert "more lines" in text
