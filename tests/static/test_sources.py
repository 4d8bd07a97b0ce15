from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from flopwatch.static.catalogue import numbers
from flopwatch.static.devices import DEVICES
from flopwatch.static.sources import SOURCES, Check

if TYPE_CHECKING:
    from flopwatch.static.device import Device


def test_every_device_has_sources_and_no_other() -> None:
    assert list(DEVICES) == list(SOURCES)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_every_number_of_a_device_has_one_source(device: Device) -> None:
    from_where = Counter(number for source in device.sources for number in source.numbers)
    # A type that the chip lacks needs none, but may have the document that says so.
    lacking = {"tfloat32", "float8"} - numbers(device).keys()
    assert {number: count for number, count in from_where.items() if number not in lacking} == dict.fromkeys(
        numbers(device), 1
    )


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_every_source_can_be_opened_by_who_doubts_it(device: Device) -> None:
    for source in device.sources:
        assert re.fullmatch(r"https://[\w./-]+", source.url)
        assert source.title


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_what_no_document_says_is_explained(device: Device) -> None:
    assert [source.title for source in device.sources if source.check is not Check.READ and not source.says] == []


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_the_limits_of_a_multiprocessor_were_read_in_the_vendors_document(device: Device) -> None:
    for number in ("shared_bytes_per_sm", "registers_per_sm", "max_warps_per_sm", "max_blocks_per_sm"):
        assert device.source_of(number).check is Check.READ
