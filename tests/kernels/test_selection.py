from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from flopwatch.kernels import (
    AdaptiveKernelSelector,
    check_hopper_features,
    flash_attention,
    get_attention_config,
    get_matmul_config,
    get_optimal_attention,
    get_optimal_matmul,
    supports_fp8,
    triton_matmul,
)
from flopwatch.kernels.configs import attention_config_for, matmul_config_for
from flopwatch.static import pretend_gpu
from flopwatch.utils.gpu import GPUArch, GPUCapabilities

H200 = GPUCapabilities(
    name="NVIDIA H200",
    arch=GPUArch.HOPPER,
    compute_capability=(9, 0),
    has_tma=True,
    has_fp8=True,
    has_warpgroup_mma=True,
    sram_per_sm=233_472,
    num_sms=132,
    total_memory_gb=139.8,
)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_no_feature_is_available() -> None:
    assert check_hopper_features() == {
        "tma_available": False,
        "fp8_available": False,
        "wgmma_available": False,
        "arch": "unknown",
        "compute_capability": (0, 0),
    }
    assert supports_fp8() is False


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_configurations_are_those_of_an_unknown_one() -> None:
    assert AdaptiveKernelSelector().arch is GPUArch.UNKNOWN
    assert get_matmul_config() == matmul_config_for(GPUArch.UNKNOWN)
    assert get_attention_config(head_dim=32) == attention_config_for(GPUArch.UNKNOWN, 32)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_there_is_still_a_kernel_to_name() -> None:
    assert get_optimal_matmul() is triton_matmul
    assert get_optimal_attention() is flash_attention


@pytest.mark.parametrize(
    ("device", "arch", "compute_capability", "features"),
    [
        ("a100", GPUArch.AMPERE, (8, 0), (False, False, False)),
        ("h200", GPUArch.HOPPER, (9, 0), (True, True, True)),
        ("b200", GPUArch.BLACKWELL, (10, 0), (True, True, False)),
    ],
)
def test_features_and_configurations_are_those_of_the_current_gpu(
    device: str, arch: GPUArch, compute_capability: tuple[int, int], features: tuple[bool, bool, bool]
) -> None:
    tma, fp8, wgmma = features
    with pretend_gpu(device, tensors="cpu"):
        assert check_hopper_features() == {
            "tma_available": tma,
            "fp8_available": fp8,
            "wgmma_available": wgmma,
            "arch": arch.value,
            "compute_capability": compute_capability,
        }
        assert supports_fp8() is fp8
        assert get_matmul_config() == matmul_config_for(arch)
        assert get_attention_config() == attention_config_for(arch)


@pytest.mark.gpu
def test_features_are_those_that_torch_tells_of_the_real_gpu() -> None:
    assert check_hopper_features()["compute_capability"] == torch.cuda.get_device_capability()


@pytest.mark.parametrize("arch", GPUArch)
def test_an_architecture_can_be_named(arch: GPUArch) -> None:
    assert get_matmul_config(arch) == matmul_config_for(arch)
    assert get_attention_config(arch, 128) == attention_config_for(arch, 128)


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "NVIDIA B200", "Tesla V100", ""])
def test_a_name_decides_nothing(name: str) -> None:
    selector = AdaptiveKernelSelector(replace(H200, name=name))

    assert selector.arch is GPUArch.HOPPER
    assert selector.get_matmul_config() == matmul_config_for(GPUArch.HOPPER)
    assert selector.get_attention_config(32) == attention_config_for(GPUArch.HOPPER, 32)


def test_another_architecture_gets_another_configuration() -> None:
    ampere = AdaptiveKernelSelector(replace(H200, arch=GPUArch.AMPERE, compute_capability=(8, 0)))

    assert ampere.get_matmul_config() != AdaptiveKernelSelector(H200).get_matmul_config()


@pytest.mark.usefixtures("cuda")
def test_what_is_selected_computes() -> None:
    selector = AdaptiveKernelSelector()
    ones = torch.ones(16, 16, device="cuda", dtype=torch.float16)
    heads = ones.reshape(1, 1, 16, 16)

    assert selector.select_matmul_kernel()(ones, ones).unique().tolist() == [16.0]
    assert selector.select_attention_kernel()(heads, heads, heads).unique().tolist() == [1.0]
