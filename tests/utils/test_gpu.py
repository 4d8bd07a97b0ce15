from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from flopwatch.static import DEVICES, pretend_gpu
from flopwatch.utils import GPUArch, GPUCapabilities, detect_gpu, print_gpu_info

if TYPE_CHECKING:
    from collections.abc import Callable

    PlugIn = Callable[..., None]

H200 = GPUCapabilities(
    name="NVIDIA H200",
    arch=GPUArch.HOPPER,
    compute_capability=(9, 0),
    has_tma=True,
    has_fp8=True,
    has_warpgroup_mma=True,
    sram_per_sm=233472,
    num_sms=132,
    total_memory_gb=139.8,
)

H200_TABLE = """\
                     NVIDIA H200
┌───────────────────────────────────┬────────────────┐
│ architecture                      │ hopper (sm_90) │
│ compute capability                │ 9.0            │
│ multiprocessors                   │ 132            │
│ shared memory per multiprocessor  │ 228 KiB        │
│ memory                            │ 139.8 GiB      │
│ tensor memory accelerator         │ yes            │
│ float8 tensor cores               │ yes            │
│ warpgroup matrix multiply (wgmma) │ yes            │
└───────────────────────────────────┴────────────────┘
"""


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> PlugIn:
    """Return a function that makes PyTorch report one CUDA device with the given properties."""

    def plug_in(**properties: Any) -> None:  # noqa: ANN401 - whatever PyTorch calls them
        device = {"name": "NVIDIA Anything", "major": 9, "minor": 0, "multi_processor_count": 132}
        device |= {"total_memory": 80 * 2**30, "shared_memory_per_multiprocessor": 233472} | properties
        present = SimpleNamespace(**{name: value for name, value in device.items() if value is not None})
        monkeypatch.setattr(torch.version, "hip", None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: present)

    return plug_in


@pytest.mark.parametrize(
    ("capability", "arch", "has_tma", "has_fp8", "has_warpgroup_mma"),
    [
        ((6, 1), GPUArch.UNKNOWN, False, False, False),
        ((7, 0), GPUArch.VOLTA, False, False, False),
        ((7, 5), GPUArch.TURING, False, False, False),
        ((8, 0), GPUArch.AMPERE, False, False, False),
        ((8, 6), GPUArch.AMPERE, False, False, False),
        ((8, 7), GPUArch.AMPERE, False, False, False),
        ((8, 9), GPUArch.ADA, False, True, False),
        ((9, 0), GPUArch.HOPPER, True, True, True),
        ((10, 0), GPUArch.BLACKWELL, True, True, False),
        ((10, 3), GPUArch.BLACKWELL, True, True, False),
        ((12, 0), GPUArch.BLACKWELL, True, True, False),
        ((12, 1), GPUArch.BLACKWELL, True, True, False),
        ((13, 0), GPUArch.UNKNOWN, True, True, False),
    ],
)
def test_the_compute_capability_tells_the_architecture_and_its_features(
    plug_in: PlugIn,
    capability: tuple[int, int],
    arch: GPUArch,
    *,
    has_tma: bool,
    has_fp8: bool,
    has_warpgroup_mma: bool,
) -> None:
    plug_in(major=capability[0], minor=capability[1])
    caps = detect_gpu()
    assert (arch, capability) == (caps.arch, caps.compute_capability)
    assert (has_tma, has_fp8, has_warpgroup_mma) == (caps.has_tma, caps.has_fp8, caps.has_warpgroup_mma)


def test_the_name_decides_nothing(plug_in: PlugIn) -> None:
    plug_in(name="NVIDIA H100 Hopper", major=8, minor=0)
    caps = detect_gpu()
    assert (caps.name, caps.arch, caps.has_tma) == ("NVIDIA H100 Hopper", GPUArch.AMPERE, False)


def test_memory_is_in_gib_and_shared_memory_in_bytes(plug_in: PlugIn) -> None:
    plug_in()
    assert (detect_gpu().total_memory_gb, detect_gpu().sram_per_sm) == (80.0, 233472)


@pytest.mark.parametrize(
    ("capability", "per_block", "per_sm"),
    # CUDA C++ Programming Guide, technical specifications: per block and per multiprocessor, in KiB.
    [((7, 0), 96, 96), ((7, 5), 64, 64), ((8, 0), 163, 164), ((8, 6), 99, 100), ((9, 0), 227, 228), ((12, 0), 99, 100)],
)
def test_shared_memory_follows_from_the_largest_block_where_pytorch_tells_only_that(
    plug_in: PlugIn, capability: tuple[int, int], per_block: int, per_sm: int
) -> None:
    plug_in(
        major=capability[0],
        minor=capability[1],
        shared_memory_per_multiprocessor=None,
        shared_memory_per_block_optin=per_block * 1024,
    )
    assert per_sm * 1024 == detect_gpu().sram_per_sm


def test_shared_memory_is_never_invented(plug_in: PlugIn) -> None:
    plug_in(shared_memory_per_multiprocessor=None, shared_memory_per_block=49152)
    with pytest.raises(RuntimeError, match=r"the size of shared memory is unknown\n  why: .*\n  do: "):
        detect_gpu()


@pytest.mark.parametrize("device_id", [-1, 1, 99])
def test_a_device_that_is_not_there_is_a_value_error_that_says_what_is(plug_in: PlugIn, device_id: int) -> None:
    plug_in()
    with pytest.raises(ValueError, match=f"no CUDA device {device_id}\n  why: this process sees 1 device,.*\n  do: "):
        detect_gpu(device_id)


def test_without_cuda_it_says_that_cuda_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"CUDA is not available\n  why: .*\n  do: "):
        detect_gpu()
    with pytest.raises(RuntimeError, match="CUDA is not available"):
        print_gpu_info()


def test_a_rocm_build_is_no_cuda_whatever_its_version_numbers(plug_in: PlugIn, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(name="AMD Instinct MI25", major=9, minor=0)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(RuntimeError, match=r"CUDA is not available\n  why: .* ROCm"):
        detect_gpu()


@pytest.mark.parametrize("key", sorted(key for key, device in DEVICES.items() if device.is_amd))
def test_a_pretended_gpu_of_amd_is_no_cuda(key: str) -> None:
    with pretend_gpu(key, tensors="cpu"), pytest.raises(RuntimeError, match=r"CUDA is not available\n  why: .* ROCm"):
        detect_gpu()


@pytest.mark.parametrize("key", sorted(key for key, device in DEVICES.items() if not device.is_amd))
def test_a_pretended_gpu_is_detected_as_what_it_pretends_to_be(key: str) -> None:
    device = DEVICES[key]
    with pretend_gpu(key, tensors="cpu"):
        caps = detect_gpu()
    assert (device.name, device.compute_capability) == (caps.name, caps.compute_capability)
    assert (device.sms, device.shared_bytes_per_sm) == (caps.num_sms, caps.sram_per_sm)
    assert device.memory_bytes == pytest.approx(caps.total_memory_gb * 2**30)


def test_capabilities_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        H200.num_sms = 1  # type: ignore[misc] # that is the point


def test_the_architectures_are_named_after_their_compute_targets() -> None:
    expected = {
        "VOLTA": "sm_70",
        "TURING": "sm_75",
        "AMPERE": "sm_80",
        "ADA": "sm_89",
        "HOPPER": "sm_90",
        "BLACKWELL": "sm_100",
        "UNKNOWN": "unknown",
    }
    assert expected == {arch.name: arch.value for arch in GPUArch}


def test_the_info_is_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_gpu_info(H200)
    assert "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines()) == H200_TABLE


def test_the_info_of_device_0_is_the_default(plug_in: PlugIn, capsys: pytest.CaptureFixture[str]) -> None:
    plug_in(name="NVIDIA Zero [red]")
    print_gpu_info()
    assert "NVIDIA Zero [red]" in capsys.readouterr().out


@pytest.mark.gpu
def test_a_real_gpu_agrees_with_triton_about_its_shared_memory() -> None:
    from triton.runtime import driver  # noqa: PLC0415 - loads CUDA

    caps = detect_gpu()
    properties = driver.active.utils.get_device_properties(0)
    reserved = 1024 if caps.compute_capability >= (8, 0) else 0
    assert properties["max_shared_mem"] + reserved == caps.sram_per_sm
    assert properties["multiprocessor_count"] == caps.num_sms
    assert torch.cuda.get_device_capability(0) == caps.compute_capability
