from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from flopwatch.static.catalogue import catalogue, numbers
from flopwatch.static.device import Device, Peaks
from flopwatch.static.devices import DEVICES

PAGE = Path(__file__).parents[2] / "docs" / "devices.md"


def chapter(key: str) -> str:
    return catalogue().partition(f"\n## {key}\n")[2].partition("\n## ")[0]


def test_the_page_of_the_documentation_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == catalogue(), "nox -s docs writes it anew"


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_every_number_of_a_device_is_on_the_page(device: Device) -> None:
    known = {field.name for owner in (device, device.peaks) for field in fields(owner)}
    told = {"name", "key", "backend", "arch", "compute_capability", "peaks"}
    assert numbers(replace(device, peaks=replace(device.peaks, tfloat32=1.0, float8=1.0))).keys() == known - told


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_a_number_leads_to_the_source_that_has_it(device: Device) -> None:
    text = chapter(device.key)
    (place,) = re.findall(r"^\| bandwidth of the memory \| .* GB/s \| (\d) \|$", text, re.MULTILINE)
    (url,) = re.findall(rf"^{place}\. \[.*\]\((\S+)\)", text, re.MULTILINE)
    assert url == device.source_of("memory_gbps").url


def test_a_type_that_a_chip_lacks_has_no_number() -> None:
    assert "| FP8 | none |  |" in chapter("a100")
    assert "| TF32 | none | 5 |" in chapter("mi350x")
    assert sum(line.startswith("| ") for line in chapter("a100").splitlines()) == 1 + 11 + len(fields(Peaks))
