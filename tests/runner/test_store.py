from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
from runner import store
from runner.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Commit = Callable[[dict[str, str | None]], str]

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


@pytest.fixture
def head(commit: Commit) -> str:
    """Return the only commit of main, in `tmp_path / "repository"`."""
    return commit({"n": "0"})


def kept(tmp_path: Path, head: str, *members: tuple[tarfile.TarInfo, bytes]) -> store.Stored:
    """Store an archive that says of `head` that it is recorded, unless a member says something else."""
    said = any(member.name == "recorded" for member, _ in members)
    path = archive(tmp_path, *members, *([] if said else [plain("recorded", head.encode())]))
    return store.store(path, tmp_path / "kept", repository=tmp_path / "repository", head=head)


def test_recordings_are_written_where_they_belong(tmp_path: Path, head: str) -> None:
    names = [GOOD, f"{GOOD}l", "results/benchmarks.json", "results/h200/machine.json"]

    stored = kept(tmp_path, head, *(plain(name) for name in names))

    assert stored == store.Stored(names=tuple(sorted(names)), given_up="")
    assert (tmp_path / "kept" / GOOD).read_bytes() == b"{}"
    assert (tmp_path / "kept" / "recorded").read_text() == f"{head}\n"


def remember(tmp_path: Path, last: str) -> None:
    """Let the branch of recordings say how far an earlier night came."""
    (tmp_path / "kept").mkdir(exist_ok=True)
    (tmp_path / "kept" / "recorded").write_text(f"{last}\n")


@pytest.mark.parametrize("last", ["", "first", "rewritten"])
def test_a_night_that_ended_early_is_taken_as_far_as_it_came(tmp_path: Path, commit: Commit, last: str) -> None:
    line = [commit({"n": str(number)}) for number in range(4)]
    if last:
        remember(tmp_path, line[0] if last == "first" else "f" * 40)

    kept(tmp_path, line[3], plain("recorded", line[2].encode()))

    assert (tmp_path / "kept" / "recorded").read_text() == f"{line[2]}\n"


def test_a_commit_that_takes_more_than_a_night_is_named(tmp_path: Path, head: str) -> None:
    stored = kept(tmp_path, head, plain(GOOD), plain("given-up", head.encode()))

    assert stored == store.Stored(names=(GOOD,), given_up=head)
    assert (tmp_path / "kept" / "recorded").read_text() == f"{head}\n"
    assert not (tmp_path / "kept" / "given-up").exists()


@pytest.mark.parametrize("said", ["f" * 40, "::error::boo", "\xff"])
def test_only_the_commit_to_which_the_night_came_can_be_given_up(tmp_path: Path, head: str, said: str) -> None:
    with pytest.raises(StoreError, match="is given up"):
        kept(tmp_path, head, plain(GOOD), plain("given-up", said.encode("latin-1")))

    assert not (tmp_path / "kept").exists()


def test_a_commit_that_would_let_nights_skip_others_or_stand_still_is_refused(tmp_path: Path, commit: Commit) -> None:
    line = [commit({"n": str(number)}) for number in range(3)]
    repository = tmp_path / "repository"
    subprocess.run(["git", "checkout", "--quiet", "-b", "topic", line[1]], cwd=repository, check=True)
    off_main = commit({"n": "off main"})
    subprocess.run(["git", "checkout", "--quiet", "main"], cwd=repository, check=True)
    later = commit({"n": "later"})
    remember(tmp_path, line[1])

    for said in (line[0], line[1], off_main, later, "f" * 40, line[2][:12], f"{line[2]}\n", "HEAD", "--all", "\xff"):
        with pytest.raises(StoreError, match=r"is no (?:commit of main|full hash)"):
            kept(tmp_path, line[2], plain(GOOD), plain("recorded", said.encode("latin-1")))
    with pytest.raises(StoreError, match="does not say how far"):
        store.store(archive(tmp_path, plain(GOOD)), tmp_path / "kept", repository=repository, head=line[2])

    assert (tmp_path / "kept" / "recorded").read_text() == f"{line[1]}\n"
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["recorded"]


def test_a_clone_without_the_history_cannot_tell(tmp_path: Path, commit: Commit) -> None:
    commit({"n": "0"})
    head = commit({"n": "1"})
    full, shallow = tmp_path / "repository", tmp_path / "shallow"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", full.as_uri(), str(shallow)], check=True)
    shutil.rmtree(full)
    shallow.rename(full)

    with pytest.raises(StoreError, match="the clone is shallow"):
        kept(tmp_path, head, plain(GOOD))


@pytest.mark.parametrize(
    "name",
    [
        "results/../.github/workflows/x.json",
        "/results/h200/machine.json",
        "../results/h200/machine.json",
        ".github/workflows/ci.yml",
        "recorded.json",
        "results/recorded",
        "results/given-up",
        "results/.git/machine.json",
        "results/h200/deep/machine.json",
        "results/h200/034abb74-x\n.json",
        "results/h200/034abb74-é.json",
        "results/h200/machine.json.sh",
        "results/h200/machine.jsonl",
    ],
)
def test_any_other_name_is_refused_and_nothing_is_written(tmp_path: Path, head: str, name: str) -> None:
    with pytest.raises(StoreError, match="no result of asv"):
        kept(tmp_path, head, plain(GOOD), plain(name))

    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
@pytest.mark.parametrize("name", [GOOD, "recorded"])
def test_only_plain_files_are_taken(tmp_path: Path, head: str, kind: bytes, name: str) -> None:
    with pytest.raises(StoreError, match="no result of asv"):
        kept(tmp_path, head, link(name, kind))


def test_too_large_or_too_many_is_refused(tmp_path: Path, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LARGEST_BYTES", 1)
    with pytest.raises(StoreError, match="2 bytes"):
        kept(tmp_path, head, plain(GOOD))
    monkeypatch.setattr(store, "MOST_FILES", 0)
    with pytest.raises(StoreError, match="more than 0 files"):
        kept(tmp_path, head, plain(GOOD))


@pytest.mark.parametrize("name", ["results", "recorded"])
def test_a_link_that_is_already_there_is_not_followed(tmp_path: Path, head: str, name: str) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / name).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreError, match="leads out"):
        kept(tmp_path, head, plain(GOOD))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.tar").write_bytes(b"\x1f\x8b bomb")

    assert store.main([str(tmp_path / "results.tar"), str(tmp_path / "kept"), "a" * 40]) == 2
