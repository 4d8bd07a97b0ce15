from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from evidence import profiles

from flopwatch.errors import MachineError
from flopwatch.model import from_json, to_json
from flopwatch.profile import Profile, ProfiledCase
from flopwatch.profile.hatchet import Frame
from flopwatch.suite import discover

if TYPE_CHECKING:
    from pathlib import Path

    from flopwatch.profile import ProfileOptions

SUITES = discover(profiles.SUITES)
CASES = tuple(SUITES.suites["Product"].cases())


def test_the_three_providers_compute_one_product() -> None:
    assert SUITES.failures == {}
    assert [case.id for case in CASES] == [
        f"Product[8192x8192x8192,float16,{provider}]" for provider in ("flopwatch", "cublas", "torch")
    ]


def test_the_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = [ProfiledCase(case=case, flops=1.1e12, bytes_moved=4e8, kernel_seconds=1.7e-3) for case in CASES]
    found = Profile(gpu="NVIDIA H200", versions={}, cases=tuple(timed), tree=Frame(name="ROOT"))
    asked: list[tuple[ProfileOptions, Path]] = []

    def run(options: ProfileOptions, _root: Path, *, benchmarks: Path) -> Profile:
        asked.append((options, benchmarks))
        return found

    monkeypatch.setattr(profiles, "run_profile", run)
    profiles.main([str(tmp_path), "--memory"])
    ((options, benchmarks),) = asked
    assert (options.out, options.snapshot, options.counters, benchmarks) == (tmp_path, True, False, profiles.SUITES)
    assert from_json((tmp_path / "profile.json").read_bytes(), Profile) == found
    assert (tmp_path / "profile.txt").read_text(encoding="utf-8") == capsys.readouterr().out
    assert "Product 8192x8192x8192 float16 cublas" in (tmp_path / "roofline.svg").read_text(encoding="utf-8")


def test_a_gpu_whose_peaks_are_not_known_has_all_but_its_roofline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Profile(gpu="NVIDIA X", versions={}, cases=(), tree=Frame(name="ROOT"))
    monkeypatch.setattr(profiles, "run_profile", lambda *_, **__: found)
    with pytest.raises(SystemExit, match="are not known"):
        profiles.main([str(tmp_path)])
    assert (tmp_path / "profile.txt").read_text(encoding="utf-8") == capsys.readouterr().out != ""


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(*_: object, **__: object) -> Profile:
        raise MachineError("flopwatch profile needs a GPU")

    monkeypatch.setattr(profiles, "run_profile", run)
    with pytest.raises(SystemExit, match="needs a GPU"):
        profiles.main([str(tmp_path)])


def test_the_page_has_what_the_newest_profile_says_or_that_there_is_none(tmp_path: Path) -> None:
    page = tmp_path / "profile.md"
    page.write_text(profiles.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    profiles.write_page(profiles.newest(), page)
    assert page.read_text(encoding="utf-8") == profiles.PAGE.read_text(encoding="utf-8")


def test_a_profile_that_is_kept_is_shown_without_its_files(tmp_path: Path) -> None:
    timed = [ProfiledCase(case=case, flops=1.1e12, bytes_moved=4e8, kernel_seconds=1.7e-3) for case in CASES]
    files = {"tree": "/somewhere/profile.hatchet"}
    found = Profile(gpu="NVIDIA H200", versions={}, cases=tuple(timed), tree=Frame(name="ROOT"), files=files)
    kept = tmp_path / "evidence" / "h200" / "profile-2026-11-23.json"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(to_json(found))
    text = profiles.shown(kept)
    assert text.startswith("Recorded as `evidence/h200/profile-2026-11-23.json`:\n\n```text\n3 cases on NVIDIA H200")
    assert "cublas" in text
    assert "somewhere" not in text
    assert profiles.shown(None) == profiles.NOTHING


def test_a_profile_needs_a_folder_to_go_to() -> None:
    with pytest.raises(SystemExit, match="2"):
        profiles.main([])


@pytest.mark.gpu
@pytest.mark.parametrize("provider", ["flopwatch", "cublas", "torch"])
def test_every_provider_multiplies(provider: str) -> None:
    suite = SUITES.suites["Product"]()
    a, b = suite.inputs("256x384x512", "float16", seed=3)
    assert (a.shape, b.shape, b.stride(0)) == ((256, 512), (512, 384), 1)
    expected = suite.reference(a, b)
    difference = (suite.call(provider)(a, b).double() - expected).abs().max() / expected.abs().max()
    assert difference.item() < 2 * torch.finfo(torch.float16).eps
