from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from evidence.peer_records import Beside, Peers, Sitting, factor, kept, read, unusable

from flopwatch.compare.result import ComparedCase, Contender, Speed
from flopwatch.errors import UsageError
from flopwatch.measure.machine import Gpu, Machine
from flopwatch.model import Case, Failure, Numbers, to_json

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = Numbers(dtype="float16", max_diff=0.1, max_diff_eps=0.5, finite=True, bitwise="0")
SITTING = Sitting(
    machine=Machine(
        gpu=Gpu(name="NVIDIA H200", uuid="GPU-0", driver="580.1", power_limit_w=700.0),
        versions={"torch": "2.11.0", "triton": "3.6.0"},
        cpu_model="a processor",
        cpu_count=16,
    ),
    date="2026-11-23",
    commit="c" * 40,
    kernels="0123456789abcdef",
    command="python -m evidence.peers measure peers.json",
)


def beside(point: tuple[str, ...], peer: str, speed: float | None, *, reason: str = "", flops: float = 1e9) -> Beside:
    """A comparison: we take 10 us, the peer so much longer as we are faster."""
    suite, *values = point
    own, theirs = (
        Contender(case=Case(suite=suite, values=(*values, name)), numbers=NUMBERS, launch_seconds=cost)
        for name, cost in (("flopwatch", 11e-6), (peer, 10.7e-6))
    )
    if speed is None:
        case = ComparedCase(base=theirs, head=own, flops=flops, bytes_moved=1e6, ceiling_eps=4.0, reason=reason)
        return Beside(case=case, log_ratios=(), sitting=0, seconds=6.0)
    case = ComparedCase(
        base=replace(theirs, seconds=10e-6 * 2.718281828459045**speed),
        head=replace(own, seconds=10e-6),
        flops=flops,
        bytes_moved=1e6,
        ceiling_eps=4.0,
        speed=Speed(estimate=speed, lower=None, upper=None, pairs=3),
        method="graph",
    )
    return Beside(case=case, log_ratios=(speed - 0.002, speed, speed + 0.002), sitting=0, seconds=6.0)


BESIDE = beside(("PeerMatmul", "256x256x256", "float16"), "torch", 0.1)


def test_an_error_is_of_the_processes_alone() -> None:
    found = replace(BESIDE, log_ratios=(0.098, 0.1, 0.102))

    assert found.variance == pytest.approx(0.002**2 / 3)
    assert found.error == pytest.approx(4.303 * 0.002 / 3**0.5)  # Student's t of two degrees, 2.5 % on either side
    assert factor(found) == "1.105 ± 0.005"
    assert replace(found, log_ratios=(0.1,)).error is None
    assert factor(replace(found, log_ratios=(0.1,))) == "1.105"


@pytest.mark.parametrize("text", ["{", '{"sittings": 3}', '{"schema_version": 9}'])
def test_another_file_is_no_measurement(tmp_path: Path, text: str) -> None:
    path = tmp_path / "peers.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(UsageError, match=r"peers\.json (is no|has version 9)"):
        read(path)


def test_what_several_runs_found_is_one_measurement() -> None:
    later = replace(SITTING, date="2026-11-24")
    found = Peers().added(SITTING, [BESIDE]).added(SITTING, [BESIDE]).added(later, [BESIDE])

    assert [each.sitting for each in found.beside] == [0, 0, 1]
    assert found.sittings == (SITTING, later)
    assert found.done == {"PeerMatmul[256x256x256,float16,torch]"}


def test_another_board_of_the_same_name_is_the_same_kind_of_machine() -> None:
    gpu = SITTING.machine.gpu
    assert gpu is not None
    other, weaker = (
        replace(SITTING, machine=replace(SITTING.machine, gpu=replace(gpu, **changed)))
        for changed in ({"uuid": "GPU-1", "temperature_c": 50}, {"power_limit_w": 500.0})
    )

    assert other.origin == SITTING.origin != weaker.origin
    assert replace(SITTING, kernels="x").origin != SITTING.origin


def test_only_right_and_finite_numbers_are_worth_timing() -> None:
    own = BESIDE.case.head
    failure = Failure(kind="TypeError", message="no\nmore")

    assert unusable(own, 4.0) == ""
    assert unusable(own, 0.4) == "is wrong: error 0.5 eps, ceiling 0.4"
    assert (
        unusable(replace(own, numbers=replace(NUMBERS, max_diff_eps=None)), 4.0) == "is wrong: error inf eps, ceiling 4"
    )
    assert unusable(replace(own, numbers=replace(NUMBERS, finite=False)), 4.0) == "returns NaN or infinity"
    assert unusable(replace(own, numbers=None), 4.0) == "was not run"
    assert unusable(replace(own, failure=failure), 4.0) == "fails (TypeError: no)"


def test_the_newest_measurement_of_each_point_counts(tmp_path: Path) -> None:
    assert kept(tmp_path) == read(None) == read(tmp_path / "peers-1.json") == Peers()
    other = beside(("Matmul", "2x2x2", "float16"), "torch", 0.3)
    for date, measured in (("2026-11-23", [BESIDE, other]), ("2026-11-24", [replace(BESIDE, seconds=7.0)])):
        found = Peers().added(replace(SITTING, date=date), measured)
        (tmp_path / f"peers-{date}.json").write_bytes(to_json(found))

    found = kept(tmp_path)

    dates = {each.point: found.sittings[each.sitting].date for each in found.beside}
    assert dates == {other.point: "2026-11-23", BESIDE.point: "2026-11-24"}
    assert {each.seconds for each in found.beside if each.point == BESIDE.point} == {7.0}
