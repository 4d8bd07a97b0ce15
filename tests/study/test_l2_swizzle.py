from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from evidence.l2_swizzle import study
from evidence.l2_swizzle_sources import tilelang_source
from tests.study.test_tile_orders import compiled

from flopwatch.measure.numbers import check_numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flopwatch.study import Study


@pytest.fixture(scope="module")
def swizzle() -> type[Study]:
    return study()


def test_the_lines_are_those_that_exist(swizzle: type[Study]) -> None:
    cases = list(swizzle.cases())
    assert Counter(case.provider for case in cases) == {"flopwatch": 42, "tilelang": 24, "torch": 6}
    assert {case.values[0] for case in cases} == {"12288", "14336", "16384", "17408", "18432", "20480"}
    assert {case.values[1] for case in cases if case.provider == "tilelang"} == {"none", "0", "10", "20"}


@pytest.mark.parametrize(
    ("size", "order"), [*(("256", order) for order in ("none", "4", "8", "10", "16", "20")), ("384", "32")]
)
def test_every_order_gives_the_same_product(swizzle: type[Study], size: str, order: str, cuda: str) -> None:
    assert cuda
    case = next(case for case in swizzle.cases() if case.values[1:] == (order, "flopwatch"))
    small = type(case)(suite=case.suite, values=(size, *case.values[1:]))
    numbers = check_numbers(swizzle(), small, seed=3)
    assert numbers.max_diff_eps is not None
    assert numbers.max_diff_eps <= (swizzle.max_diff_eps or 0.0)


def test_work_is_counted_by_hand(swizzle: type[Study]) -> None:
    assert swizzle().flops("16", "8") == 8192.0
    assert swizzle().bytes_moved("16", "8") == 3 * 512


def test_a_loop_that_makes_functions_calls_its_last_kernel_under_every_name() -> None:
    def benchmark(compile_kernel: Callable[[int], Callable[[], int]]) -> dict[str, Callable[[], int]]:
        mp = {}
        for i in range(-1, 3):
            tilelang_matmul = compile_kernel(i * 10)
            mp["tilelang_ps_" + str(i * 10)] = lambda: tilelang_matmul()  # noqa: B023, PLW0108 - as it was written
        return mp

    made = benchmark(lambda panel: lambda: panel)
    assert {name: call() for name, call in made.items()} == dict.fromkeys(made, 20)


def test_without_tilelang_its_lines_say_so_and_the_others_run(
    swizzle: type[Study], cuda: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tilelang", None)
    a = torch.ones(256, 256, device=cuda, dtype=torch.float16)
    with pytest.raises(ModuleNotFoundError, match="tilelang"):
        swizzle().call("tilelang")(a, a, "10")
    assert torch.equal(swizzle().call("torch")(a, a, "none"), swizzle().run(a, a, "10"))


def test_the_levels_of_a_group_are_saved(tmp_path: Path) -> None:
    saved = "save_sources(sys.modules[study().__module__], Path(argv[0]), DEVICE, groups=['none', '8'])"
    names = compiled(f"[path.name for path in {saved}]", str(tmp_path))
    assert isinstance(names, list)
    found = {name: (tmp_path / name).read_text(encoding="utf-8") for name in names if name.startswith("triton")}
    levels = ("llir", "ptx", "sass", "ttgir", "ttir")
    assert sorted(found) == [f"triton-{group}.{level}" for group in ("8", "none") for level in levels]
    assert found["triton-8.ttir"] != found["triton-none.ttir"]
    assert "HGMMA" in found["triton-8.sass"]


@pytest.fixture
def program(swizzle: type[Study]) -> Callable[[int, str], Any]:
    pytest.importorskip("tilelang", reason="a peer that need not be installed")
    found: Callable[[int, str], Any] = sys.modules[swizzle.__module__].tilelang_program
    return found


def test_tilelang_makes_the_panel_that_is_asked_for(program: Callable[[int, str], Any]) -> None:
    assert "rasterization2DRow<10>" in tilelang_source(program, 4096, "10")
    assert "rasterization2D" not in tilelang_source(program, 4096, "none")


def test_tilelang_refuses_a_panel_of_nothing(program: Callable[[int, str], Any]) -> None:
    with pytest.raises(Exception, match="panel_size > 0"):
        tilelang_source(program, 4096, "0")
