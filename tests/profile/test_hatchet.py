from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from flopwatch.errors import UsageError
from flopwatch.profile.hatchet import MAX_DEPTH, Frame, parse_hatchet, read_hatchet

if TYPE_CHECKING:
    from pathlib import Path

OURS, TORCHS = "Matmul[8192x8192x8192,float16,flopwatch]", "Matmul[8192x8192x8192,float16,torch]"
#: As Triton's TreeData.cpp writes what CUPTI measured: root of zeros, identities as strings, and the device.
OF_A_GPU = """
[
    {
        "children": [
            {
                "children": [
                    {
                        "children": [],
                        "frame": {"name": "add_kernel", "type": "function"},
                        "metrics": {"count": 4, "device_id": "0", "device_type": "CUDA", "time (ns)": 8000}
                    }
                ],
                "frame": {"name": "VectorAdd[8,float32,flopwatch]", "type": "function"},
                "metrics": {"bytes": 38400000.0, "flops32": 3200000.0}
            },
            {
                "children": [
                    {
                        "children": [],
                        "frame": {"name": "elementwise_kernel", "type": "function"},
                        "metrics": {"count": 1, "device_id": "0", "device_type": "CUDA", "time (ns)": 1000}
                    }
                ],
                "frame": {"name": "__proton_launch_metadata", "type": "function"},
                "metrics": {}
            },
            {"children": [], "frame": {"name": "empty", "type": "function"}, "metrics": {}}
        ],
        "frame": {"name": "ROOT", "type": "function"},
        "metrics": {"count": 0, "time (ns)": 0}
    },
    {"CUDA": {"0": {"arch": "90", "bus_width": 6144, "clock_rate": 1980000, "memory_clock_rate": 3201000,
        "num_sms": 132}}}
]
"""
#: What proton-viewer makes of a file, by frame.
VIEWER = """\
import json, sys, warnings
warnings.simplefilter("ignore")
from triton.profiler import viewer
frames, names = viewer.parse(["time/ns", "flop16/s", "byte/s", "count"], sys.argv[1])
table = frames.dataframe
print(json.dumps({row["name"]: [row[name] for name in names] for _, row in table.iterrows()}))
"""


def test_a_file_of_the_installed_proton_has_scopes_with_their_work_and_kernels_with_their_times(recorded: Path) -> None:
    root = read_hatchet(recorded / "profile.hatchet")
    ours, torchs = root.children
    assert (OURS, TORCHS) == (ours.name, torchs.name)
    assert (6e12, 2.4e9) == (ours.flops, ours.bytes_moved)
    assert [Frame(name="matmul_kernel", time_ns=9e6, count=6)] == list(ours.children)
    assert [("nvjet_hsh_256x128", 6), ("splitKreduce", 6)] == [(frame.name, frame.count) for frame in torchs.children]
    assert (0.018, 18) == (root.seconds, root.launches)


def test_a_file_of_a_gpu_is_read_without_what_proton_does_itself() -> None:
    root = parse_hatchet(OF_A_GPU, None)  # type: ignore[arg-type] # no error names it
    (scope,) = root.children
    assert (8e-6, 4, 3.2e6, 3.84e7) == (scope.seconds, scope.launches, scope.flops, scope.bytes_moved)
    assert [(depth, frame.name) for depth, frame in root.walk()] == [
        (0, "ROOT"),
        (1, "VectorAdd[8,float32,flopwatch]"),
        (2, "add_kernel"),
    ]


@pytest.mark.skipif(importlib.util.find_spec("hatchet") is None, reason="needs flopwatch[profile]")
def test_the_sums_are_those_of_proton_viewer(recorded: Path, tmp_path: Path) -> None:
    database = json.loads((recorded / "profile.hatchet").read_text(encoding="utf-8"))
    database[0]["metrics"] = {"time (ns)": 0, "count": 0}  # Proton adds these where it saw a kernel
    path = tmp_path / "profile.hatchet"
    path.write_text(json.dumps(database), encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", VIEWER, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    viewed = json.loads(done.stdout)
    for _, frame in read_hatchet(path).walk():
        time_ns, flops, moved, count = viewed[frame.name]
        assert (frame.seconds * 1e9, frame.launches) == pytest.approx((time_ns, count))
        if frame.flops:
            assert (frame.flops / frame.seconds, frame.bytes_moved / frame.seconds) == pytest.approx((flops, moved))


def nested(depth: int) -> str:
    node = '{"children": [], "frame": {"name": "x", "type": "function"}, "metrics": {"count": 1}}'
    for _ in range(depth):
        node = f'{{"children": [{node}], "frame": {{"name": "x", "type": "function"}}, "metrics": {{}}}}'
    return f"[{node}, {{}}]"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{}", "no list of frames"),
        ("[]", "no list of frames"),
        ("[1]", "lacks its name"),
        ('[{"frame": {"name": 7}, "metrics": {}, "children": []}]', "another type"),
        ('[{"frame": {"name": "x"}, "metrics": [], "children": []}]', "another type"),
        ('[{"frame": {"name": "x"}, "metrics": {}, "children": {}}]', "another type"),
        (nested(MAX_DEPTH + 1), "deep"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_tree_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.hatchet"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"a\.hatchet is no tree") as refused:
        read_hatchet(path)
    assert why in refused.value.why


def test_frames_are_kept_for_what_is_below_them() -> None:
    assert parse_hatchet(nested(MAX_DEPTH), None).launches == 1  # type: ignore[arg-type] # no error names it


@pytest.mark.parametrize("name", ["ROOT", "__proton_launch_metadata"])
def test_a_tree_of_nothing_is_its_root_alone(name: str) -> None:
    text = f'[{{"frame": {{"name": "{name}"}}, "metrics": {{}}, "children": []}}]'
    assert Frame(name="ROOT") == parse_hatchet(text, None)  # type: ignore[arg-type] # no error names it


def test_metrics_that_are_no_numbers_count_nothing() -> None:
    text = '[{"frame": {"name": "ROOT"}, "metrics": {"time (ns)": "9", "count": -3, "bytes": NaN}, "children": []}]'
    assert Frame(name="ROOT") == parse_hatchet(text, None)  # type: ignore[arg-type] # no error names it


@pytest.mark.parametrize("number", [f"1{'0' * 400}", "1e400", "1e300"])
def test_a_number_that_no_time_is_counts_nothing(number: str) -> None:
    kernel = f'{{"frame": {{"name": "k"}}, "metrics": {{"count": {number}, "time (ns)": 2}}, "children": []}}'
    text = f'[{{"frame": {{"name": "ROOT"}}, "metrics": {{"bytes": {number}}}, "children": [{kernel}]}}]'
    root = parse_hatchet(text, None)  # type: ignore[arg-type] # no error names it
    assert (root.bytes_moved, root.launches, root.seconds) == (0.0, 0, 2e-9)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"b\.hatchet"):
        read_hatchet(tmp_path / "b.hatchet")
