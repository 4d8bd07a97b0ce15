from __future__ import annotations

import pytest

from flopwatch.errors import UsageError
from flopwatch.static.devices import DEVICES, find_device


def test_every_device_is_found_by_its_key() -> None:
    assert [find_device(key) for key in ("a100", "h100", "h200", "b200")] == list(DEVICES.values())


def test_an_unknown_device_lists_the_known() -> None:
    with pytest.raises(UsageError, match="a100, h100, h200, b200"):
        find_device("k80")


def test_the_largest_block_and_its_reservation_fill_a_multiprocessor() -> None:
    for device in DEVICES.values():
        assert device.max_shared_bytes_per_block + device.reserved_shared_bytes_per_block == device.shared_bytes_per_sm
