from __future__ import annotations

import re

import pytest
from evidence.peer_plots import LINES, NAMES, measured_plots, roof_tflops, throughput
from evidence.peer_shapes import peers_at
from tests.evidence.test_peer_document import everything, kept
from tests.evidence.test_peer_records import beside

from flopwatch.static.devices import find_device


def test_what_was_not_measured_is_not_drawn() -> None:
    assert measured_plots(kept()) == {}
    failed = beside(("PeerMatmul", "256x256x256", "float16"), "torch", None, reason="torch fails")
    assert measured_plots(kept(failed)) == {}


def test_a_plot_has_a_line_for_each_and_the_roof() -> None:
    plots = measured_plots(everything(0.1))
    drawn = plots["performance-attention-64-causal.svg"]

    # each of ours is one call of 10 us and 1e9 operations: 100 TFLOPS
    assert drawn.count("<polyline") == 1 + 1 + len(peers_at("PeerAttention", "2x32x8192x64"))
    assert drawn.count("flopwatch at ") == 6
    assert drawn.count("flex_attention, compiled at ") == 2
    assert "<title>flopwatch at 4096: 100 TFLOPS</title>" in drawn
    assert f"<title>{NAMES['cudnn']} at 4096: 90.48 TFLOPS</title>" in drawn
    assert sum(name in drawn for name in ("float16.svg", "nan", "inf")) == 0


def test_everybody_has_a_name_and_a_colour() -> None:
    peers = {*peers_at("PeerMatmul", "1x1x1"), *peers_at("PeerAttention", "1x1x8192x64"), "flopwatch"}
    assert LINES.keys() == NAMES.keys() == peers
    assert len(set(LINES.values())) == len(peers)


def test_the_roof_is_memory_below_and_arithmetic_above_its_ridge() -> None:
    device = find_device("h200")
    ridge = device.peaks.float16 * 1e12 / (device.memory_gbps * 1e9)

    assert roof_tflops(device, 1e9, 1e9 / (2 * ridge), ()) == pytest.approx(device.peaks.float16)
    assert roof_tflops(device, 1e9, 1e9 / (ridge / 2), ()) == pytest.approx(device.peaks.float16 / 2)
    assert roof_tflops(device, 1e12, 1.0, ("float8_e4m3fn",)) == pytest.approx(2 * device.peaks.float16, rel=1e-3)


def test_a_line_rises_where_its_rates_do() -> None:
    drawn = throughput("title", "size", {"flopwatch": {256: 100.0, 1024: 800.0}}, {256: 400.0, 1024: 989.4})
    paths = [
        [tuple(map(float, point.split(","))) for point in path.split()]
        for path in re.findall(r'<polyline points="([^"]+)"', drawn)
    ]

    roof, own = paths
    assert own[0][0] == roof[0][0] < own[1][0] == roof[1][0]
    assert own[0][1] > roof[0][1] > own[1][1] > roof[1][1]
