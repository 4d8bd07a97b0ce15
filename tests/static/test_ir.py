from __future__ import annotations

import pytest

from flopwatch.errors import UnsupportedTritonError, UsageError
from flopwatch.static.devices import find_device
from flopwatch.static.ir import levels_of, list_machine_code


def test_levels_come_in_the_order_of_compiling_and_all_where_none_is_asked_for() -> None:
    device = find_device("h200")
    assert levels_of(device) == ("ttir", "ttgir", "llir", "ptx", "sass")
    assert levels_of(device, ("sass", "ttir", "sass")) == ("ttir", "sass")


def test_a_level_that_the_device_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"no level is called 'amdgcn' on h200(.|\n)*ttir, ttgir, llir, ptx, sass"):
        levels_of(find_device("h200"), ("ttir", "amdgcn"))


def test_what_is_no_binary_is_not_listed() -> None:
    with pytest.raises(UnsupportedTritonError, match="nvdisasm does not list the machine code"):
        list_machine_code(b"no ELF")
