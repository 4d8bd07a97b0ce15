from __future__ import annotations

from typing import TYPE_CHECKING

from evidence.wall_time_records import Change, Stage, kept, read_table, summed_up

from flopwatch.gate import CaseVerdict, GateResult, PairLog
from flopwatch.model import Case, Mark
from flopwatch.stats import SeriesResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: The end of what asv 0.6.6 printed of two commits with the same kernels on an H200 (2026-11-21).
CHANGED_ONLY = """\
[100.00%] ··· matmul.Matmul.track_time                                        ok
[100.00%] ··· ================ ========== ============= =============
              --                                    provider         
              --------------------------- ---------------------------
                   shape         dtype      flopwatch       torch    
              ================ ========== ============= =============
                512x512x512     float16    4.11±0.01μs   4.05±0.01μs 
                512x512x512     bfloat16       n/a           n/a     
              ================ ========== ============= =============

| Change   | Before [55f36e47] <main>   | After [c7d0f430] <clean>   |   Ratio | Benchmark (Parameter)                                          |
|----------|----------------------------|----------------------------|---------|----------------------------------------------------------------|
| -        | 1.62±0.07ms                | 1.44±0ms                   |    0.89 | matmul.Matmul.track_time('8192x8192x8192', 'float16', 'torch') |

SOME BENCHMARKS HAVE CHANGED SIGNIFICANTLY.
PERFORMANCE INCREASED.
"""  # noqa: E501, W291 - as asv prints it
#: As it prints the same with --no-only-changed.
ALL_ROWS = """\
All benchmarks:

| Change   | Before [55f36e47] <main>   | After [c7d0f430] <clean>   | Ratio   | Benchmark (Parameter)                                               |
|----------|----------------------------|----------------------------|---------|---------------------------------------------------------------------|
|          | n/a                        | n/a                        | n/a     | matmul.Matmul.track_time('512x512x512', 'bfloat16', 'flopwatch')    |
|          | n/a                        | n/a                        | n/a     | matmul.Matmul.track_time('8192x8192x8192', 'float16', 'torch')      |
|          | 4.10±0.02μs                | 4.45±0.02μs                | 1.09    | matmul.Matmul.track_time('512x512x512', 'float16', 'flopwatch')     |
|          | 1.58±0.09ms                | 1.40±0.2ms                 | ~0.89   | matmul.Matmul.track_time('4096x4096x4096', 'float16', 'flopwatch')  |
| -        | 1.62±0.01ms                | 1.44±0.01ms                | 0.89    | matmul.Matmul.track_time('8192x8192x8192', 'float16', 'flopwatch')  |

SOME BENCHMARKS HAVE CHANGED SIGNIFICANTLY.
PERFORMANCE INCREASED.
"""  # noqa: E501 - as asv prints it


def series(mark: Mark) -> SeriesResult:
    return SeriesResult(
        mark=mark,
        estimate=0.0,
        lower=-0.001,
        upper=0.001,
        pairs=8,
        deviation=0.001,
        detectable=0.006,
        inside_margin=False,
        p_slower=1.0,
        p_faster=1.0,
        confirm_p=None,
    )


def verdict(size: int, mark: Mark | None, *, identical: bool = False) -> CaseVerdict:
    timed = None if identical or mark is None else series(mark)
    case = Case(suite="Add", values=(f"{size}", "flopwatch"))
    return CaseVerdict(case=case, mark=mark, identical=identical, time=timed)


def pair(stage: str, cases: Sequence[int], *, faults: Sequence[int] = (), seconds: float = 1.5) -> PairLog:
    return PairLog(
        stage=stage,
        head_slot=1,
        seconds=seconds,
        log_ratios={f"Add[{size},flopwatch]": 0.0 for size in cases},
        launch_log_ratios={},
        faults={f"Add[{size},flopwatch]": "its clocks differ" for size in faults},
    )


def gate_result(verdicts: Sequence[CaseVerdict], pairs: Sequence[PairLog] = ()) -> GateResult:
    return GateResult(
        base="a1b2c3d4",
        head="a1b2c3d4",
        gpu="NVIDIA H200",
        device="h200",
        versions={},
        machine=None,
        facts=(),
        base_facts=(),
        fact_changes=(),
        verdicts=tuple(verdicts),
        pairs=tuple(pairs),
    )


def test_pairs_are_summed_up_by_stage_and_number_of_cases() -> None:
    result = gate_result(
        [verdict(1, Mark.SAME), verdict(2, Mark.SLOWER), verdict(3, Mark.SAME, identical=True), verdict(4, None)],
        [*[pair("screen", (1, 2))] * 7, pair("screen", (1,), faults=(2,)), *[pair("confirm", (2,), seconds=0.5)] * 8],
    )
    found = summed_up(result, name="flagged", what="flagged", warm=True, seconds=14.0, exit_code=1)

    assert found.stages == (
        Stage(name="screen", cases=2, pairs=8, seconds=12.0),
        Stage(name="confirm", cases=1, pairs=8, seconds=4.0),
    )
    assert (found.measured, found.identical) == (2, 1)
    assert found.marks == {"not compared": 1, "same": 2, "slower": 1}


def test_of_asvs_table_the_rows_with_two_times_are_counted() -> None:
    compared, changed = read_table(ALL_ROWS)

    assert compared == 3
    assert changed == (
        Change(
            mark="-",
            before="1.62±0.01ms",
            after="1.44±0.01ms",
            ratio="0.89",
            benchmark="matmul.Matmul.track_time('8192x8192x8192', 'float16', 'flopwatch')",
        ),
    )


def test_what_asv_called_changed_on_an_h200_is_read() -> None:
    compared, changed = read_table(CHANGED_ONLY)

    assert compared == 1
    assert [(change.mark, change.before, change.ratio) for change in changed] == [("-", "1.62±0.07ms", "0.89")]


def test_a_run_of_asv_without_a_table_has_compared_nothing() -> None:
    assert read_table("/usr/bin/python: No module named asv\n") == (0, ())


def test_files_are_read_from_the_newest_on(tmp_path: Path) -> None:
    assert kept(tmp_path) == []
    for name in ("wall-2026-11-21.json", "wall-2026-12-01.json", "aa-2026-12-02.json"):
        (tmp_path / name).touch()

    assert [path.name for path in kept(tmp_path)] == ["wall-2026-12-01.json", "wall-2026-11-21.json"]
