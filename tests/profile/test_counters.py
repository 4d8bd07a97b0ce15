from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import MachineError
from flopwatch.profile.counters import Launch, ask_profiler, count, find_profiler, known_counters, read_launches

if TYPE_CHECKING:
    from pathlib import Path

RATE = "lts__t_sector_hit_rate.pct"
#: As ncu 2025.3 prints it: notes, names, units, launches.
LOG = """\
==PROF== Connected to process 7
"ID","Kernel Name","gpu__time_duration.sum","lts__t_sector_hit_rate.pct"
"","","nsecond","%"
"0","matmul_kernel","1,490,112","81.54"
"1","splitKreduce_kernel","5,216","n/a"
==PROF== Disconnected
"""


def profiler(folder: Path, text: str, code: int = 0) -> str:
    """Install a stand-in that notes its arguments, writes a log and ends."""
    program = folder / "ncu"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"open({str(folder / 'arguments')!r}, 'w').write('\\n'.join(sys.argv[1:]))\n"
        f"print(os.environ.get('SIDE', 'no side'))\n"
        f"if '--log-file' in sys.argv:\n    open(sys.argv[sys.argv.index('--log-file') + 1], 'w').write({text!r})\n"
        f"sys.exit({code})\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return str(program)


def test_each_launch_has_its_kernel_and_the_counters_that_are_numbers() -> None:
    assert [
        Launch(kernel="matmul_kernel", values={"gpu__time_duration.sum": 1490112.0, RATE: 81.54}),
        Launch(kernel="splitKreduce_kernel", values={"gpu__time_duration.sum": 5216.0}),
    ] == read_launches(LOG, ["gpu__time_duration.sum", RATE])


def test_counters_of_every_suffix_are_known_by_their_names() -> None:
    wanted = (RATE, "sm__throughput.avg.pct_of_peak_sustained_elapsed", "dram__bytes_read.sum")
    there, missing = known_counters("lts__t_sector_hit_rate  %\nsm__throughput  %\n", wanted)
    assert wanted[:2] == there
    assert ("dram__bytes_read.sum", "sm__ops_path_tensor_*.sum") == missing


def test_where_the_tensor_cores_have_counters_none_of_theirs_is_missing() -> None:
    tensor = "sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off"
    assert known_counters(f"\n{tensor}  # ops\n\n", (RATE,)) == ((f"{tensor}.sum",), (RATE,))


def test_a_launch_without_a_name_or_a_number_is_one() -> None:
    assert read_launches('"ID","x"\n"","byte"\n"0",""\n', ["x"]) == [Launch(kernel="", values={})]


def test_a_program_runs_with_its_options_and_its_environment(tmp_path: Path) -> None:
    program = profiler(tmp_path, LOG)
    launches = count(program, [RATE], ["python", "x.py"], options=("--profile-from-start", "off"), environment={})
    assert ["matmul_kernel", "splitKreduce_kernel"] == [launch.kernel for launch in launches]
    arguments = (tmp_path / "arguments").read_text(encoding="utf-8").splitlines()
    assert ["--profile-from-start", "off", "python", "x.py"] == arguments[-4:]
    assert RATE == arguments[arguments.index("--metrics") + 1]


def test_what_a_program_says_need_not_be_text(tmp_path: Path) -> None:
    noisy = tmp_path / "noisy"
    noisy.write_text("#!/bin/sh\nprintf '\\377 no'\nexit 1\n", encoding="utf-8")
    noisy.chmod(0o755)
    with pytest.raises(MachineError, match="cannot be read") as caught:
        count(str(noisy), [RATE], ["python"])
    assert caught.value.why == "\ufffd no"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "ncu ended with 3 and saw no kernel"),
        ("seq 7; exit 1", "3\n4\n5\n6\n7"),
        ("seq 3; exit 1", "1\n2\n3"),
    ],
)
def test_the_last_that_it_said_is_why(script: str, why: str, tmp_path: Path) -> None:
    program = tmp_path / "ncu"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(MachineError, match="cannot be read") as caught:
        count(str(program), [RATE], ["python"])
    assert caught.value.why == why


@pytest.mark.parametrize(("log", "code"), [("", 0), (LOG, 1)])
def test_nothing_seen_or_a_failure_is_the_machines_fault(log: str, code: int, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be read") as caught:
        count(profiler(tmp_path, log, code), [RATE], ["python"], environment={"SIDE": "ERR_NVGPUCTRPERM"})
    assert "ERR_NVGPUCTRPERM" in caught.value.why


def test_a_profiler_off_the_path_is_found_where_it_is_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = profiler(tmp_path, LOG)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("flopwatch.profile.counters.USUAL_PLACES", (str(tmp_path / "n*"),))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert program == find_profiler()
    assert "no side\n" == ask_profiler(program, "--version")


def test_the_profiler_of_cuda_home_comes_behind_that_of_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, home = tmp_path / "bin", tmp_path / "cuda"
    for folder in (path, home / "bin"):
        folder.mkdir(parents=True)
    in_home = profiler(home / "bin", LOG)
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert in_home == find_profiler()
    assert profiler(path, LOG) == find_profiler()
