from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from evidence import static_calibration
from evidence.planted import PLANTED
from evidence.static_calibration import Budget, compile_planted, measure_planted
from evidence.static_document import is_named
from evidence.static_records import Compilation, Measurement
from tests.compare.conftest import FakeSides, FakeWatch, Gpu

from flopwatch.errors import MachineError, UsageError
from flopwatch.gate.sides import Arm
from flopwatch.measure.protocol import DeclaredCase
from flopwatch.model import Case, from_json, to_json

if TYPE_CHECKING:
    from flopwatch.config import Config

ROOT = Path(__file__).parents[2]
IN_A_REPOSITORY = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository, not only its files")
NAMES = ("small-blocks", "atomic")
CASE = Case(suite="VectorAdd", values=("67108864", "float32", "flopwatch"))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Stand in for the GPU and its workers; head is a quarter slower."""
    declared = DeclaredCase(case=CASE, small=CASE, own=True, max_diff_eps=None, flops=1.0, bytes_moved=1.0)
    gpu = Gpu(declared=(declared,), noise=0.0, seconds={("VectorAdd", "base"): 1e-4, ("VectorAdd", "head"): 1.25e-4})

    class PlantedSides(FakeSides):
        def __init__(self, config: Config, *, device: str, base_tree: Path, head_tree: Path) -> None:
            super().__init__(gpu, config)
            edited = [(tree / "src/flopwatch/kernels/vector_add.py").read_text() for tree in (base_tree, head_tree)]
            assert device == "h200"
            assert edited[0] != edited[1]

        def start_nurseries(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(static_calibration, "Sides", PlantedSides)
    monkeypatch.setattr(static_calibration, "Watch", lambda _uuid: FakeWatch(processes=()))
    return gpu


def measure(out: Path, *names: str, budget: Budget | None = None, resume: bool = False) -> Measurement:
    measure_planted(out, names, command="measure", pairs=5, budget=budget or Budget(), resume=resume)
    return from_json(out.read_bytes(), Measurement)


@IN_A_REPOSITORY
def test_what_a_change_costs_is_measured_in_pairs(gpu: Gpu, tmp_path: Path) -> None:
    gpu.choices = {("VectorAdd", "base"): ["tall"], ("VectorAdd", "head"): ["wide"]}
    (slowdown,) = measure(tmp_path / "new" / "out.json", "small-blocks").slowdowns

    assert slowdown.log_ratios == pytest.approx((math.log(1.25),) * 5)
    assert (slowdown.base_seconds, slowdown.head_seconds) == pytest.approx((1e-4, 1.25e-4))
    assert (slowdown.base_choices, slowdown.head_choices) == (("tall",), ("wide",))
    assert slowdown.max_diff_eps == 0.25
    assert (slowdown.failure, slowdown.unfit) == ("", "")
    assert slowdown.is_slower


@IN_A_REPOSITORY
def test_a_change_that_does_not_run_is_a_result_and_the_next_one_is_measured(gpu: Gpu, tmp_path: Path) -> None:
    gpu.failing = {("VectorAdd", "head"): "shared memory"}
    found = measure(tmp_path / "out.json", *NAMES)

    assert [each.failure for each in found.slowdowns] == ["ArithmeticError: shared memory"] * 2
    assert [each.log_ratios for each in found.slowdowns] == [(), ()]


@IN_A_REPOSITORY
def test_a_run_that_has_no_time_left_is_resumed(gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    measure_planted(out, NAMES, command="first", pairs=5, budget=Budget(seconds=0.0))
    assert not out.exists()
    assert "no time for small-blocks" in capsys.readouterr().out
    measure(out, "atomic")
    gpu.seconds["VectorAdd", "head"] = 2e-4
    found = measure(out, *NAMES, resume=True)

    assert [round(each.bounds[1], 2) for each in found.slowdowns] == [1.0, 0.25]


@IN_A_REPOSITORY
def test_without_a_gpu_nothing_is_measured(gpu: Gpu, tmp_path: Path) -> None:
    gpu.uuid = dict.fromkeys(Arm)
    with pytest.raises(MachineError, match="there is no GPU"):
        measure(tmp_path / "out.json", "atomic")


@IN_A_REPOSITORY
def test_slowdowns_of_other_kernels_are_not_added_to(gpu: Gpu, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    measure(out, "atomic")
    text = out.read_text(encoding="utf-8")
    out.write_text(text.replace('"kernels": "', '"kernels": "0'), encoding="utf-8")

    with pytest.raises(UsageError, match="of other kernels or of another machine"):
        measure(out, "small-blocks")
    assert gpu.started


def test_a_step_is_begun_only_where_the_longest_so_far_would_end_in_time() -> None:
    assert Budget().has_time()
    assert Budget(seconds=10.0, longest=9.0).has_time()
    assert not Budget(seconds=10.0, longest=10.0).has_time()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_bytes(b'{"runs": []}')
    with pytest.raises(UsageError, match="has something else"):
        static_calibration._kept(out, Compilation)


@pytest.mark.parametrize("verb", ["compile", "measure"])
def test_names_that_are_not_planted_are_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        static_calibration.main([verb, "out.json", "--only", "comment,nothing"])
    assert "nothing that is called 'nothing' is planted" in capsys.readouterr().err


@IN_A_REPOSITORY
def test_a_planted_change_is_compiled_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 7 s on 2 cores: two workers that compile one small kernel each.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    out = tmp_path / "out.json"
    compile_planted(out, ["scattered"])
    found = from_json(out.read_bytes(), Compilation)

    assert is_named(found, PLANTED["scattered"])  # type: ignore[arg-type] # a regression
    assert {fact.kernel for fact in found.facts} == {"vector_add_kernel"}
    assert to_json(found.compact()) == to_json(found)
    with pytest.raises(UsageError, match="of other kernels or of another machine"):
        compile_planted(out, ["scattered"], device="a100")


@pytest.mark.gpu
@IN_A_REPOSITORY
def test_a_planted_slowdown_is_measured_on_a_gpu(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    measure_planted(out, ["small-blocks"], command="measure", pairs=2, budget=Budget())
    (slowdown,) = from_json(out.read_bytes(), Measurement).slowdowns

    assert (slowdown.failure, slowdown.unfit) == ("", "")
    assert slowdown.max_diff_eps is not None
    assert slowdown.max_diff_eps <= 0.5
    assert len(slowdown.log_ratios) == 2
    assert min(slowdown.log_ratios) > 0.01
