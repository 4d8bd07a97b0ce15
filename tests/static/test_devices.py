from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from flopwatch.errors import UsageError
from flopwatch.static.catalogue import numbers
from flopwatch.static.device import Device, Peaks, named_dtypes
from flopwatch.static.devices import DEVICES, find_device

#: Operations of a multiprocessor in a cycle, by the type of its operands: of NVIDIA's and AMD's white papers.
AMPERE = {"float64": 128, "float32": 128, "tfloat32": 1024, "float16": 2048, "bfloat16": 2048, "int8": 4096}
HOPPER = {"tfloat32": 2048, "float16": 4096, "bfloat16": 4096, "float8": 8192, "int8": 8192}
ADA = {"tfloat32": 512, "float16": 1024, "bfloat16": 1024, "float8": 2048, "int8": 2048}
#: With sums of 32 bits, half of what sums of 16 would do; integers have no such half.
GEFORCE = {"tfloat32": 256, "float16": 512, "bfloat16": 512, "float8": 1024, "int8": 2048}
CDNA_3 = {"float64": 256, "float32": 256, "tfloat32": 1024, "float16": 2048, "bfloat16": 2048}
CDNA_4 = {"float64": 128, "float32": 256, "float16": 4096, "bfloat16": 4096, "float8": 8192, "int8": 8192}
#: FP64 with tensor cores, and the two units of a chip that is not made for it.
BOTH, TINY = {"float64": 256, "float32": 256}, {"float64": 4, "float32": 256}
#: Devices, the boost clock in MHz that their vendor or driver tells, and what runs at it.
CLOCKED: list[tuple[str, int, dict[str, int]]] = [
    ("a100", 1410, AMPERE),
    ("h100", 1830, HOPPER),
    ("h100", 1980, BOTH),
    ("h200", 1830, HOPPER),
    ("h200", 1980, BOTH),
    ("l40s", 2520, ADA | TINY),
    ("rtx5090", 2407, GEFORCE | TINY),
    ("mi300x", 2100, CDNA_3 | {"float8": 4096, "int8": 4096}),
    ("mi350x", 2200, CDNA_4),
]
KEYS = ("a100", "h100", "h200", "b200", "l40s", "rtx5090", "mi300x", "mi350x")


def test_every_device_is_found_by_its_key() -> None:
    assert [find_device(key) for key in KEYS] == list(DEVICES.values())


def test_an_unknown_device_lists_the_known() -> None:
    with pytest.raises(UsageError, match=", ".join(KEYS)):
        find_device("k80")


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_the_largest_block_and_its_reservation_fill_a_multiprocessor(device: Device) -> None:
    assert device.max_shared_bytes_per_block + device.reserved_shared_bytes_per_block == device.shared_bytes_per_sm


@pytest.mark.parametrize(
    ("key", "capability", "shared_kib", "warps", "blocks"),
    [
        # CUDA programming guide, compute capabilities, and arch_traits.h of NVIDIA/cccl.
        ("a100", (8, 0), 164, 64, 32),
        ("l40s", (8, 9), 100, 48, 24),
        ("h200", (9, 0), 228, 64, 32),
        ("b200", (10, 0), 228, 64, 32),
        ("rtx5090", (12, 0), 100, 48, 24),
        # AMD's table of GPU specifications, and LLVM.
        ("mi300x", (9, 4), 64, 32, 32),
        ("mi350x", (9, 5), 160, 32, 32),
    ],
)
def test_the_limits_of_a_multiprocessor_are_the_vendors(
    key: str, capability: tuple[int, int], shared_kib: int, warps: int, blocks: int
) -> None:
    device = find_device(key)
    assert device.compute_capability == capability
    assert device.shared_bytes_per_sm == shared_kib * 1024
    assert (device.max_warps_per_sm, device.max_blocks_per_sm) == (warps, blocks)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_fewer_bits_are_never_slower(device: Device) -> None:
    peaks = device.peaks
    assert peaks.float16 == peaks.bfloat16
    narrowing = [peaks.float64, peaks.float32, peaks.tfloat32, peaks.float16, peaks.float8]
    known = [peak for peak in narrowing if peak is not None]
    assert known == sorted(known)


def test_float8_is_not_held_against_the_peak_of_16_bits() -> None:
    sixteen, eight = (("4096", dtype, "flopwatch") for dtype in ("float16", "float8_e4m3fn"))
    for key in ("h200", "b200", "l40s", "rtx5090", "mi300x", "mi350x"):
        device = find_device(key)
        assert device.least_seconds(1e15, 1.0, eight) == pytest.approx(
            device.least_seconds(1e15, 1.0, sixteen) / 2, 0.02
        )


def test_the_fastest_type_that_the_parameters_name_counts() -> None:
    device = find_device("h200")
    assert device.peak_tflops(("float16", "int8", "flopwatch")) == device.peaks.int8


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_float64_is_held_against_its_own_peak_everywhere(device: Device) -> None:
    assert device.peak_tflops(("float64",)) == device.peaks.float64 <= device.peaks.float16 / 8
    assert device.least_seconds(1e15, 1.0, ("float64",)) >= 8 * device.least_seconds(1e15, 1.0)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_every_type_that_parameters_can_name_has_a_peak(device: Device) -> None:
    names = [name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)]
    named = named_dtypes(dict.fromkeys(names))
    assert {"float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "int8"} < set(named)
    assert all(device.peaks.of(dtype) == device.peak_tflops((dtype,)) for dtype in named)


def test_a_type_that_no_chip_is_told_of_has_no_peak() -> None:
    assert find_device("h200").peaks.of("complex64") is None
    assert find_device("mi350x").peaks.of("tfloat32") is None


def test_float32_is_held_against_what_multiplies_it_fastest() -> None:
    slow = Peaks(float64=1.0, float32=1.0, float16=4.0, bfloat16=4.0, int8=4.0)
    assert replace(slow, tfloat32=2.0).of("float32") == 2.0
    assert slow.of("float32") == 1.0


@pytest.mark.parametrize(("key", "mhz", "operations"), CLOCKED)
def test_peaks_are_what_multiprocessors_do_a_cycle(key: str, mhz: int, operations: dict[str, int]) -> None:
    device = find_device(key)
    for dtype, a_cycle in operations.items():
        tflops = device.sms * a_cycle * mhz * 1e-6
        assert getattr(device.peaks, dtype) == pytest.approx(tflops, rel=0.01), dtype


def test_every_peak_is_checked_against_a_clock_but_of_the_b200_for_which_nvidia_tells_none() -> None:
    checked = {(key, dtype) for key, _, operations in CLOCKED for dtype in operations}
    rates = {rate.name for rate in fields(Peaks)}
    known = {(key, name) for key, device in DEVICES.items() for name in numbers(device) if name in rates}
    assert known - checked == {("b200", rate) for rate in rates}


def test_a_b200_doubles_with_every_halving_of_the_operands_at_clocks_near_a_hoppers() -> None:
    device = find_device("b200")
    peaks = device.peaks
    assert peaks.float8 == peaks.int8 == 2 * peaks.float16
    assert peaks.tfloat32 == pytest.approx(peaks.float16 / 2, rel=0.025)  # NVIDIA rounds 2250 with sparsity to 2200
    assert peaks.float64 == pytest.approx(peaks.float32 / 2, rel=0.02)  # and 37.5 to 37
    tensor_mhz = peaks.float16 / (device.sms * 2 * HOPPER["float16"]) * 1e6
    assert tensor_mhz == pytest.approx(1830, rel=0.02)
    assert peaks.float32 / (device.sms * BOTH["float32"]) * 1e6 == pytest.approx(1980, rel=0.02)


@pytest.mark.parametrize(
    ("key", "bits", "gigabits", "tolerance"),
    [
        ("a100", 5120, 2 * 1.593, 0.005),
        ("h100", 5120, 2 * 2.619, 0.005),
        ("h200", 6144, 2 * 3.201, 0.025),  # 4917 GB/s, of which NVIDIA promises 4.8 TB/s
        ("b200", 7680, 2 * 3.996, 0.005),
        ("l40s", 384, 18.0, 0.005),
        ("rtx5090", 512, 28.0, 0.005),
        ("mi300x", 8192, 5.2, 0.005),
        ("mi350x", 8192, 8.0, 0.025),  # 8192 GB/s, of which AMD promises 8 TB/s
    ],
)
def test_the_bandwidth_is_what_the_pins_carry(key: str, bits: int, gigabits: float, tolerance: float) -> None:
    assert find_device(key).memory_gbps == pytest.approx(bits * gigabits / 8, rel=tolerance)


@pytest.mark.parametrize(
    ("key", "mib"),
    # As PyTorch's get_device_properties tells them; an L40S lends a sixteenth to ECC.
    [("h100", 81090), ("h200", 143156), ("b200", 182642), ("rtx5090", 32109), ("mi300x", 196592), ("a100", 81920)],
)
def test_the_memory_is_what_the_driver_tells_and_a_little_that_it_keeps(key: str, mib: int) -> None:
    memory_mib = find_device(key).memory_bytes / 2**20
    assert mib <= memory_mib <= 1.025 * mib
