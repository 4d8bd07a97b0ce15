from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from flopwatch.compare import ComparedCase, Comparison, Contender, Kind
from flopwatch.errors import UndecidedError, UsageError
from flopwatch.gate import CaseVerdict, GateResult
from flopwatch.history import History, Series
from flopwatch.history import Point as Recorded
from flopwatch.measure.machine import Machine
from flopwatch.model import Case, to_json
from flopwatch.profile import Profile, ProfiledCase
from flopwatch.profile.hatchet import Frame
from flopwatch.profile.roofline import Point, RooflineOptions, gather, least_seconds, recorded_seconds
from flopwatch.survey.result import LaunchWork
from flopwatch.verdict import Side

if TYPE_CHECKING:
    from tests.conftest import ToyRepository

    from flopwatch.profile.roofline import RooflinePoints

OURS = Case(suite="Scale", values=("1000000", "float16", "flopwatch"))
TORCHS = Case(suite="Scale", values=("1000000", "float16", "torch"))
POINT = Point(case=OURS, flops=1e6, bytes_moved=4e6, seconds=2e-6, measured=True)
GATE = GateResult(
    base="a1b2c3d",
    head="working tree",
    gpu="NVIDIA H200",
    device="h200",
    versions={},
    facts=(),
    base_facts=(),
    fact_changes=(),
    verdicts=(
        CaseVerdict(
            case=OURS, base=Side(seconds=3e-6), head=Side(seconds=2e-6), flops=1e6, bytes_moved=4e6, method="graph"
        ),
        CaseVerdict(case=Case(suite="Untimed", values=("8", "flopwatch")), flops=1e6, bytes_moved=4e6),
        CaseVerdict(case=Case(suite="Idle", values=("8", "flopwatch")), head=Side(seconds=1e-6)),
    ),
)
COMPARISON = Comparison(
    kind=Kind.PROVIDERS,
    base="torch",
    head="flopwatch",
    gpu="NVIDIA H200",
    machine=Machine(gpu=None, versions={}, cpu_model="", cpu_count=1),
    base_versions={},
    head_versions={},
    cases=(
        ComparedCase(
            base=Contender(case=TORCHS, seconds=4e-6),
            head=Contender(case=OURS, seconds=2e-6),
            flops=1e6,
            bytes_moved=4e6,
            ceiling_eps=1.0,
        ),
    ),
)
PROFILE = Profile(
    gpu="NVIDIA H200",
    versions={},
    cases=(
        ProfiledCase(case=OURS, flops=1e6, bytes_moved=4e6, kernel_seconds=1.8e-6, call_seconds=2e-6),
        ProfiledCase(case=TORCHS, flops=1e6, bytes_moved=4e6),
    ),
    tree=Frame(name="ROOT"),
)


def of_file(record: object, folder: Path, options: RooflineOptions | None = None) -> RooflinePoints:
    path = folder / "result.json"
    path.write_bytes(to_json(record))
    return gather(replace(options or RooflineOptions(), source=path), folder)


@pytest.mark.parametrize("record", [GATE, PROFILE], ids=lambda record: type(record).__name__)
def test_a_result_has_the_points_that_have_a_place(record: object, tmp_path: Path) -> None:
    found = of_file(record, tmp_path)
    assert (found.points, found.device, found.source) == ((POINT,), "h200", str(tmp_path / "result.json"))


def test_what_only_base_ran_has_base_s_time(tmp_path: Path) -> None:
    alone = replace(GATE.verdicts[0], head=Side())
    assert of_file(replace(GATE, verdicts=(alone,)), tmp_path).points == (replace(POINT, seconds=3e-6),)


def test_a_profile_without_a_cold_call_has_the_time_of_its_kernels(tmp_path: Path) -> None:
    warm = replace(PROFILE.cases[0], call_seconds=None)
    assert of_file(replace(PROFILE, cases=(warm,)), tmp_path).points == (replace(POINT, seconds=1.8e-6),)


@pytest.mark.parametrize(
    ("flops", "bytes_moved", "has_place"),
    [(1.0, 1.0, True), (0.5, 4e6, False), (1e6, 0.5, False), (None, 4e6, False), (1e6, None, False)],
)
def test_a_place_takes_an_operation_and_a_byte(
    flops: float | None, bytes_moved: float | None, *, has_place: bool, tmp_path: Path
) -> None:
    small = replace(GATE.verdicts[0], flops=flops, bytes_moved=bytes_moved)
    other = replace(GATE.verdicts[0], case=TORCHS)
    found = of_file(replace(GATE, verdicts=(small, other)), tmp_path)
    assert [point.case for point in found.points] == [OURS, TORCHS][not has_place :]


def test_a_comparison_has_both_of_its_contenders(tmp_path: Path) -> None:
    found = of_file(COMPARISON, tmp_path)
    assert found.points == (replace(POINT, case=TORCHS, seconds=4e-6), POINT)
    one = of_file(COMPARISON, tmp_path, RooflineOptions(providers=("torch",)))
    assert [point.case for point in one.points] == [TORCHS]


@pytest.mark.parametrize(
    ("record", "options", "what", "why"),
    [
        (GATE, RooflineOptions(select="Softmax"), "has a place", "none has a time, FLOPs and bytes"),
        (GATE, RooflineOptions(select="Idle"), "has a place", "Idle[8,flopwatch] has no time, FLOPs or bytes"),
        (replace(GATE, gpu=None), RooflineOptions(), "are not known", "it was made without a GPU"),
        (replace(GATE, gpu="x"), RooflineOptions(), "are not known", "it was measured on 'x'"),
    ],
)
def test_what_has_no_points_is_said_with_its_cause(
    record: object, options: RooflineOptions, what: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(UndecidedError, match=what) as caught:
        of_file(record, tmp_path, options)
    assert caught.value.why == why


def test_what_cannot_have_points_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was measured on h200"):
        of_file(GATE, tmp_path, RooflineOptions(device="b200"))
    with pytest.raises(UsageError, match="no result that has times"):
        of_file(OURS, tmp_path)


@pytest.mark.parametrize("record", [GATE, COMPARISON], ids=lambda record: type(record).__name__)
def test_what_an_unfit_machine_measured_is_not_drawn(record: GateResult | Comparison, tmp_path: Path) -> None:
    with pytest.raises(UndecidedError, match="are worth nothing") as caught:
        of_file(replace(record, unfit="it is used by another process"), tmp_path)
    assert caught.value.why == "it is used by another process"


def test_cases_of_a_file_that_have_no_place_are_named(tmp_path: Path) -> None:
    assert of_file(GATE, tmp_path).left_out == (
        "Untimed[8,flopwatch] has no time, FLOPs or bytes",
        "Idle[8,flopwatch] has no time, FLOPs or bytes",
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json cannot be read") as caught:
        gather(RooflineOptions(source=tmp_path / "none.json"), tmp_path)
    assert caught.value.why == "No such file or directory"


def series(case: str, gpu: str, *points: tuple[str, float | None]) -> Series:
    return Series(
        case=case,
        labels={"gpu": gpu},
        points=tuple(Recorded(commit=str(place), date=date, value=value) for place, (date, value) in enumerate(points)),
    )


def test_the_last_time_on_that_gpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (
        series("A[1]", "NVIDIA H200", ("2026-01-01", 3.0), ("2026-01-02", 2.0), ("2026-01-03", None)),
        series("A[1]", "NVIDIA H200", ("2026-01-01", 9.0)),
        series("A[1]", "NVIDIA B200", ("2026-02-01", 1.0)),
        series("B[1]", "NVIDIA H200", ("2026-01-01", None)),
    )
    monkeypatch.setattr(
        "flopwatch.profile.roofline.read_history", lambda *_: History(metric="time", unit="seconds", series=found)
    )
    assert recorded_seconds(Path(), "NVIDIA H200") == {"A[1]": 2.0}


def test_without_results_nothing_was_measured(tmp_path: Path) -> None:
    assert recorded_seconds(tmp_path, "NVIDIA H200") == {}


def launch(seconds: float | None) -> LaunchWork:
    return LaunchWork(
        case=OURS, kernel="k", device="h200", variant="", config="", grid=(1, 1, 1), least_seconds=seconds
    )


@pytest.mark.parametrize(("launches", "expected"), [((1.0, 2.0), 3.0), ((1.0, None), None), ((), None)])
def test_launches_take_their_times_one_after_the_other(
    launches: tuple[float | None, ...], expected: float | None
) -> None:
    assert least_seconds([launch(seconds) for seconds in launches]) == expected


@pytest.mark.parametrize(
    ("known", "expected"), [((launch(None),), 8e6 / 4.8e12), ((launch(1.0), launch(None)), 8e6 / 4.8e12), ((), None)]
)
def test_a_launch_that_does_not_tell_has_the_declared_work(
    toy: ToyRepository, monkeypatch: pytest.MonkeyPatch, known: tuple[LaunchWork, ...], expected: float | None
) -> None:
    case = replace(OURS, values=("1000000", "float32", "flopwatch"))
    survey = SimpleNamespace(launches=[replace(one, case=case) for one in known], gaps=())
    monkeypatch.setattr("flopwatch.profile.roofline.run_survey", lambda *_, **__: survey)
    options = RooflineOptions(select="1000000,float32", providers=("flopwatch",), device="h200")
    if expected is None:
        with pytest.raises(UndecidedError) as caught:
            gather(options, toy.root)
        assert caught.value.why == f"{case.id} cannot be estimated: it launches no kernel of Triton's"
    else:
        (point,) = gather(options, toy.root).points
        assert not point.measured
        assert point.seconds == pytest.approx(expected)


def test_a_case_without_a_time_is_estimated_and_a_peer_is_not(
    toy: ToyRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "flopwatch.profile.roofline.recorded_seconds",
        lambda _root, gpu: {OURS.id: 2e-6} if gpu.endswith("H200") else {},
    )
    found = gather(RooflineOptions(select="1000000", device="h200"), toy.root)
    measured, estimated = found.points
    assert measured == POINT
    # 8 MB of float32 at 4.8 TB/s.
    assert (estimated.case.values, estimated.measured) == (("1000000", "float32", "flopwatch"), False)
    assert estimated.seconds == pytest.approx(8e6 / 4.8e12)
    assert found.source == "asv's results"
    assert sorted(line.partition(" ")[0] for line in found.left_out) == [
        "Scale[1000000,float16,torch]",
        "Scale[1000000,float32,torch]",
    ]
