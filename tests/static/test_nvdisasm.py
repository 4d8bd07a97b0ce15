from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import UnsupportedTritonError
from flopwatch.static.nvdisasm import find_nvdisasm, run_nvdisasm

if TYPE_CHECKING:
    from pathlib import Path


def named(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a shell script run in nvdisasm's place."""
    program = folder / "nvdisasm"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(program))


def test_the_program_that_is_named_gets_the_options_and_a_file_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(tmp_path, 'echo "$1"; cat "$2"', monkeypatch)
    assert run_nvdisasm(b"code", "--binary") == "--binary\ncode"


def test_a_missing_disassembler_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(tmp_path / "none"))
    assert find_nvdisasm() is None
    with pytest.raises(UnsupportedTritonError, match="Triton has no nvdisasm"):
        run_nvdisasm(b"")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'not an ELF file' >&2; echo more >&2; exit 1", "not an ELF file"),
        ("exit 3", "exit 3"),
    ],
)
def test_the_first_line_of_its_complaint_is_the_reason(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(tmp_path, script, monkeypatch)
    with pytest.raises(UnsupportedTritonError, match="does not list the machine code") as caught:
        run_nvdisasm(b"")
    assert caught.value.why == why


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named(tmp_path, "", monkeypatch)
    (tmp_path / "nvdisasm").chmod(0o644)
    with pytest.raises(UnsupportedTritonError, match="does not list the machine code") as caught:
        run_nvdisasm(b"")
    assert "Permission denied" in caught.value.why
