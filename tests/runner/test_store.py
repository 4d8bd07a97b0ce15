from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest
from runner import store
from runner.store import StoreError

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "results/h200/034abb74-shared-py3.12-gpuNVIDIA H200-torch2.11.0-triton3.6.0.json"


def archive(tmp_path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = tmp_path / "results.tar"
    with tarfile.open(path, "w") as file:
        for member, content in members:
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def plain(name: str, content: bytes = b"{}") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def link(name: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member, b""


def test_recordings_are_written_where_they_belong(tmp_path: Path) -> None:
    names = [GOOD, f"{GOOD}l", "results/benchmarks.json", "results/h200/machine.json"]
    path = archive(tmp_path, *(plain(name) for name in names))

    assert store.store(path, tmp_path / "kept") == sorted(names)
    assert (tmp_path / "kept" / GOOD).read_bytes() == b"{}"


@pytest.mark.parametrize(
    "name",
    [
        "results/../.github/workflows/x.json",
        "/results/h200/machine.json",
        "../results/h200/machine.json",
        ".github/workflows/ci.yml",
        "recorded",
        "results/.git/machine.json",
        "results/h200/deep/machine.json",
        "results/h200/034abb74-x\n.json",
        "results/h200/034abb74-é.json",
        "results/h200/machine.json.sh",
        "results/h200/machine.jsonl",
    ],
)
def test_any_other_name_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="no result of asv"):
        store.store(archive(tmp_path, plain(GOOD), plain(name)), tmp_path / "kept")

    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_only_plain_files_are_taken(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(StoreError):
        store.store(archive(tmp_path, link(GOOD, kind)), tmp_path / "kept")


def test_too_large_or_too_many_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LARGEST_BYTES", 1)
    with pytest.raises(StoreError, match="2 bytes"):
        store.store(archive(tmp_path, plain(GOOD)), tmp_path / "kept")
    monkeypatch.setattr(store, "MOST_FILES", 0)
    with pytest.raises(StoreError, match="more than 0 files"):
        store.store(archive(tmp_path, plain(GOOD)), tmp_path / "kept")


def test_a_link_that_is_already_there_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "results").symlink_to(tmp_path)

    with pytest.raises(StoreError, match="leads out"):
        store.store(archive(tmp_path, plain(GOOD)), tmp_path / "kept")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.tar").write_bytes(b"\x1f\x8b bomb")

    assert store.main([str(tmp_path / "results.tar"), str(tmp_path / "kept")]) == 2
