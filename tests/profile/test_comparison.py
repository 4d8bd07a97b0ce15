from __future__ import annotations

from typing import TYPE_CHECKING

from flopwatch.profile.comparison import Taken, compare_frames
from flopwatch.profile.hatchet import Frame, read_hatchet

if TYPE_CHECKING:
    from pathlib import Path


def kernel(name: str, time_ns: float, count: int = 4) -> Frame:
    return Frame(name=name, time_ns=time_ns, count=count)


def scope(*children: Frame, name: str = "Matmul[8]") -> Frame:
    return Frame(name=name, flops=4e6, bytes_moved=8e6, children=children)


def test_scopes_of_a_file_of_the_installed_proton_are_compared_by_the_call(recorded: Path) -> None:
    ours, torchs = read_hatchet(recorded / "profile.hatchet").children
    whole, *kernels = compare_frames([ours], [torchs], calls=(6, 6))
    for side, launches in ((whole.base, 1.0), (whole.head, 2.0)):
        assert side is not None
        assert (round(side.seconds, 9), side.launches, side.flops, side.bytes_moved) == (0.0015, launches, 1e12, 4e8)
    assert [(pair.path, pair.base is not None, pair.head is not None) for pair in kernels] == [
        (("matmul_kernel",), True, False),
        (("nvjet_hsh_256x128",), False, True),
        (("splitKreduce",), False, True),
    ]


def test_each_side_is_divided_by_its_own_calls() -> None:
    whole, pair = compare_frames([scope(kernel("k", 4000))], [scope(kernel("k", 4000, 2))], calls=(4, 2))
    assert pair.base is not None
    assert pair.head is not None
    assert (pair.base.seconds, pair.head.seconds) == (1e-6, 2e-6)
    assert (pair.base.launches, pair.head.launches) == (1.0, 1.0)
    assert whole.base is not None
    assert whole.base.flops == 1e6


def test_recordings_of_one_side_are_one() -> None:
    runs = [scope(kernel("k", 4000)), scope(kernel("k", 8000), kernel("late", 400))]
    _, pair, late = compare_frames(runs, runs[:1], calls=(8, 4))
    assert (pair.base, pair.head) == (Taken(seconds=1.5e-6, launches=1.0), Taken(seconds=1e-6, launches=1.0))
    assert (late.path, late.base, late.head) == (("late",), Taken(seconds=5e-8, launches=0.5), None)


def test_a_scope_stands_before_what_is_in_it_and_keeps_it_apart() -> None:
    before = scope(scope(kernel("k", 4000), name="forward"), scope(kernel("k", 8000), name="backward"))
    after = scope(scope(kernel("k", 4000), kernel("cast", 400), name="forward"))
    found = list(compare_frames([before], [after], calls=(4, 4)))
    assert [("/".join(pair.path), pair.is_kernel, pair.head is None) for pair in found] == [
        ("", False, False),
        ("forward", False, False),
        ("forward/k", True, False),
        ("forward/cast", True, False),
        ("backward", False, True),
        ("backward/k", True, True),
    ]


def test_a_side_that_was_not_recorded_has_nothing() -> None:
    assert list(compare_frames([], [], calls=(0, 0))) == []
    assert all(pair.base is None for pair in compare_frames([], [scope(kernel("k", 4000))], calls=(0, 4)))
