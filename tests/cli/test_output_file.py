from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from flopwatch.cli.output_file import claim, print_and_write
from flopwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEW = "what was found out\n"


def say() -> None:
    print("for people")  # noqa: T201 - what a verb does


def text() -> str:
    return NEW


def test_claiming_a_file_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    path.write_text("old", encoding="utf-8")
    claim(path)
    assert path.read_text(encoding="utf-8") == "old"


def test_claiming_a_file_that_is_not_there_leaves_none(tmp_path: Path) -> None:
    claim(tmp_path / "gate.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "why"), [("nowhere/gate.json", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_written_is_refused(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"cannot be written\n  why: {why}"):
        claim(tmp_path / name)


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the kernel refuse to write more to a file, in the middle of it, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("capsys")  # what is printed goes to no file
@pytest.mark.parametrize("old", ["old", None])
def test_what_does_not_fit_leaves_what_was_there_and_nothing_beside_it(old: str | None, tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    if old is not None:
        path.write_text(old, encoding="utf-8")
    with files_of_at_most(10), pytest.raises(UsageError, match=r"gate\.json cannot be written\n  why: File too large"):
        print_and_write(say, path, text)
    assert {entry.name: entry.read_text(encoding="utf-8") for entry in tmp_path.iterdir()} == (
        {} if old is None else {"gate.json": old}
    )


def test_an_old_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    path, link = tmp_path / "gate.json", tmp_path / "link.json"
    path.write_text("old" * 1000, encoding="utf-8")
    path.chmod(0o640)
    link.symlink_to(path)
    print_and_write(say, link, text)
    assert link.is_symlink()
    assert path.read_text(encoding="utf-8") == NEW
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    print_and_write(say, tmp_path / "gate.json", text)
    (tmp_path / "other").touch()
    assert (tmp_path / "gate.json").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_named_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    claim(pipe)
    print_and_write(say, pipe, text)
    reader.join(10)
    assert read == [NEW.encode()]
    assert pipe.is_fifo()


def test_a_file_that_is_a_mount_of_its_own_is_written_in_place(tmp_path: Path) -> None:
    """As a container has it, one file of whose host is bound into it."""
    inside, outside = tmp_path / "inside.json", tmp_path / "outside.json"
    inside.touch()
    outside.write_text("{}", encoding="utf-8")
    bound = ["bwrap", "--dev-bind", "/", "/", "--bind", str(outside), str(inside)]
    if not shutil.which("bwrap") or subprocess.run([*bound, "true"], check=False).returncode:
        pytest.skip("needs bubblewrap and user namespaces")
    program = (
        "import pathlib, sys; from flopwatch.cli import output_file\n"
        "output_file._replace(pathlib.Path(sys.argv[1]), 'new')"
    )
    subprocess.run([*bound, sys.executable, "-c", program, inside], check=True)

    assert (inside.read_text(encoding="utf-8"), outside.read_text(encoding="utf-8")) == ("", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside.json", "outside.json"]


def test_a_report_that_cannot_be_printed_is_told_in_the_same_way_and_does_not_cost_the_file(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UsageError, match=r"the report cannot be written\n  why: No space left on device"):
        print_and_write(fail, tmp_path / "gate.json", text)
    assert (tmp_path / "gate.json").read_text(encoding="utf-8") == NEW
