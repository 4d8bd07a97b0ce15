from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from evidence.peer_goals import ATTENTION_GROUPS, FP8, PRODUCTS
from evidence.peer_records import Peers
from evidence.peer_shapes import FP8_SCALES, FP8_SUMS, MATMUL, peers_at
from evidence.peers import ROOT, SUITES, points

from flopwatch.config import Config
from flopwatch.measure.numbers import check_numbers, difference
from flopwatch.measure.protocol import Mode
from flopwatch.measure.session import Session
from flopwatch.model import Case
from flopwatch.suite import Discovery, discover

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flopwatch.suite import Suite


@pytest.fixture(scope="module")
def peered() -> Iterator[Discovery]:
    before = list(sys.path)
    yield discover(ROOT / SUITES)
    sys.path[:] = before


@pytest.fixture
def suites(peered: Discovery) -> dict[str, type[Suite]]:
    assert peered.failures == {}
    return peered.suites


def test_the_suites_are_these_and_asv_does_not_look_at_them(suites: dict[str, type[Suite]]) -> None:
    recorded = json.loads((ROOT / "asv.conf.json").read_text(encoding="utf-8"))["benchmark_dir"]

    assert sorted(suites) == ["PeerAttention", "PeerMatmul", "PeerMatmulFp8"]
    assert ROOT / recorded not in (ROOT / SUITES).parents


def test_the_gate_does_not_discover_them(suites: dict[str, type[Suite]]) -> None:
    before = list(sys.path)
    bundled = discover(ROOT / "benchmarks").suites
    sys.path[:] = before
    assert not suites.keys() & bundled.keys()


def test_every_point_of_a_goal_is_declared_beside_each_of_its_peers(suites: dict[str, type[Suite]]) -> None:
    declared = {(case.suite, *case.values) for suite in suites.values() for case in suite.cases()}
    points = {point for group in (*PRODUCTS, *FP8, *ATTENTION_GROUPS) for point in group.points}

    assert declared == {(*point, name) for point in points for name in ("flopwatch", *peers_at(*point[:2]))}


@pytest.mark.usefixtures("peered")
def test_a_worker_declares_points_and_the_slow_ones_come_last() -> None:
    before = list(sys.path)
    hello = Session(Mode.INTERPRET, ROOT / SUITES, "h200").hello()
    sys.path[:] = before
    found = points(hello, Peers(), "*", Config(packages=("x",)))
    cases = [case for point in found for case in point]

    assert Counter(case.base.case.provider for case in cases) == {
        "cudnn": 48,
        "flash2": 48,
        "torch": 90,
        "flash4": 48,
        "flex": 16,
    }
    assert [len(point) for point in found] == [1] * 90 + [3] * 32 + [4] * 16
    assert {case.head.case.provider for case in cases} == {"flopwatch"}
    assert all(case.base.case.values[:-1] == case.head.case.values[:-1] for case in cases)
    assert sum(case.ceiling_eps == 4.0 for case in cases) == 2 * len(MATMUL)


def test_operations_and_bytes_are_the_usual_ones(suites: dict[str, type[Suite]]) -> None:
    matmul, fp8, attention = (suites[name]() for name in ("PeerMatmul", "PeerMatmulFp8", "PeerAttention"))

    assert matmul.flops("777x1234x5678", "float16") == 2.0 * 777 * 1234 * 5678
    assert fp8.flops("16x4096x4096", "float8_e4m3fn", "row", "fast") == 2.0 * 16 * 4096**2
    scales = 4.0 * (16 + 4096)
    assert (
        fp8.bytes_moved("16x4096x4096", "float8_e4m3fn", "row", "fast") == scales + 16 * 4096 + 4096**2 + 2 * 16 * 4096
    )
    assert attention.flops("4x16x4096x128", "full") == 4.0 * 4 * 16 * 4096**2 * 128
    assert attention.flops("4x16x4096x128", "causal") == 2.0 * 4 * 16 * 4096**2 * 128


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(("scale", "sums"), [*itertools.product(FP8_SCALES, FP8_SUMS)])
def test_our_product_takes_what_torchs_takes(suites: dict[str, type[Suite]], scale: str, sums: str) -> None:
    suite = suites["PeerMatmulFp8"]()
    case = Case(suite="PeerMatmulFp8", values=("33x64x48", "float8_e4m3fn", scale, sums, "flopwatch"))

    found = check_numbers(suite, case, seed=4)

    assert found.finite
    assert found.max_diff_eps is not None
    assert found.max_diff_eps <= 1.0


def test_attention_of_torch_runs_in_the_backend_that_is_named(
    suites: dict[str, type[Suite]], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []
    module = sys.modules[suites["PeerAttention"].__module__]
    original = torch.nn.functional.scaled_dot_product_attention

    def noted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool) -> torch.Tensor:
        entered.append(
            f"{torch.backends.cuda.cudnn_sdp_enabled():d}{torch.backends.cuda.flash_sdp_enabled():d}"
            f"{torch.backends.cuda.math_sdp_enabled():d} {is_causal}"
        )
        with module.sdpa_kernel([module.SDPBackend.MATH]):
            return original(q, k, v, is_causal=is_causal)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
    q = torch.randn(1, 2, 8, 32)
    for provider in ("cudnn", "flash2"):
        suites["PeerAttention"].providers[provider](q, q, q, "causal", None)
    suites["PeerAttention"].providers["cudnn"](q, q, q, "full", None)

    assert entered == ["100 True", "010 True", "100 False"]


def test_flash_attention_4_gets_its_own_layout_and_its_absence_has_a_name(
    suites: dict[str, type[Suite]], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = suites["PeerAttention"].providers["flash4"]
    q = torch.randn(1, 2, 8, 32)

    def attention(*given: torch.Tensor, causal: bool) -> tuple[torch.Tensor, None]:
        assert [tensor.shape for tensor in given] == [(1, 8, 2, 32)] * 3
        assert causal
        return given[2].clone(), None

    module = sys.modules[suites["PeerAttention"].__module__]
    module._flash4.cache_clear()
    monkeypatch.setitem(sys.modules, "flash_attn.cute", SimpleNamespace(flash_attn_func=attention))
    monkeypatch.setattr(importlib, "import_module", lambda name: sys.modules[name])
    assert torch.equal(call(q, q, q, "causal", None), q)
    module._flash4.cache_clear()
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(ModuleNotFoundError, match="flash_attn"):
        call(q, q, q, "full", None)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own compiler
@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("provider", ["cudnn", "flash2", "flex"])
def test_peers_agree_with_float64(suites: dict[str, type[Suite]], provider: str, mask: str) -> None:
    suite = suites["PeerAttention"]()
    inputs = suite.inputs("2x2x256x64", mask, seed=3)

    found = difference(suite.call(provider)(*inputs), suite.reference(*inputs))

    assert found.finite
    assert found.max_diff_eps is not None
    assert found.max_diff_eps <= (suite.max_diff_eps or 0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("provider", ["flopwatch", "torch"])
@pytest.mark.parametrize(("scale", "sums"), [*itertools.product(FP8_SCALES, FP8_SUMS)])
def test_scaled_products_agree_with_float64(
    suites: dict[str, type[Suite]], scale: str, sums: str, provider: str
) -> None:
    suite = suites["PeerMatmulFp8"]()
    inputs = suite.inputs("256x512x1024", "float8_e4m3fn", scale, sums, seed=3)

    found = difference(suite.call(provider)(*inputs), suite.reference(*inputs))

    assert found.finite
    assert found.max_diff_eps is not None
    assert found.max_diff_eps <= (suite.max_diff_eps or 0.0)
