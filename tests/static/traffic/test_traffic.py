from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from flopwatch.static.devices import find_device
from flopwatch.static.traffic import OutOfBounds, Traffic, bound_of, traffic_findings

if TYPE_CHECKING:
    from collections.abc import Callable

H200 = find_device("h200")

#: What is counted of each of the conftest's CASES, and by the interpreter.
CASES = [
    "add",
    "add of a view",
    "unmasked load",
    "one too far",
    "one before",
    "matmul",
    "odd matmul",
    "attention",
    "causal attention",
    "layer norm",
    "softmax",
    "transpose",
    "triangle",
    "control",
    "laid out",
    "described",
]
STRAY = ("unmasked load", "one too far", "one before")

ADDS = {
    n: f"launch_add(device, {n}, torch.{dtype})" for n, dtype in ((1, "float16"), (1023, "float32"), (98432, "int8"))
}
#: 32 x 1024 tiles of 64 x 64.
LARGE = "launch_matmul(device, 2048, 65536, 512, {group})"
GROUPED, UNGROUPED = LARGE.format(group=8), LARGE.format(group=1)
FULL = "launch_attention(device, 1024, 4, causal=False)"
CAUSAL = "launch_attention(device, 1024, 4, causal=True)"
NO_SKIP = "launch_attention(device, 1024, 4, causal=True, skip=False)"
GATHER = "launch_on_data(gather, device, D=64)"
RAGGED = "launch_on_data(ragged, device, BLOCK=16)"
BRANCHING = "launch_on_data(branching, device, BLOCK=64)"
PADDED = "launch_on_data(padded, device, BLOCK=64)"
MANY = "launch_stray(one_too_far, device, n=16 * 300_000 - 1, block=16)"
WRAPPED = "launch_narrow(device, 2**31 + 8192)"
LAYER_NORM = "launch_layer_norm(device, 4096, 5000, 1024)"
BY_FLOAT = "by_float[(4,)](empty(512, device=device), 0.5, BLOCK=128)"
CALLS = [
    *CASES,
    *ADDS.values(),
    GROUPED,
    UNGROUPED,
    FULL,
    CAUSAL,
    NO_SKIP,
    GATHER,
    RAGGED,
    PADDED,
    BRANCHING,
    MANY,
    WRAPPED,
    LAYER_NORM,
    BY_FLOAT,
]


@pytest.fixture(scope="module")
def counted(compile_traffic: Callable[..., dict[str, Traffic]]) -> dict[str, Traffic]:
    return compile_traffic("h200", *CALLS)


def line_of(kernels: str, comment: str) -> str:
    """Return where the line with that comment is."""
    (number,) = (number for number, line in enumerate(kernels.splitlines(), start=1) if line.endswith(f"# {comment}"))
    return f"kernels.py:{number}"


@pytest.mark.parametrize("case", CASES)
def test_everything_counted_is_what_the_interpreter_does(
    case: str, counted: dict[str, Traffic], interpreted: dict[str, dict[str, Any]]
) -> None:
    traffic = counted[case]
    assert interpreted[case] == {
        "load": traffic.load_bytes,
        "store": traffic.store_bytes,
        "atomic": traffic.atomic_bytes,
        "flops": traffic.total_dot_flops,
        "unique load": traffic.unique_load_bytes,
        "unique store": traffic.unique_store_bytes,
        "compulsory": traffic.compulsory_bytes,
        "strays": sorted([stray.before_bytes, stray.past_bytes] for stray in traffic.out_of_bounds),
    }
    assert (1.0, (), ()) == (traffic.coverage, traffic.uncovered, traffic.data_dependent)


@pytest.mark.parametrize(("n", "size"), [(1, 2), (1023, 4), (98432, 1)])
def test_a_vector_is_read_and_written_once_and_its_last_sector_whole(
    n: int, size: int, counted: dict[str, Traffic]
) -> None:
    traffic = counted[ADDS[n]]
    assert (2 * n * size, n * size) == (traffic.load_bytes, traffic.store_bytes)
    assert (2 * n * size, n * size) == (traffic.unique_load_bytes, traffic.unique_store_bytes)
    assert 3 * 32 * math.ceil(n * size / 32) == traffic.compulsory_bytes
    assert {} == traffic.dot_flops
    assert () == traffic.out_of_bounds


def tiles_of(pid: int, group: int, tiles_m: int = 32, tiles_n: int = 1024) -> tuple[int, int]:
    """Return the row and the column of a tile, as the kernel numbers them."""
    first = pid // (group * tiles_n) * group
    rows = min(tiles_m - first, group)
    return first + pid % (group * tiles_n) % rows, pid % (group * tiles_n) // rows


def panels_of(programs: int, group: int) -> int:
    """Count the rows and columns of tiles that the first so many programs read."""
    tiles = [tiles_of(pid, group) for pid in range(programs)]
    return len({row for row, _ in tiles}) + len({column for _, column in tiles})


def lines_of(programs: int, group: int) -> int:
    """Count the rows and columns of the matrices that they read of 8192x8192x8192, in tiles of 128 and 256."""
    tiles = [tiles_of(pid, group, 8192 // 128, 8192 // 256) for pid in range(programs)]
    return 128 * len({row for row, _ in tiles}) + 256 * len({column for _, column in tiles})


@pytest.mark.parametrize(("group", "growth"), [(1, "1.64"), (4, "1.71")])
def test_groups_of_eight_rows_share_more_than_others_of_what_132_programs_read(group: int, growth: str) -> None:
    """As docs/traffic.md says it."""
    assert growth == f"{lines_of(132, group) / lines_of(132, 8):.2f}"


@pytest.mark.parametrize(("group", "call"), [(8, GROUPED), (1, UNGROUPED)])
def test_a_wave_reads_the_panels_of_its_tiles(group: int, call: str, counted: dict[str, Traffic]) -> None:
    traffic = counted[call]
    assert 0 == traffic.wave_programs % 132
    assert panels_of(traffic.wave_programs, group) * 64 * 512 * 2 / 32 == traffic.wave_sectors
    assert traffic.wave_programs * (64 + 64) * 512 * 2 == traffic.wave_load_bytes


def test_waves_are_counted_by_what_the_device_holds_and_the_rest_is_the_tail(counted: dict[str, Traffic]) -> None:
    traffic = counted[GROUPED]
    assert traffic.waves == traffic.programs / traffic.wave_programs > 1
    assert counted["odd matmul"].waves == 1.0
    assert replace(traffic, wave_programs=0).waves is None


def test_a_lost_swizzle_is_found_in_what_a_wave_reads(counted: dict[str, Traffic]) -> None:
    (finding,) = traffic_findings(_as(counted[GROUPED], "same"), _as(counted[UNGROUPED], "same"))
    assert ("wave reuse", True) == (finding.name, finding.worse)
    for text, group in ((finding.base, 8), (finding.head, 1)):
        wave = counted[GROUPED].wave_programs
        assert f"{2 * wave / panels_of(wave, group):.1f}x" == text.split(",")[0]
    assert [] == list(traffic_findings(_as(counted[UNGROUPED], "same"), _as(counted[GROUPED], "same")))


def test_a_matmul_multiplies_whole_tiles_and_moves_each_matrix_once(counted: dict[str, Traffic]) -> None:
    traffic = counted["odd matmul"]
    tiles = math.ceil(130 / 64) * math.ceil(77 / 64)
    assert {"f16": 2 * tiles * 64 * 64 * math.ceil(45 / 32) * 32} == traffic.dot_flops
    assert (130 * 45 + 45 * 77) * 2 == traffic.unique_load_bytes
    assert 130 * 77 * 2 == traffic.unique_store_bytes


def test_causal_attention_multiplies_the_lower_triangle_of_tiles(counted: dict[str, Traffic]) -> None:
    tiles = 1024 // 64
    one = 2 * (2 * 64 * 64 * 64)
    assert {"f16": 4 * tiles * tiles * one} == counted[FULL].dot_flops
    assert {"f16": 4 * tiles * (tiles + 1) // 2 * one} == counted[CAUSAL].dot_flops
    assert (1.0, tiles / ((tiles + 1) / 2)) == (counted[FULL].imbalance, counted[CAUSAL].imbalance)
    (loop,) = counted[CAUSAL].loops
    assert (64, 4 * tiles * (tiles + 1) // 2, 1, 16) == (loop.entered, loop.turns, loop.least, loop.most)


def test_a_lost_causal_skip_is_found_in_the_flops(counted: dict[str, Traffic]) -> None:
    findings = list(traffic_findings(_as(counted[CAUSAL], "same"), _as(counted[NO_SKIP], "same")))
    assert ["dot flops", "requested bytes"] == [finding.name for finding in findings]
    assert ("5.704e+08 FLOPs", "1.074e+09 FLOPs, 1.88x") == (findings[0].base, findings[0].head)


def test_a_layer_norm_asks_twice_for_what_it_reads_once(counted: dict[str, Traffic]) -> None:
    traffic = counted[LAYER_NORM]
    assert 4096 * (2 * 5000 + 5000) * 4 == traffic.load_bytes
    assert (4096 * 5000 + 5000) * 4 == traffic.unique_load_bytes
    assert 4096 * 5000 * 4 == traffic.store_bytes == traffic.unique_store_bytes
    assert [(4096, 4096 * 5, 5, 5)] * 2 == [(x.entered, x.turns, x.least, x.most) for x in traffic.loops]


def test_an_unmasked_load_leaves_its_tensor(kernels: str, counted: dict[str, Traffic]) -> None:
    assert (
        OutOfBounds(
            operation="tt.load",
            where=line_of(kernels, "unmasked load"),
            argument="x_ptr",
            programs=1,
            first_program=(3, 0, 0),
            before_bytes=0,
            past_bytes=24 * 2,
            allocation_bytes=2000,
        ),
    ) == counted["unmasked load"].out_of_bounds


def test_a_store_that_is_one_too_far_leaves_its_tensor_by_an_element(kernels: str, counted: dict[str, Traffic]) -> None:
    (stray,) = counted["one too far"].out_of_bounds
    assert ("tt.store", line_of(kernels, "one too far"), "out_ptr") == (stray.operation, stray.where, stray.argument)
    assert (1, 0, 2) == (stray.programs, stray.before_bytes, stray.past_bytes)


def test_a_load_before_its_tensor_is_told_as_such(kernels: str, counted: dict[str, Traffic]) -> None:
    (stray,) = counted["one before"].out_of_bounds
    assert (line_of(kernels, "one before"), 2, 0) == (stray.where, stray.before_bytes, stray.past_bytes)
    assert (0, 0, 0) == stray.first_program


@pytest.mark.parametrize("case", [case for case in CASES if case not in STRAY])
def test_a_clean_kernel_leaves_nothing(case: str, counted: dict[str, Traffic]) -> None:
    assert () == counted[case].out_of_bounds


def test_offsets_wrap_around_as_their_type_does(kernels: str, counted: dict[str, Traffic]) -> None:
    (stray,) = counted[WRAPPED].out_of_bounds
    assert (line_of(kernels, "wraps"), 2**31, 2, (2**31 // 4096, 0, 0)) == (
        stray.where,
        stray.before_bytes,
        stray.programs,
        stray.first_program,
    )


def test_addresses_that_are_loaded_are_not_guessed(kernels: str, counted: dict[str, Traffic]) -> None:
    traffic = counted[GATHER]
    assert (8 * (4 + 64 * 2), 8 * 64 * 4) == (traffic.load_bytes, traffic.store_bytes)
    assert (None, None, None) == (traffic.unique_load_bytes, traffic.compulsory_bytes, traffic.wave_sectors)
    where = line_of(kernels, "gathered")
    line = int(where.partition(":")[2]) - 2
    assert (f"the address at {where} depends on values loaded at kernels.py:{line}",) == traffic.data_dependent
    assert () == traffic.uncovered


def test_a_loop_that_depends_on_data_has_no_flops_and_no_bytes(counted: dict[str, Traffic]) -> None:
    traffic = counted[RAGGED]
    assert (None, None, None, None) == (
        traffic.dot_flops,
        traffic.load_bytes,
        traffic.compulsory_bytes,
        traffic.imbalance,
    )
    assert ["scf.for"] == [cause.partition(" ")[0] for cause in traffic.data_dependent]
    assert bound_of(traffic, H200) is None


def test_a_mask_that_depends_on_data_has_no_bytes(counted: dict[str, Traffic]) -> None:
    traffic = counted[PADDED]
    assert (None, {}) == (traffic.load_bytes, traffic.dot_flops)
    assert ["the mask"] == [cause[:8] for cause in traffic.data_dependent]


def test_a_branch_on_data_leaves_open_what_comes_after_it(counted: dict[str, Traffic]) -> None:
    traffic = counted[BRANCHING]
    assert (None, None, None) == (traffic.load_bytes, traffic.store_bytes, traffic.unique_store_bytes)
    assert ["cf.cond_br", "cf.cond_br", "the address"] == [
        cause.partition(" at ")[0] for cause in traffic.data_dependent
    ]
    assert () == traffic.uncovered


def test_what_is_not_understood_is_named_and_not_guessed(counted: dict[str, Traffic]) -> None:
    traffic = counted[BY_FLOAT]
    assert (512 * 2, None, None) == (traffic.store_bytes, traffic.unique_store_bytes, traffic.compulsory_bytes)
    assert "floating point" in traffic.uncovered[0]
    assert 0.0 < traffic.coverage < 1.0


def test_of_a_very_large_grid_the_ends_are_looked_at_and_nothing_is_summed_up(
    kernels: str, counted: dict[str, Traffic]
) -> None:
    traffic = counted[MANY]
    assert 300_000 == traffic.programs
    assert traffic.evaluated < traffic.programs
    assert (None, None, None) == (traffic.load_bytes, traffic.unique_load_bytes, traffic.imbalance)
    assert [line_of(kernels, "one too far")] == [stray.where for stray in traffic.out_of_bounds]
    assert traffic.wave_programs * 16 * 2 == traffic.wave_load_bytes


def test_descriptors_count_the_same_where_the_device_has_none(
    compile_traffic: Callable[..., dict[str, Traffic]], counted: dict[str, Traffic]
) -> None:
    with_pointers = compile_traffic("a100", "described")["described"]
    names = ("dot_flops", "load_bytes", "store_bytes", "unique_load_bytes", "compulsory_bytes", "imbalance", "loops")
    assert [getattr(counted["described"], name) for name in names] == [getattr(with_pointers, name) for name in names]


def test_the_bound_of_a_matmul_is_its_arithmetic_or_its_memory(counted: dict[str, Traffic]) -> None:
    flops, elements = 2 * 2048 * 65536 * 512, 2048 * 512 + 512 * 65536 + 2048 * 65536
    bound = bound_of(counted[GROUPED], H200)
    assert bound is not None
    assert (flops / 989.4e12, elements * 2 / 4.8e12) == (bound.compute_seconds, bound.memory_seconds)
    assert ("compute", bound.compute_seconds) == (bound.limit, bound.seconds)


def test_the_bound_of_a_vector_is_its_memory(counted: dict[str, Traffic]) -> None:
    bound = bound_of(counted[ADDS[98432]], H200)
    assert bound is not None
    assert ("memory", 3 * 98432 / 4.8e12) == (bound.limit, bound.seconds)


def _as(traffic: Traffic, config: str) -> Traffic:
    """Return the traffic as that of a configuration of this name: as if an edit of the code had made it."""
    values = {name: getattr(traffic, name) for name in Traffic.__dataclass_fields__}
    return Traffic(**(values | {"config": config}))
