from __future__ import annotations

import dataclasses

import pytest

from flopwatch.kernels.configs import (
    ATTENTION_AUTOTUNE,
    HEAD_DIMS,
    MATMUL_AUTOTUNE,
    AttentionConfig,
    MatmulConfig,
    attention_config_for,
    fitting_matmul_config,
    matmul_config_for,
)
from flopwatch.utils.gpu import GPUArch

KEYS = ["BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages", "use_tma", "use_fp8"]
CONFIGS = [*MATMUL_AUTOTUNE, *(config for configs in ATTENTION_AUTOTUNE.values() for config in configs)]
#: Shared memory of one multiprocessor (CUDA C++ Programming Guide, technical specifications).
SRAM_PER_SM = {GPUArch.AMPERE: 102_400, GPUArch.ADA: 102_400, GPUArch.HOPPER: 233_472, GPUArch.BLACKWELL: 102_400}


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_configuration_cannot_be_changed(config: MatmulConfig | AttentionConfig) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_warps = 1  # type: ignore[misc] # that is what must fail


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_configuration_has_the_same_keys_whatever_its_kernel(config: MatmulConfig | AttentionConfig) -> None:
    assert list(config.as_dict()) == KEYS


def test_a_matmul_configuration_reads_as_it_was_written() -> None:
    config = MatmulConfig(block_m=16, block_n=32, block_k=64, group_m=4, num_warps=8, num_stages=3, use_fp8=True)

    assert list(config.as_dict().values()) == [16, 32, 64, 4, 8, 3, False, True]


def test_an_attention_configuration_reads_as_it_was_written() -> None:
    config = AttentionConfig(head_dim=64, block_m=16, block_n=32, num_warps=8, num_stages=3, use_tma=True)

    assert list(config.as_dict().values()) == [16, 32, 64, 1, 8, 3, True, False]


@pytest.mark.parametrize("arch", GPUArch)
def test_every_architecture_has_configurations(arch: GPUArch) -> None:
    assert matmul_config_for(arch).block_m >= 16
    assert [attention_config_for(arch, head_dim).head_dim for head_dim in HEAD_DIMS] == [16, 32, 64, 96, 128, 192, 256]


@pytest.mark.parametrize("arch", SRAM_PER_SM)
def test_the_configuration_of_an_architecture_fits_its_smallest_shared_memory(arch: GPUArch) -> None:
    config = matmul_config_for(arch)
    stage_bytes = 2 * config.block_k * (config.block_m + config.block_n)

    assert stage_bytes * config.num_stages <= SRAM_PER_SM[arch] - 1024


def test_hopper_gets_what_the_autotuner_tries_first() -> None:
    assert matmul_config_for(GPUArch.HOPPER) is MATMUL_AUTOTUNE[0]
    assert attention_config_for(GPUArch.HOPPER, 128) is ATTENTION_AUTOTUNE[128][0]


def test_the_autotuner_tries_few_configurations_and_none_twice() -> None:
    for configs, limit in ((MATMUL_AUTOTUNE, 6), *((configs, 4) for configs in ATTENTION_AUTOTUNE.values())):
        assert len(set(configs)) == len(configs) <= limit


def test_each_head_dimension_lists_its_own_configurations() -> None:
    assert [{config.head_dim for config in configs} for configs in ATTENTION_AUTOTUNE.values()] == [
        {head_dim} for head_dim in HEAD_DIMS
    ]


def test_an_unsupported_head_dimension_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"no attention configuration for head_dim=48\n.*16, 32, 64, 96, 128, 192, 256"
    ):
        attention_config_for(GPUArch.HOPPER, 48)


@pytest.mark.parametrize(
    ("blocks", "shared_bytes", "num_warps", "num_stages"),
    [
        ((16, 16, 16), 233_472, 4, 4),
        ((128, 128, 64), 233_472, 4, 4),
        ((128, 256, 64), 233_472, 8, 4),
        ((128, 256, 64), 167_936, 8, 3),
        ((128, 256, 64), 102_400, 8, 2),
        ((256, 256, 256), 233_472, 8, 1),
    ],
)
def test_warps_and_stages_follow_the_blocks_and_the_shared_memory(
    blocks: tuple[int, int, int], shared_bytes: int, num_warps: int, num_stages: int
) -> None:
    named = dict(zip(("block_m", "block_n", "block_k"), blocks, strict=True))

    config = fitting_matmul_config(MATMUL_AUTOTUNE[0], named, shared_bytes=shared_bytes, element_bytes=2)

    assert (config.block_m, config.block_n, config.block_k) == blocks
    assert (config.num_warps, config.num_stages) == (num_warps, num_stages)
