from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from flopwatch.asv.changes import CaseChange, Direction, History, collect_changes
from flopwatch.asv.derived import TFLOPS
from flopwatch.asv.graphs import ArrayGraphs
from flopwatch.model import Choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

H200: dict[str, str | None] = {"gpu": "NVIDIA H200", "triton": "3.6.0", "torch": "2.11.0", "branch": "main"}
FACTS = {"registers": "registers", "spills": "bytes", "shared_memory": "bytes", "idle_warp_slots": "percent"}
UNITS = {"time": "seconds", "ratio_to_anchor": "ratio", "max_diff": "abs", "tflops": "TFLOPS", **FACTS}
#: Ends of a history of sixty commits in which the forty-first changes something.
OLD, NEW = range(40), range(40, 60)


@dataclass
class Told:
    """A history that a test tells."""

    graphs: ArrayGraphs
    benchmarks: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: By triton, commit and whether it is of a compiled fact; of the only case.
    configs: dict[tuple[str, int, bool], str] = field(default_factory=dict)

    def benchmark(self, name: str, *, cases: Sequence[str] = ("'64'",), **more: object) -> str:
        full = f"scale.Scale.{name}"
        self.benchmarks[full] = {
            "name": full,
            "unit": UNITS[name.removeprefix("track_")],
            "params": [list(cases), ["'flopwatch'"]],
            "param_names": ["n", "provider"],
            **more,
        }
        return full

    def measured(self, name: str, revisions: Sequence[int], level: float, *, noise: float = 0.0, **params: str) -> None:
        graph = self.graphs.get_graph(self.benchmark(name), {**H200, **params})
        scatter = np.random.default_rng(len(name) + revisions[0]).lognormal(0, noise, len(revisions))
        for revision, factor in zip(revisions, scatter.tolist(), strict=True):
            graph.add_data_point(revision, [level * factor])

    def compiled(self, revisions: Sequence[int], **levels: float) -> None:
        for fact, level in {**dict.fromkeys(FACTS, 8.0), **levels}.items():
            self.measured(f"track_{fact}", revisions, level)

    def ran_in(self, revisions: Sequence[int], config: str, *, compiled: bool = False, triton: str = "3.6.0") -> None:
        self.configs |= {(triton, revision, compiled): config for revision in revisions}

    def _ran_in(self, params: Mapping[str, str | None], commit: str, case: str, metric: str) -> list[Choice]:
        assert case == "Scale[64,flopwatch]"
        config = self.configs.get((params["triton"] or "", int(commit), metric in FACTS))
        return [Choice(kernel="scale_kernel", config=config)] if config else []

    def changes(self, *, ignored: Sequence[str] = ()) -> list[CaseChange]:
        self.graphs.detect_steps()
        hashes = {revision: f"{revision:040d}" for revision in range(100)}
        return collect_changes(
            History(benchmarks=self.benchmarks, graphs=self.graphs, hashes=hashes, ignored=ignored, ran_in=self._ran_in)
        )

    def the_change(self, metric: str = "time", **options: Any) -> CaseChange:  # noqa: ANN401 - passed on
        (change,) = (change for change in self.changes(**options) if change.metric == metric)
        return change


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(ArrayGraphs(tmp_path / "changes.json"))


@pytest.fixture
def slower(told: Told) -> Told:
    """A case whose calls take 1 ms, and 1.3 ms from the forty-first commit on."""
    told.measured("track_time", OLD, 1e-3, noise=0.005)
    told.measured("track_time", NEW, 1.3e-3, noise=0.005)
    return told


def test_a_planted_slowdown_is_told_with_its_commit_and_its_size(slower: Told) -> None:
    change = slower.the_change()

    assert (change.case, change.direction, change.first, change.last) == (
        "Scale[64,flopwatch]",
        Direction.WORSE,
        f"{40:040d}",
        f"{39:040d}",
    )
    assert change.commits == 1
    assert change.effect == pytest.approx(30, abs=1)
    assert change.lower is not None
    assert change.upper is not None
    assert change.lower < 30 < change.upper
    assert change.p is not None
    assert change.p < 1e-6


def test_commits_that_nobody_measured_are_suspects_too(told: Told) -> None:
    told.measured("track_time", OLD, 1e-3)
    told.measured("track_time", range(45, 65), 1.3e-3)

    change = told.the_change()

    assert (change.last, change.first, change.commits) == (f"{39:040d}", f"{45:040d}", 6)


def test_a_speedup_is_better(told: Told) -> None:
    told.measured("track_time", OLD, 1.3e-3)
    told.measured("track_time", NEW, 1e-3)

    assert told.the_change().direction is Direction.BETTER


def test_what_is_not_watched_is_neither_worse_nor_better(told: Told) -> None:
    told.measured("track_registers", OLD, 64)
    told.measured("track_registers", NEW, 96)

    assert told.the_change("registers", ignored=[r".*\.track_registers\b.*"]).direction is Direction.OTHER
    assert told.the_change("registers").direction is Direction.WORSE


def test_a_rise_from_zero_is_worse(told: Told) -> None:
    told.measured("track_spills", OLD, 0)
    told.measured("track_spills", NEW, 48)

    change = told.the_change("spills")

    assert (change.direction, change.effect) == (Direction.WORSE, None)
    assert [(level.name, level.before, level.after) for level in change.levels] == [("spills", "0 B", "48 B")]


def test_throughput_is_told_with_the_time(slower: Told) -> None:
    stored = slower.graphs.get_graph("scale.Scale.track_time", H200)
    slower.graphs.detect_steps()
    name = slower.benchmark("tflops", higher_is_better=True)
    derived = slower.graphs.get_graph(name, H200)
    revisions, values = stored.table()
    derived.take(revisions, TFLOPS.values(values, [1e12]), scalar=False)
    derived.take_steps([[step for fit in stored.all_steps[0] if (step := TFLOPS.step(fit, 1e12))]])

    (change,) = collect_changes(
        History(
            benchmarks=slower.benchmarks,
            graphs=slower.graphs,
            hashes={revision: str(revision) for revision in range(60)},
        )
    )

    time, tflops = change.levels
    assert (time.name, tflops.name) == ("time", "tflops")
    assert [float(text.removesuffix(" TFLOPS")) for text in (tflops.before, tflops.after)] == [
        pytest.approx(1000, rel=0.01),
        pytest.approx(769, rel=0.01),
    ]


def test_the_suspects_are_what_the_compiler_made_different(slower: Told) -> None:
    slower.compiled(OLD, registers=128, spills=0)
    slower.compiled(NEW, registers=168, spills=48)

    assert slower.the_change().suspects == ("registers 128 → 168", "spills 0 B → 48 B")


def test_where_nothing_compiled_changed_that_is_said(slower: Told) -> None:
    slower.compiled(range(60))

    (suspect,) = slower.the_change().suspects

    assert suspect.startswith("nothing that was compiled changed")


def test_the_configuration_that_changed_is_the_first_suspect(slower: Told) -> None:
    slower.compiled(OLD, registers=128)
    slower.compiled(NEW, registers=96)
    slower.ran_in(OLD, "BLOCK: 64, num_warps: 4")
    slower.ran_in(NEW, "BLOCK: 64, num_warps: 8")

    assert slower.the_change().suspects == ("num_warps 4 → 8", "registers 128 → 96")


def test_a_tuner_that_chose_otherwise_is_told_where_nothing_compiled_changed(slower: Told) -> None:
    slower.compiled(range(60))
    slower.ran_in(OLD, "BLOCK: 64, num_warps: 4")
    slower.ran_in(NEW, "BLOCK: 64, num_warps: 8")

    assert slower.the_change().suspects == ("num_warps 4 → 8",)


def test_a_configuration_that_is_the_same_is_no_suspect(slower: Told) -> None:
    slower.compiled(range(60))
    slower.ran_in(range(60), "BLOCK: 64, num_warps: 4")

    (suspect,) = slower.the_change().suspects

    assert suspect == "neither what was compiled nor the configuration changed: the host code, or the machine"


@pytest.mark.parametrize("known", [OLD, NEW])
def test_a_configuration_that_is_known_on_one_side_only_is_not_compared(known: Sequence[int], slower: Told) -> None:
    slower.ran_in(known, "BLOCK: 64, num_warps: 4")

    assert slower.the_change().suspects == ()


def test_registers_have_the_compiled_configuration_as_their_suspect(told: Told) -> None:
    told.compiled(OLD, registers=128)
    told.compiled(NEW, registers=96, shared_memory=4096)
    told.ran_in(OLD, "BLOCK=64,num_warps=4", compiled=True)
    told.ran_in(NEW, "BLOCK=64,num_warps=8", compiled=True)
    told.ran_in(range(60), "BLOCK: 64, num_warps: 2")

    assert told.the_change("registers").suspects == ("num_warps 4 → 8", "shared memory 8 B → 4 KiB")


def test_registers_that_changed_in_the_same_configuration_accuse_the_code(told: Told) -> None:
    told.compiled(OLD, registers=128, spills=0)
    told.compiled(NEW, registers=255, spills=48)
    told.ran_in(range(60), "BLOCK=64,num_warps=4", compiled=True)

    suspects = told.the_change("registers").suspects

    assert suspects == ("the kernel's code: its configuration is the same", "spills 0 B → 48 B")


def test_registers_without_a_record_of_the_configuration_have_the_other_facts(told: Told) -> None:
    told.compiled(OLD, registers=128)
    told.compiled(NEW, registers=168, spills=48)

    assert told.the_change("registers").suspects == ("spills 8 B → 48 B",)


def test_an_upgrade_that_made_the_compiler_choose_otherwise_tells_both(told: Told) -> None:
    for triton, revisions, level, registers in [("3.5.1", OLD, 1e-3, 128.0), ("3.6.0", NEW, 1.3e-3, 168.0)]:
        told.measured("track_time", revisions, level, noise=0.005, triton=triton)
        told.measured("track_registers", revisions, registers, triton=triton)
        told.ran_in(revisions, f"BLOCK: {registers:.0f}", triton=triton)

    assert told.the_change().suspects == ("triton 3.5.1 → 3.6.0", "BLOCK 128 → 168", "registers 128 → 168")


def test_seconds_that_moved_with_those_of_the_anchor_accuse_the_machine(slower: Told) -> None:
    slower.compiled(OLD, registers=128)
    slower.compiled(NEW, registers=168)
    slower.measured("track_ratio_to_anchor", range(60), 1.02, noise=0.002)

    change = slower.the_change()

    assert change.direction is Direction.OTHER
    (suspect,) = change.suspects
    assert re.fullmatch(r"the machine: beside the anchor the case is 0\.\d\d % .*", suspect)


@pytest.mark.parametrize("ratio", [1.3, 1.2])
def test_seconds_that_moved_away_from_those_of_the_anchor_accuse_the_code(ratio: float, slower: Told) -> None:
    slower.measured("track_ratio_to_anchor", OLD, 1.0, noise=0.002)
    slower.measured("track_ratio_to_anchor", NEW, ratio, noise=0.002)

    assert [slower.the_change(metric).direction for metric in ("time", "ratio_to_anchor")] == [Direction.WORSE] * 2


def test_a_slower_machine_does_not_hide_slower_code(slower: Told) -> None:
    slower.measured("track_ratio_to_anchor", OLD, 1.0, noise=0.002)
    slower.measured("track_ratio_to_anchor", NEW, 1.05, noise=0.002)

    assert slower.the_change().direction is Direction.OTHER
    code = slower.the_change("ratio_to_anchor")
    assert code.direction is Direction.WORSE
    assert code.effect == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize("revisions", [OLD, NEW, range(38, 42)])
def test_ratios_that_are_too_few_or_on_one_side_only_clear_nothing(revisions: Sequence[int], slower: Told) -> None:
    slower.measured("track_ratio_to_anchor", revisions, 1.0, noise=0.002)

    assert slower.the_change().direction is Direction.WORSE


def test_ratios_of_another_machine_clear_nothing(slower: Told) -> None:
    slower.measured("track_ratio_to_anchor", range(60), 1.0, noise=0.002, gpu="NVIDIA B200")

    assert slower.the_change().direction is Direction.WORSE


def test_numbers_that_changed_are_a_suspect(slower: Told) -> None:
    slower.measured("track_max_diff", OLD, 1e-3)
    slower.measured("track_max_diff", NEW, 2e-3)

    assert slower.the_change().suspects == ("max diff 0.001 → 0.002",)


def test_without_facts_there_is_no_suspect(slower: Told) -> None:
    assert slower.the_change().suspects == ()


def test_an_upgrade_is_a_change_with_the_versions_as_its_suspects(told: Told) -> None:
    told.measured("track_time", OLD, 1e-3, noise=0.005, triton="3.5.1")
    told.measured("track_time", NEW, 1.3e-3, noise=0.005, triton="3.6.0")

    change = told.the_change()

    assert (change.first, change.direction) == (f"{40:040d}", Direction.WORSE)
    assert change.suspects == ("triton 3.5.1 → 3.6.0",)
    assert change.axes == {"triton": "3.6.0"}
    assert change.effect == pytest.approx(30, abs=1)


def test_an_upgrade_that_changed_nothing_is_no_change(told: Told) -> None:
    told.measured("track_time", OLD, 1e-3, noise=0.005, triton="3.5.1")
    told.measured("track_time", NEW, 1e-3, noise=0.005, triton="3.6.0")

    assert told.changes() == []


def test_versions_measured_side_by_side_are_not_compared(told: Told) -> None:
    told.measured("track_time", range(60), 1e-3, triton="3.5.1")
    told.measured("track_time", range(60), 1.3e-3, triton="3.6.0")

    assert told.changes() == []


def test_gpus_are_never_compared(told: Told) -> None:
    told.measured("track_time", OLD, 1e-3)
    told.measured("track_time", NEW, 1.3e-3, gpu="NVIDIA B200")

    assert told.changes() == []


def test_the_newest_commit_comes_first_and_there_what_got_worse_most(told: Told) -> None:
    for name, before, after in [("track_time", 1.0, 1.1), ("track_max_diff", 1.0, 2.0), ("track_spills", 2.0, 1.0)]:
        told.measured(name, OLD, before)
        told.measured(name, NEW, after)
    told.measured("track_registers", range(50), 1.0)
    told.measured("track_registers", range(50, 60), 2.0)

    assert [change.metric for change in told.changes()] == ["registers", "max_diff", "time", "spills"]


def test_the_link_opens_the_graph_of_the_case_with_the_commit_marked(told: Told) -> None:
    for gpu, level in [("NVIDIA H200", 1.3e-3), ("NVIDIA B200", 1e-3)]:
        told.measured("track_time", OLD, 1e-3, gpu=gpu)
        told.measured("track_time", NEW, level, gpu=gpu)

    assert told.the_change().link == (
        f"index.html#scale.Scale.track_time?gpu=NVIDIA+H200&p-n=%2764%27&p-provider=%27flopwatch%27&commits={40:040d}"
    )
