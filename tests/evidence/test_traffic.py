from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from evidence import traffic

from flopwatch.errors import MachineError
from flopwatch.profile.counters import known_counters
from flopwatch.static.traffic import Traffic
from flopwatch.suite import discover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODEL = Traffic(
    kernel="add",
    device="h200",
    config="",
    variant="",
    grid=(2,),
    programs=2,
    dot_flops={},
    load_bytes=8192,
    store_bytes=4096,
    unique_load_bytes=8192,
    unique_store_bytes=4096,
)

#: Stands for Nsight Compute: tells its counters, runs nothing, and writes the log that it is asked for.
PROFILER = """\
#!{python}
import sys
if "--version" in sys.argv:
    print("Version 2025.3.1.0")
elif "--query-metrics" in sys.argv:
    print("dram__bytes_read  # of bytes\\nlts__t_sectors_srcunit_tex_op_read  # of sectors")
else:
    with open(sys.argv[sys.argv.index("--log-file") + 1], "w") as log:
        log.write({log!r})
"""


@pytest.fixture
def profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def installed(log: str) -> None:
        program = tmp_path / "ncu"
        program.write_text(PROFILER.format(python=sys.executable, log=log))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return installed


def test_without_a_profiler_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("flopwatch.profile.counters.USUAL_PLACES", (str(tmp_path / "nowhere"),))
    with pytest.raises(SystemExit, match="there is no Nsight Compute"):
        traffic.main([str(tmp_path / "out.json")])


def test_counters_that_the_gpu_lacks_are_named() -> None:
    there, missing = known_counters("dram__bytes_read  # of bytes\n\ngpu__time_duration  time")
    assert ("dram__bytes_read.sum", "gpu__time_duration.sum") == there
    assert "dram__bytes_write.sum" in missing
    assert "sm__ops_path_tensor_*.sum" in missing


def test_the_counters_stand_beside_the_model(profiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    names = '"ID","Kernel Name","dram__bytes_read.sum","lts__t_sectors_srcunit_tex_op_read.sum"'
    profiler(f'==PROF== connected\n{names}\n"","","byte","sector"\n"0","add","16,384","256"\n')
    monkeypatch.setattr(traffic, "CASES", (("VectorAdd", "4096", "float16"),))
    monkeypatch.setattr(traffic, "model_case", lambda *_: [MODEL])
    comparison = traffic.compare("", "h200")
    (launch,) = comparison.launches
    assert ("VectorAdd(4096, float16)", MODEL) == (launch.case, launch.model)
    assert {"dram read": 2.0, "l2 read": 1.0} == launch.ratios
    assert "Version 2025.3.1.0" == comparison.profiler


def test_a_profiler_that_reads_nothing_is_the_machines_fault(
    profiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler("==ERROR== ERR_NVGPUCTRPERM\n")
    monkeypatch.setattr(traffic, "model_case", lambda *_: [MODEL])
    with pytest.raises(MachineError, match="ERR_NVGPUCTRPERM"):
        traffic.compare("65536", "h200")


def test_another_number_of_launches_is_a_failure_and_not_a_comparison(
    profiler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler('"ID","Kernel Name","dram__bytes_read.sum"\n"","","byte"\n"0","add","1"\n')
    monkeypatch.setattr(traffic, "model_case", lambda *_: [MODEL, MODEL])
    comparison = traffic.compare("65536", "h200")
    assert {"VectorAddSizes(65536, bfloat16)": "2 launches are modelled and 1 were measured"} == comparison.failures
    assert () == comparison.launches


@pytest.mark.gpu
def test_the_first_configuration_runs_on_a_gpu() -> None:
    traffic.run_case("Matmul", "1024x1024x1024", "float16")


def test_every_case_is_one_of_the_suites() -> None:
    suites = discover(traffic.ROOT / "benchmarks").suites
    for suite, *values in traffic.CASES:
        assert all(value in known for value, known in zip(values, suites[suite].params, strict=False))


def test_the_page_has_the_table_of_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    traffic.main([str(traffic.ROOT / "evidence" / "static" / "traffic-h200.json"), "--table"])
    table = capsys.readouterr().out
    assert table.count("\n") == 2 + len(traffic.CASES)
    assert table in (traffic.ROOT / "docs" / "traffic.md").read_text(encoding="utf-8")
