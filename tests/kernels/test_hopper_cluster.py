"""What the compiler makes of the kernel that shares loads, everywhere; its numbers, on a GPU of that architecture.

As `test_hopper_short`, whose checks these are.
"""

from __future__ import annotations

import pytest
import torch
from tests.kernels.test_hopper_matmul import REGISTERS, SHARED_BYTES, run
from tests.kernels.test_hopper_short import CHECKED, CHECKS, DEADLINE_S, facts_of

from flopwatch.kernels.hopper_cluster import CLUSTER, CLUSTER_TILES, CLUSTERS, ClusterConfig
from flopwatch.kernels.hopper_cluster_barriers import HAS_CLUSTERS

#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints a line of facts, and of each
#: kernel how often ptxas says that it had to serialise the tensor cores' instructions, its programs and shared memory,
#: and what it does around the barriers of a cluster, in the order of its text.
COMPILE = r"""
import re, sys
import torch
from flopwatch.kernels.hopper_cluster import CLUSTER, hopper_cluster_matmul
from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu
from tests.kernels.assembled import serialised

with pretend_gpu("h200") as recorder:
    for name, dtype, layout in (line.split("/") for line in sys.argv[1:]):
        a = torch.empty(1536, 1536, device="cuda", dtype=getattr(torch, dtype))
        hopper_cluster_matmul(a, a.T if layout == "columns" else a, CLUSTER[name])
print("facts", to_json(kernel_facts(recorder)).decode())
for kernel in recorder.compiled.values():
    print("serialised", *serialised(kernel))
    print("taken", kernel.metadata.num_ctas, kernel.metadata.shared)
    doing = r"wgmma\.wait_group|barrier\.cluster\.\w+|expect_tx|multicast::|cp\.async\.bulk\.tensor\S*global\.shared"
    print("does", *re.findall(doing, kernel.asm["ptx"]))
"""
#: Alone; with A or B shared, or both; columns of one and of two powers of two; both layouts of B, and four warps and
#: eight.
ALONE = "cluster 64x96x64 s11 w4 1x1/float16/rows"
TOGETHER = (
    "cluster 64x96x64 s11 w4 2x1/float16/rows",
    "cluster 64x128x64 s9 w4 1x2/bfloat16/columns",
    "cluster 128x144x64 s6 w8 2x2/float16/columns",
)
COMPILED = (ALONE, *(TOGETHER if HAS_CLUSTERS else ()))
#: Of one tile, in clusters of each shape.
PROGRAM = f"""
{CHECKS}
from flopwatch.kernels.hopper_cluster import CLUSTER, CLUSTER_TILES, hopper_cluster_matmul as product

tile = CLUSTER_TILES[int(sys.argv[1])]
for config in CLUSTER.values():
    if replace(config, cluster_m=1, cluster_n=1, dependent=False) == tile:
        shapes()
        reuse()
"""

only_with_clusters = pytest.mark.skipif(not HAS_CLUSTERS, reason="this Triton has no clusters")


@pytest.fixture(scope="module")
def compiled() -> list[str]:
    return run(COMPILE, *COMPILED, deadline_s=280.0)


def told(compiled: list[str], what: str) -> list[list[str]]:
    return [line.split()[1:] for line in compiled if line.startswith(what)]


def config_of(line: str) -> ClusterConfig:
    return CLUSTER[line.partition("/")[0]]


def test_configurations_compile_for_hopper_without_spills(compiled: list[str]) -> None:
    facts = facts_of(compiled)

    assert len(facts) == len(COMPILED)
    assert [(fact.config, fact.failure, fact.spill_bytes) for fact in facts if fact.failure or fact.spill_bytes] == []


def test_columns_of_two_powers_of_two_are_two_instructions(compiled: list[str]) -> None:
    names = [{name for name in fact.instructions if "MMA" in name} for fact in facts_of(compiled)]

    assert {"HGMMA.64x64x16.F32", "HGMMA.64x32x16.F32"} in names


def test_ptxas_serialises_none_of_them(compiled: list[str]) -> None:
    assert told(compiled, "serialised") == [[]] * len(COMPILED)


def test_a_cluster_has_its_programs_and_a_tile_of_c_lies_where_the_ring_was(compiled: list[str]) -> None:
    for line, (programs, shared) in zip(COMPILED, told(compiled, "taken"), strict=True):
        config = config_of(line)
        assert int(programs) == config.programs
        assert 0 <= int(shared) - ring_bytes(config) <= 16 * config.stages


def test_a_program_alone_tells_nobody_anything(compiled: list[str]) -> None:
    assert [each for each in told(compiled, "does")[0] if "cluster" in each or "multicast" in each] == []


@only_with_clusters
def test_a_stage_is_refilled_for_others_after_all_have_said_that_they_read_it(compiled: list[str]) -> None:
    """At first all have barriers; in the loop all have read, then it is loaded, and then the next reading is told."""
    arrive, wait, read = "barrier.cluster.arrive", "barrier.cluster.wait", "wgmma.wait_group"

    for line, does in zip(TOGETHER, told(compiled, "does")[1:], strict=True):
        config = config_of(line)
        parts = 2 if config.more_n else 1
        loads = ["multicast::"] * ((config.cluster_n > 1) + parts * (config.cluster_m > 1))
        first = ["expect_tx", arrive, wait, *loads, *[read] * parts]
        assert does == [
            *first,
            *(read, wait, "expect_tx", *loads, arrive),
            *(read, *["cp.async.bulk.tensor.2d.global.shared"] * parts),
        ]


def ring_bytes(config: ClusterConfig) -> int:
    return config.stages * (config.block_m + config.columns) * config.block_k * 2


@pytest.mark.parametrize("config", CLUSTER_TILES, ids=str)
def test_a_tile_fits_a_multiprocessor(config: ClusterConfig) -> None:
    """Shared memory with barriers of up to 16 bytes, and registers: accumulators, and 40 for what else there is."""
    assert ring_bytes(config) + 16 * config.stages <= SHARED_BYTES
    assert (config.block_m * config.columns // (config.warps * 32) + 40) * config.warps * 32 <= REGISTERS
    assert config.block_m * config.columns * 2 <= ring_bytes(config)


@pytest.mark.parametrize("config", CLUSTER_TILES, ids=str)
def test_a_stage_is_left_while_another_is_late(config: ClusterConfig) -> None:
    assert config.stages >= 3


def test_configurations_have_names_of_their_own() -> None:
    clusters = [programs for programs in CLUSTERS if HAS_CLUSTERS or programs == (1, 1)]

    assert len(CLUSTER) == 2 * len(CLUSTER_TILES) * len(clusters)


@pytest.mark.gpu
@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="is for Hopper alone"
)
@pytest.mark.parametrize("place", range(len(CLUSTER_TILES)), ids=[str(config) for config in CLUSTER_TILES])
def test_every_configuration_is_right(place: int) -> None:
    lines = run(PROGRAM, str(place), deadline_s=2 * DEADLINE_S)

    assert len(lines) == CHECKED * len(CLUSTER) // len(CLUSTER_TILES)
    assert [line for line in lines if float(line.split()[-1]) > 1.0] == []
