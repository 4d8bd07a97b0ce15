from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.test_gate import RESULT

from flopwatch.cli import main
from flopwatch.cli.explain import read_measured
from flopwatch.errors import ExitCode, UndecidedError, UsageError
from flopwatch.explain.result import Explanation
from flopwatch.explain.run import ExplainOptions
from flopwatch.model import Case, from_json, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository

FOUND = Explanation(
    case=Case(suite="Scale", values=("1", "flopwatch")),
    base="a" * 40,
    head="working tree",
    device="h200",
    cause="num_warps=4 -> num_warps=1 in scale_kernel",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ExplainOptions]:
    """What a stand-in for `run_explain` was asked."""
    options: list[ExplainOptions] = []

    def stand_in(asked: ExplainOptions, _root: Path, **_: object) -> Explanation:
        options.append(asked)
        return FOUND

    monkeypatch.setattr("flopwatch.explain.run.run_explain", stand_in)
    return options


def test_the_options_reach_the_run(toy: ToyRepository, asked: list[ExplainOptions], tmp_path: Path) -> None:
    start = ["explain", "-C", str(toy.root), "Scale[1,flopwatch]"]
    (tmp_path / "gate.json").write_bytes(to_json(RESULT))
    assert main(start) == ExitCode.OK
    assert main([*start, "main", "HEAD", "--device", "b200"]) == ExitCode.OK
    assert main([*start, "--result", str(tmp_path / "gate.json")]) == ExitCode.OK
    assert main([*start, "--no-profile"]) == ExitCode.OK
    case = "Scale[1,flopwatch]"
    assert asked == [
        ExplainOptions(case=case),
        ExplainOptions(case=case, base="main", head="HEAD", device="b200"),
        ExplainOptions(case=case, measured=RESULT),
        ExplainOptions(case=case, profile=False),
    ]


@pytest.mark.usefixtures("asked")
def test_the_first_line_is_the_cause_in_each_form(
    toy: ToyRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["explain", "-C", str(toy.root), "Scale"]
    assert main(start) == ExitCode.OK
    assert capsys.readouterr().out.startswith("Likely cause: num_warps=4 -> num_warps=1 in scale_kernel.\n")
    assert main([*start, "--markdown", "--html", str(tmp_path / "page.html")]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[0].endswith("num_warps=4 -> num_warps=1 in scale_kernel.`")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>Likely cause: num_warps=4 -&gt; num_warps=1 in scale_kernel.</h1>" in page


@pytest.mark.usefixtures("asked")
def test_everything_is_written_as_json_beside_the_page(
    toy: ToyRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["explain", "-C", str(toy.root), "Scale", "--html", str(tmp_path / "page.html")]
    assert main([*start, "--json", str(tmp_path / "found.json")]) == ExitCode.OK
    assert from_json((tmp_path / "found.json").read_bytes(), Explanation) == FOUND
    assert capsys.readouterr().out.startswith("Likely cause: ")
    assert "<h1>Likely cause:" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert main([*start, "--json", "-"]) == ExitCode.OK
    assert from_json(capsys.readouterr().out, Explanation) == FOUND


@pytest.mark.parametrize("option", ["--html", "--json"])
def test_a_file_that_cannot_be_written_is_known_at_once(
    option: str, toy: ToyRepository, asked: list[ExplainOptions], tmp_path: Path
) -> None:
    path = str(tmp_path / "none" / "file")
    assert main(["explain", "-C", str(toy.root), "Scale", option, path]) == ExitCode.USAGE
    assert asked == []


@pytest.mark.parametrize("old", [None, "old"])
def test_what_cannot_be_explained_leaves_no_page_and_the_old_one_as_it_was(
    old: str | None, toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_asked: ExplainOptions, _root: Path, **_: object) -> Explanation:
        raise UndecidedError("no case has that name")

    monkeypatch.setattr("flopwatch.explain.run.run_explain", fail)
    folder = tmp_path / "pages"
    folder.mkdir()
    if old is not None:
        (folder / "page.html").write_text(old, encoding="utf-8")
    command = ["explain", "-C", str(toy.root), "Scale", "--html", str(folder / "page.html")]
    assert main(command) == ExitCode.UNDECIDED
    assert [path.read_text(encoding="utf-8") for path in folder.iterdir()] == ([] if old is None else [old])


@pytest.mark.usefixtures("asked")
def test_an_explanation_that_cannot_be_printed_does_not_cost_the_page(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flopwatch.report.explain.print_explanation", fail)
    page = tmp_path / "page.html"
    assert main(["explain", "-C", str(toy.root), "Scale", "--html", str(page)]) == ExitCode.USAGE
    assert "<h1>Likely cause:" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [None, "", "{}", "no JSON"])
def test_a_file_that_is_no_result_is_refused(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="name a file that flopwatch gate --json wrote"):
        read_measured(path)
