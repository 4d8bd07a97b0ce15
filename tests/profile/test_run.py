from __future__ import annotations

import json
import math
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import HAS_GPU

from flopwatch.errors import ExitCode, MachineError, UndecidedError
from flopwatch.model import Case, Choice, Failure, from_json, to_json
from flopwatch.profile import Profile, ProfiledCase, ProfileOptions, run_profile
from flopwatch.profile.request import Answer, Ask

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

    from flopwatch.measure.process import Code

OURS = Case(suite="Matmul", values=("8192x8192x8192", "float16", "flopwatch"))
TORCHS = Case(suite="Matmul", values=("8192x8192x8192", "float16", "torch"))
RAN = Answer(
    gpu="NVIDIA H200",
    versions={"triton": "3.6.0"},
    cases=(
        ProfiledCase(
            case=OURS,
            flops=1e12,
            bytes_moved=4e8,
            calls=6,
            call_seconds=1.52e-3,
            host_seconds=2e-5,
            wall_seconds=1.6e-3,
            choices=(Choice(kernel="matmul_kernel", config="BLOCK_M: 128"),),
        ),
        ProfiledCase(case=TORCHS, flops=1e12, bytes_moved=4e8, failure=Failure(kind="RuntimeError", message="no")),
    ),
)
#: Stands for Nsight Compute, which runs the program that it is given.
NCU = """\
#!{python}
import subprocess, sys
if "--query-metrics" in sys.argv:
    print("dram__bytes_read  # of bytes\\nlts__t_sector_hit_rate  # rate")
    raise SystemExit
assert sys.argv[sys.argv.index("--profile-from-start") + 1] == "off"
program = sys.argv[sys.argv.index("off") + 1 :]
subprocess.run(program, check=True)
with open(sys.argv[sys.argv.index("--log-file") + 1], "w") as log:
    log.write('"ID","Kernel Name","dram__bytes_read.sum","lts__t_sector_hit_rate.pct"\\n"","","byte","%"\\n')
    log.write('"0","matmul_kernel","268,435,456","81.5"\\n')
"""


class Recorder:
    """Stands for the process that profiles: answers what it is told, after the files were put where they belong."""

    def __init__(self, folder: Path) -> None:
        self.answer: Answer | None = RAN
        self.asked: list[Ask] = []
        self.recorded: Path | None = None
        self._folder = folder

    def __call__(self, ask: Ask, _code: Code, folder: Path) -> tuple[list[str], Path]:
        self.asked.append(ask)
        if self.recorded is not None:
            for name in ("profile.hatchet", "timeline.chrome_trace"):
                shutil.copy(self.recorded / name, ask.folder)
        answered = folder / "answer.json"
        if self.answer is not None:
            answered.write_bytes(to_json(self.answer))
        return [sys.executable, "-c", "print('Segmentation fault')"], answered


@pytest.fixture
def recorder(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    stand_in = Recorder(tmp_path)
    stand_in.recorded = recorded
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", lambda: {"GPU-0": "NVIDIA H200"})
    monkeypatch.setattr("flopwatch.profile.process.program_of", stand_in)
    return stand_in


def test_without_a_gpu_what_works_nevertheless_is_named(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", dict)
    with pytest.raises(MachineError, match="flopwatch profile needs a GPU") as caught:
        run_profile(ProfileOptions(select="Scale", out=toy.root / "out"), toy.root)
    assert caught.value.exit_code is ExitCode.UNFIT
    assert all(name in caught.value.todo for name in ("flopwatch static", "flopwatch explain", "--roofline", "--show"))
    assert not (toy.root / "out").exists()


@pytest.mark.skipif(HAS_GPU, reason="needs a machine on which torch finds no GPU")
def test_a_driver_whose_gpu_torch_does_not_find_is_no_gpu(toy: ToyRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopwatch.measure.nvml.present_gpus", lambda: {"GPU-0": "NVIDIA H200"})
    with pytest.raises(MachineError, match="needs a GPU") as caught:
        run_profile(ProfileOptions(select="Scale", out=toy.root / "out"), toy.root)
    assert caught.value.why == "torch finds none"


def test_kernels_have_the_time_of_their_scope_in_the_tree(
    toy: ToyRepository, recorder: Recorder, tmp_path: Path
) -> None:
    profile = run_profile(ProfileOptions(select="Matmul", out=tmp_path / "out"), toy.root)
    ours, torchs = profile.cases
    assert ours.kernel_seconds is not None
    assert math.isclose(ours.kernel_seconds, 1.5e-3)
    assert ours.idle_seconds is not None
    assert math.isclose(ours.idle_seconds, 1e-4)
    assert (torchs.kernel_seconds, torchs.failure) == (None, Failure(kind="RuntimeError", message="no"))
    assert (profile.gpu, profile.exit_code) == ("NVIDIA H200", ExitCode.OK)
    assert [ask.select for ask in recorder.asked] == ["Matmul"]
    assert from_json(to_json(profile), Profile) == profile


def test_a_case_that_failed_on_its_way_has_no_time(toy: ToyRepository, recorder: Recorder, tmp_path: Path) -> None:
    failed = replace(RAN.cases[0], failure=Failure(kind="RuntimeError", message="an illegal address"))
    recorder.answer = replace(RAN, cases=(failed,))
    profile = run_profile(ProfileOptions(select="Matmul", out=tmp_path), toy.root)
    assert profile.cases == (failed,)
    assert profile.exit_code is ExitCode.UNDECIDED


def test_the_files_are_where_they_were_asked_for(toy: ToyRepository, recorder: Recorder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    profile = run_profile(ProfileOptions(select="Matmul", out=out), toy.root)
    assert profile.files == {"tree": str(out / "profile.hatchet"), "timeline": str(out / "timeline.json")}
    assert sorted(path.name for path in out.iterdir()) == ["profile.hatchet", "timeline.json"]
    assert "traceEvents" in json.loads((out / "timeline.json").read_text(encoding="utf-8"))
    assert recorder.asked[0].folder == str(out)


def test_a_timeline_that_cannot_be_made_does_not_cost_the_times(
    toy: ToyRepository, recorder: Recorder, recorded: Path, tmp_path: Path
) -> None:
    broken, out = tmp_path / "broken", tmp_path / "out"
    shutil.copytree(recorded, broken)
    (broken / "timeline.chrome_trace").write_text('{"traceEvents": [{"na', encoding="utf-8")
    recorder.recorded = broken
    out.mkdir()
    (out / "timeline.json").write_text("of another run", encoding="utf-8")
    profile = run_profile(ProfileOptions(select="Matmul", out=out), toy.root)
    assert profile.cases[0].kernel_seconds is not None
    assert list(profile.files) == ["tree"]
    assert not (out / "timeline.json").exists()
    assert "no timeline: " in profile.notes[0]


def test_what_the_recorder_could_not_do_is_a_note(toy: ToyRepository, recorder: Recorder, tmp_path: Path) -> None:
    recorder.answer = replace(RAN, notes=("no snapshot",))
    assert run_profile(ProfileOptions(select="Matmul", out=tmp_path / "out"), toy.root).notes == ("no snapshot",)


def test_a_counters_profiler_that_hangs_does_not_cost_the_times(
    toy: ToyRepository, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*_: str) -> str:
        raise subprocess.TimeoutExpired("ncu", 300.0)

    monkeypatch.setattr("flopwatch.profile.run.find_profiler", lambda: "ncu")
    monkeypatch.setattr("flopwatch.profile.process.ask_profiler", hang)
    profile = run_profile(ProfileOptions(select="Matmul", out=tmp_path / "out", counters=True), toy.root)
    assert recorder.asked[0].select == "Matmul"
    assert profile.cases[0].kernel_seconds is not None
    assert profile.notes == ("no counters: Nsight Compute took more than 300 s",)


def test_a_process_that_dies_is_told_with_what_it_said(toy: ToyRepository, recorder: Recorder, tmp_path: Path) -> None:
    recorder.answer = None
    with pytest.raises(UndecidedError, match="died") as caught:
        run_profile(ProfileOptions(select="Matmul", out=tmp_path), toy.root)
    assert caught.value.why == "Segmentation fault"


@pytest.mark.parametrize(("unfit", "kind"), [(True, MachineError), (False, UndecidedError)])
def test_a_refusal_keeps_its_exit_code(
    unfit: bool, kind: type[Exception], toy: ToyRepository, recorder: Recorder, tmp_path: Path
) -> None:
    recorder.answer = Answer(refusal="no", why="because", todo="that", unfit=unfit)
    with pytest.raises(kind, match=r"^no\n  why: because\n  do:  that$"):
        run_profile(ProfileOptions(select="Matmul", out=tmp_path), toy.root)


def test_counters_are_read_of_one_call_in_the_configuration_that_was_profiled(
    toy: ToyRepository, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(NCU.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    profile = run_profile(ProfileOptions(select="Matmul", out=tmp_path / "out", counters=True), toy.root)
    (launch,) = profile.cases[0].counters
    assert launch.kernel == "matmul_kernel"
    assert launch.counters == {"dram__bytes_read.sum": 268435456.0, "lts__t_sector_hit_rate.pct": 81.5}
    assert profile.cases[1].counters == ()
    assert [(ask.once, ask.pins) for ask in recorder.asked] == [(None, ()), (OURS, RAN.cases[0].choices)]
    assert "dram__bytes_write.sum" in profile.notes[0]


@pytest.mark.usefixtures("recorder")
def test_without_the_counters_profiler_nothing_is_measured(
    toy: ToyRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flopwatch.profile.counters.shutil.which", lambda _name: None)
    monkeypatch.setattr("flopwatch.profile.counters.USUAL_PLACES", (str(tmp_path / "nowhere"),))
    with pytest.raises(MachineError, match="no Nsight Compute"):
        run_profile(ProfileOptions(select="Matmul", out=tmp_path / "out", counters=True), toy.root)


@pytest.mark.gpu
def test_a_kernel_on_a_gpu_has_its_time_its_host_and_its_files(toy: ToyRepository, tmp_path: Path) -> None:
    options = ProfileOptions(select="Scale[1000000,float16", out=tmp_path / "out", snapshot=True)
    profile = run_profile(options, toy.root)
    assert [case.case.provider for case in profile.cases] == ["flopwatch", "torch"]
    for case in profile.cases:
        assert case.failure is None
        # 4 MB of two arrays that stay in the cache: some microseconds, and no more than a loop of calls.
        assert case.kernel_seconds is not None
        assert 2e-7 < case.kernel_seconds < 1e-3
        assert case.host_seconds is not None
        assert case.host_seconds > 1e-6
        assert case.wall_seconds is not None
        assert case.wall_seconds > 0.8 * case.kernel_seconds
    ours = next(frame for frame in profile.tree.children if frame.name == profile.cases[0].case.id)
    assert [(frame.name, frame.count) for frame in ours.children] == [("scale_kernel", profile.cases[0].calls)]
    assert ours.bytes_moved == profile.cases[0].calls * 4e6
    events = json.loads(Path(profile.files["timeline"]).read_text(encoding="utf-8"))["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel" and event["name"] == "scale_kernel"]
    assert len(kernels) == 3
    scopes = {event["name"] for event in events if event.get("cat") == "scope"}
    assert scopes == {case.case.id for case in profile.cases}
    snapshot = Path(profile.files["memory of Scale-1000000-float16-flopwatch"]).read_bytes()
    assert pickle.loads(snapshot)["segments"]  # noqa: S301 - torch wrote it a moment ago


@pytest.mark.gpu
def test_counters_on_a_gpu_are_read_or_refused_with_a_cause(toy: ToyRepository, tmp_path: Path) -> None:
    options = ProfileOptions(select="Scale[1000000,float16,flopwatch]", out=tmp_path / "out", counters=True)
    try:
        profile = run_profile(options, toy.root)
    except MachineError as error:
        assert "Nsight Compute" in error.what  # noqa: PT017 - a machine may have none
        return
    (case,) = profile.cases
    if case.counters:
        assert [launch.kernel for launch in case.counters] == ["scale_kernel"]
    else:
        assert "no counters of Scale[1000000,float16,flopwatch]" in " ".join(profile.notes)
