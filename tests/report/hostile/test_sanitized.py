"""What sanitizers found, in a file that anybody may have written."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report.hostile.conftest import EVIL, put
from tests.report.hostile.test_corpus import check
from tests.report.hostile.test_untrusted import ANYTHING, places
from tests.report.hostile.test_verb import ALONE, SOURCE, report

from flopwatch.cli.report import FORMATS
from flopwatch.config import Config
from flopwatch.errors import ExitCode, UndecidedError
from flopwatch.model import Case, Failure, to_json
from flopwatch.report.annotations import annotate
from flopwatch.report.reported import Origin, report_on
from flopwatch.report.untrusted import load_result, read_result
from flopwatch.sanitize import CaseReport, Finding, Kind, Sanitized, Tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHA = "0123456789abcdef0123456789abcdef01234567"
CASES = tuple(Case(suite="Matmul", values=(f"{size}x7x9", "float16", "flopwatch")) for size in (33, 1))
FAULT = Finding(
    kind=Kind.OUT_OF_BOUNDS,
    what="program (3, 0, 0) reads 2 bytes, the first byte after a_ptr, float16[33, 9]",
    kernel="matmul_kernel",
    file="src/matmul.py",
    line=7,
    element_bytes=2,
    block=(3, 0, 0),
    count=24,
)
HONEST = Sanitized(
    head="working tree",
    gpu=None,
    tools={"interpreter": "0.1.0", "triton-viz": "3.0"},
    versions={"triton": "3.7.1"},
    selected=5,
    reports=(
        CaseReport(case=CASES[0], tool=Tool.INTERPRETER, findings=(FAULT,), kernels=("matmul_kernel",), notes=("n",)),
        CaseReport(case=CASES[1], tool=Tool.INTERPRETER, failure=Failure(kind="NotCovered", message="inline_asm")),
        CaseReport(case=CASES[1], tool=Tool.TRITON_VIZ, failure=Failure(kind="RuntimeError", message="no end")),
    ),
    seconds=4.5,
)
TABLE = json.loads(to_json(HONEST))
#: Where it has free text: it is accepted, and shown as text.
TEXTS = (
    *(("reports", 0, "findings", 0, key) for key in ("what", "kernel", "file", "argument", "address")),
    ("reports", 0, "notes", 0),
    ("reports", 1, "failure", "message"),
)
NAMES = (
    ("head",),
    ("gpu",),
    ("tools", "interpreter"),
    ("versions", "triton"),
    ("reports", 0, "case", "suite"),
    ("reports", 0, "kernels", 0),
    ("reports", 1, "failure", "kind"),
)


def _forged() -> Iterator[tuple[str, bytes]]:
    for path in NAMES:
        yield f"{path} is evil", put(TABLE, path, EVIL[0])
    for key in ("head", "gpu", "tools", "versions", "selected", "reports"):
        yield f"no {key}", json.dumps({name: value for name, value in TABLE.items() if name != key}).encode()
        yield f"{key} is a number", put(TABLE, (key,), -7)
    for record in ((), ("reports", 0), ("reports", 0, "findings", 0), ("reports", 0, "case")):
        yield f"{record} has a key more", put(TABLE, (*record, "extra"), 1)
    finding = ("reports", 0, "findings", 0)
    for key, value in {
        "kind": "harmless",
        "line": -1,
        "count": 1.5,
        "block": [1, 2],
        "thread": [1, 2, 3, 4],
        "own": 1,
        "access": "look",
        "element_bytes": "2",
    }.items():
        yield f"{key} is {value}", put(TABLE, (*finding, key), value)
    yield "exit code 0", put(TABLE, ("exit_code",), 0)
    yield "a report twice", put(TABLE, ("reports", 1), TABLE["reports"][0])
    yield "a tool that nobody knows", put(TABLE, ("reports", 0, "tool"), "eyes")
    yield "a tool that is not named", put(TABLE, ("tools",), {"interpreter": "0.1.0"})
    yield "tools of markup", put(TABLE, ("tools",), TABLE["tools"] | {"<b>": "1"})
    yield "a case without values", put(TABLE, ("reports", 0, "case", "values"), [])
    yield "many findings", put(TABLE, ("reports", 0, "findings"), [TABLE["reports"][0]["findings"][0]] * 5001)
    yield "another version", put(TABLE, ("schema_version",), 2)
    yield "of a gate, too", put(TABLE, ("verdicts",), [])


FORGED_SANITIZED = dict(_forged())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "sanitized.json"
    path.write_bytes(to_json(HONEST, indent=2))
    return path


def test_what_sanitize_writes_is_read_as_it_was(path: Path) -> None:
    assert load_result(path) == HONEST
    found = report_on(path, origin=Origin(), policy=Config(), recompute=lambda _gate: ["never asked"])
    assert (found.sanitized, found.refusal, found.exit_code) == (HONEST, "", ExitCode.REGRESSED)
    assert found.sentence == "Faulty: 1 fault in 1 kernel, found by interpreter."
    assert found.next_command == "flopwatch sanitize 'Matmul[33x7x9,float16,flopwatch]' --tool interpreter"


def test_it_is_about_the_commit_that_was_asked_for_or_refused(path: Path) -> None:
    found = report_on(path, origin=Origin(sha=SHA)).sanitized
    assert found is not None
    assert found.head == SHA
    path.write_bytes(put(TABLE, ("head",), "f" * 40))
    assert report_on(path, origin=Origin(sha=SHA)).refusal == "it is about another commit"


@pytest.mark.parametrize("name", FORGED_SANITIZED)
def test_what_is_forged_is_refused(name: str, path: Path) -> None:
    path.write_bytes(FORGED_SANITIZED[name])
    found = report_on(path, origin=Origin())
    assert found.is_refused
    assert found.refusal
    assert found.exit_code is ExitCode.UNDECIDED


@pytest.mark.parametrize("evil", EVIL)
def test_text_stays_text(evil: str, path: Path) -> None:
    for place in TEXTS:
        path.write_bytes(put(TABLE, place, evil))
        found = report_on(path, origin=Origin(pull_request=7))
        assert found.refusal == ""
        check([found])


@pytest.mark.parametrize("file", ["/etc/passwd", "../x.py", "a/../../x.py", "./x.py", "a,line=1::b", "a\\b", "", "a b"])
def test_a_fault_is_annotated_in_files_of_the_repository_alone(file: str, path: Path) -> None:
    line = "::error file=src/matmul.py,line=7,title=flopwatch::out of bounds: matmul_kernel, src/matmul.py:7: "
    assert line in annotate([report_on(path, origin=Origin())], {})
    path.write_bytes(put(TABLE, ("reports", 0, "findings", 0, "file"), file))
    text = annotate([report_on(path, origin=Origin())], {})
    assert "file=" not in text
    assert "\n::error title=flopwatch::out of bounds: matmul_kernel" in text


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_has_the_fault_and_what_was_not_looked_at(
    form: str, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert report(str(path), "--format", form) == ExitCode.REGRESSED
    printed = capfd.readouterr().out
    assert "Faulty: 1 fault in " in printed
    assert "src/matmul.py:7: program (3, 0, 0) reads 2 bytes" in printed
    assert "no end" in printed
    assert report(str(path), "--format", form, "--exit-zero") == ExitCode.OK


def test_a_clean_run_is_green_and_the_worst_of_both_kinds_decides(path: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean.json"
    clean.write_bytes(put({**TABLE, "exit_code": 0}, ("reports",), [TABLE["reports"][0] | {"findings": []}]))
    for form in FORMATS:
        assert report(str(clean), "--format", form) == ExitCode.OK
    assert report(str(clean), str(path), "--format", "junit") == ExitCode.REGRESSED


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "terminal"])
def test_the_standard_library_is_enough(form: str, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(SOURCE), "report", str(path), "--format", form],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (ExitCode.REGRESSED, "[]\n")


def test_it_is_no_result_of_a_gate() -> None:
    with pytest.raises(UndecidedError, match="of sanitizers, and not of a gate"):
        read_result(to_json(HONEST))


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_whatever_is_put_anywhere_is_read_or_refused_and_shown(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table: Any = json.loads(to_json(HONEST))
    where = data.draw(st.sampled_from(places(table)[1:]))
    place = table
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = data.draw(ANYTHING)
    path = tmp_path_factory.getbasetemp() / "anything.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    check([report_on(path, origin=Origin())])
