from __future__ import annotations

import os
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from evidence import campaign_state
from evidence.campaign_state import LOCK, SCRATCH, STATE, Entry, State, Status, listed, locked, pack
from evidence.campaign_steps import Step

from flopwatch.errors import MachineError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

TODAY = "2026-11-22"
PASSED = Entry(
    status=Status.PASSED,
    seconds=61.4,
    exit_code=0,
    last="5 passed",
    commit="a1b2c3d4e5f60718",
    gpu="GPU-1",
    ended="2026-11-22T10:00:00+00:00",
)
FAILED = replace(PASSED, status=Status.FAILED, exit_code=1, last="1 failed")


def step(name: str, *needs: str) -> Step:
    return Step(name=name, purpose="speed", arguments=(), expected_s=9.0, origin="a guess", limit_s=20.0, needs=needs)


STEPS = [step("tests"), step("race", "tests"), step("peers"), step("wall")]


def state(**entries: Entry) -> State:
    return State(date=TODAY, entries=entries)


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = state(tests=PASSED).added("peers", FAILED)
    found.write(tmp_path)

    assert State.read(tmp_path, "2026-11-30") == found
    assert [path.name for path in tmp_path.iterdir()] == [STATE]


def test_where_there_is_none_a_campaign_begins_today(tmp_path: Path) -> None:
    assert State.read(tmp_path, TODAY) == State(date=TODAY)


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text('{"date": 3}', encoding="utf-8")

    with pytest.raises(UsageError, match=r"no campaign's\n  why: .*\n  do:  name another folder"):
        State.read(tmp_path, TODAY)


def test_a_state_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state(tests=PASSED).write(tmp_path)

    def fail(*_arguments: object, **_named: object) -> str:
        raise MemoryError

    monkeypatch.setattr(campaign_state, "to_json", fail)
    with pytest.raises(MemoryError):
        state().write(tmp_path)
    assert State.read(tmp_path, TODAY) == state(tests=PASSED)


def names(found: State) -> list[str]:
    return [step.name for step in found.waiting(STEPS)]


def test_steps_wait_in_their_order_until_they_have_passed() -> None:
    partial = replace(PASSED, status=Status.PARTIAL)

    assert names(state()) == ["tests", "race", "peers", "wall"]
    assert names(state(tests=PASSED, peers=partial)) == ["race", "peers", "wall"]


@pytest.mark.parametrize("status", [Status.FAILED, Status.STOPPED])
def test_what_failed_and_what_needs_it_come_last(status: Status) -> None:
    assert names(state(tests=replace(PASSED, status=status))) == ["peers", "wall", "tests", "race"]


def test_what_is_forgotten_waits_again() -> None:
    assert names(state(tests=PASSED, race=PASSED, peers=PASSED).forgotten(["race"])) == ["race", "wall"]


def test_a_step_begins_once_what_it_needs_has_passed() -> None:
    race = STEPS[1]

    assert state().missing(race, "GPU-1") == "tests has to pass before"
    assert state(tests=FAILED).missing(race, "GPU-1") == "tests has to pass before"
    assert state(tests=PASSED).missing(race, "GPU-2") == ""


def test_what_belongs_to_one_gpu_does_not_go_on_with_another() -> None:
    race = replace(STEPS[1], one_gpu=True)

    assert state(tests=PASSED).missing(race, "GPU-1") == ""
    assert state(tests=PASSED).missing(race, "GPU-2") == "tests ran on another GPU; begin in another folder"


def test_the_list_tells_what_was_measured_from_what_is_expected() -> None:
    assert list(listed(state(tests=PASSED), STEPS[:2])) == [
        "tests                   passed       61 s  speed (measured, 2026-11-22 at a1b2c3d4e5f6; 5 passed)",
        "race                    not run       9 s  speed (a guess)",
    ]


def test_a_folder_that_somebody_holds_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(MachineError, match="is in use\n  why: another campaign"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_step_that_outlives_its_campaign_holds_the_folder(tmp_path: Path) -> None:
    with locked(tmp_path) as held:
        kept = os.dup(held)  # as what a child inherits, of the same open file
    with pytest.raises(MachineError, match="a step of one that was killed"), locked(tmp_path):
        pass
    os.close(kept)
    with locked(tmp_path):
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (STATE, LOCK, "peers.log", f"{SCRATCH}/cache", "files/evidence/h200/peers.json", ".state.json.7.tmp"):
        path = tmp_path / "campaign" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    return tmp_path / "campaign"


def members(path: Path) -> set[str]:
    with tarfile.open(path) as archive:
        return set(archive.getnames())


@pytest.mark.parametrize("out", ["packed.tar.gz", "campaign/packed.tar.gz"])
def test_a_pack_has_what_cannot_be_made_again(folder: Path, out: str) -> None:
    for _ in range(2):  # the second time, with the first one there
        assert pack(folder, folder.parent / out) == []

    assert members(folder.parent / out) == {STATE, "peers.log", "files/evidence/h200/peers.json"}


def test_what_is_too_large_is_left_out_and_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = folder.parent / "packed.tar.gz"
    monkeypatch.setattr(campaign_state, "MOST_BYTES", 2**14)
    (folder / "timeline").write_bytes(bytes(2**14 + 1))  # as packed it would be small

    assert pack(folder, out) == ["timeline, 16 KiB"]
    assert members(folder.parent / "packed.tar.gz") == {STATE, "peers.log", "files/evidence/h200/peers.json"}


def test_a_pack_itself_is_no_larger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = folder.parent / "packed.tar.gz"
    monkeypatch.setattr(campaign_state, "MOST_BYTES", 2**14)
    for number in range(4):
        (folder / f"noise{number}").write_bytes(os.urandom(5000))

    left = pack(folder, out)

    assert len(left) == 2
    assert "peers.log" in members(out)
    assert out.stat().st_size <= 2**14
