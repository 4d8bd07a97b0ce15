"""A result as an H200 gave it (2026-11-21): blocks of 64 elements in place of 1024, every launcher touched.

    flopwatch gate main slow -k VectorAdd --json gate-slower.json

After a change of the design (`flopwatch.stats.design`) its pairs decide otherwise, and it is to be measured anew. It is
older than the key `kernels`, so that the kernels of its cases are not known, and no cause is told.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flopwatch.cli.entry import main
from flopwatch.errors import ExitCode

RESULT = Path(__file__).parent / "h200" / "gate-slower.json"


def test_its_pairs_decide_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(RESULT), "--recompute"]) is ExitCode.REGRESSED
    printed = capsys.readouterr().out

    assert printed.startswith("Regressed: 6 cases slower (worst: VectorAddSizes[268435456,bfloat16,flopwatch], 6.83x")
    assert "16 pairs of processes (8 to screen, 8 to confirm)" in printed
    assert "note: vector_add_kernel on h200: configuration changed: BLOCK_SIZE=1024 -> BLOCK_SIZE=64" in printed
    assert "likely cause" not in printed


def test_a_pair_that_says_otherwise_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = RESULT.read_text(encoding="utf-8")
    ratio = re.search(r'"VectorAdd\[1048576,float16,flopwatch\]": (1\.29\d+)', text)
    assert ratio is not None
    forged = tmp_path / "gate.json"
    forged.write_text(text.replace(ratio[1], "0.0", 1), encoding="utf-8")

    assert main(["report", str(forged), "--recompute"]) is not ExitCode.REGRESSED
    assert "".join(capsys.readouterr()).startswith("Refused: the result cannot be believed")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("markdown", "6.83x slower (6.82x to 6.84x)"),
        ("summary", "6.83x slower (6.82x to 6.84x)"),
        ("annotations", "::error"),
        ("junit", 'failures="7"'),  # the suite's median too
        ("html", "<svg"),
    ],
)
def test_it_is_told_in_every_form(form: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(RESULT), "--format", form]) is ExitCode.REGRESSED
    assert words in capsys.readouterr().out


def test_the_page_places_each_case_under_the_roof(capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(RESULT), "--format", "html"])
    page = capsys.readouterr().out

    assert page.count("% of the roofline") >= 14  # seven cases, base and head
