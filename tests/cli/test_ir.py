from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.cli import main
from flopwatch.errors import ExitCode
from flopwatch.explain.ir import IrOptions, IrResult, KernelIr

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ToyRepository

DIFF = "--- a/k.ttir\n+++ b/k.ttir\n@@ -1,2 +1,2 @@\n module {\n-  tt.load %x\n+  tt.load [red]%y[/red]\n"
SAME = KernelIr(name="k-1", kernel="k", config="BLOCK=64", level="ttir", text="module {\n}\n")
CHANGED = KernelIr(name="k-1", kernel="k", config="BLOCK=64", level="ptx", text="ret;\n", diff=DIFF)
GONE = KernelIr(name="old-1", kernel="old", config="", level="ttir", text="", diff=DIFF)
FOUND = IrResult(base="a1b2c3d", device="h200", cases=("Scale[1]",), kernels=(SAME, CHANGED, GONE))


class Ir:
    """Stands in for `run_ir`."""

    def __init__(self) -> None:
        self.result = FOUND
        self.options: list[IrOptions] = []

    def __call__(self, options: IrOptions, _root: Path, **_: object) -> IrResult:
        self.options.append(options)
        return self.result


@pytest.fixture
def ir(monkeypatch: pytest.MonkeyPatch) -> Ir:
    stand_in = Ir()
    monkeypatch.setattr("flopwatch.explain.ir.run_ir", stand_in)
    return stand_in


def test_the_options_reach_the_run(toy: ToyRepository, ir: Ir, tmp_path: Path) -> None:
    start = ["ir", "-C", str(toy.root), "Scale"]
    assert main([*start, "--out", str(tmp_path / "a" / "b")]) == ExitCode.OK
    assert main([*start, "--level", "ttir, SASS", "--device", "b200", "--diff", "main", "--all"]) == ExitCode.OK
    assert ir.options == [
        IrOptions(select="Scale"),
        IrOptions(select="Scale", levels=("ttir", "sass"), device="b200", base="main", everything=True),
    ]


def test_each_level_is_a_file_and_a_line(
    toy: ToyRepository, ir: Ir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ir.result = IrResult(base="", device="h200", cases=(), kernels=(SAME,), failures=("head: Scale[2]: [b]no[/b]",))
    assert main(["ir", "-C", str(toy.root), "Scale", "--out", str(tmp_path / "ir")]) == ExitCode.OK
    assert [path.name for path in (tmp_path / "ir").iterdir()] == ["k-1.ttir"]
    assert (tmp_path / "ir" / "k-1.ttir").read_text(encoding="utf-8") == SAME.text
    assert capsys.readouterr().out.splitlines() == [
        f"k [BLOCK=64] ttir -> {tmp_path / 'ir' / 'k-1.ttir'}",
        "not compiled: head: Scale[2]: [b]no[/b]",
    ]


def test_differences_are_files_too(
    toy: ToyRepository, ir: Ir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ir", "-C", str(toy.root), "Scale", "--out", str(tmp_path), "--diff", "main"]) == ExitCode.OK
    assert ir.options[0].base == "main"
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {"k-1.ttir", "k-1.ptx", "k-1.ptx.diff", "old-1.ttir.diff"}
    assert (tmp_path / "k-1.ptx.diff").read_text(encoding="utf-8") == DIFF
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": the same")
    assert "1 line of base, 1 of head" in lines[1]


@pytest.mark.usefixtures("ir")
def test_without_a_folder_differences_are_printed_as_they_are(
    toy: ToyRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ir", "-C", str(toy.root), "Scale", "--diff", "main"]) == ExitCode.OK
    assert DIFF in capsys.readouterr().out


@pytest.mark.usefixtures("ir")
def test_there_must_be_somewhere_to_write_to(toy: ToyRepository, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ir", "-C", str(toy.root), "Scale"]) == ExitCode.USAGE
    assert "name --out DIR" in capsys.readouterr().err
