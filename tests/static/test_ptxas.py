from __future__ import annotations

import pytest

from flopwatch.errors import UnsupportedTritonError
from flopwatch.static.ptxas import ptxas_facts


def test_functions_that_were_not_inlined_count() -> None:
    log = """
ptxas info    : Function properties for helper
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Compiling entry function 'kernel' for 'sm_90a'
ptxas info    : Function properties for kernel
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8 bytes cumulative stack size
"""
    assert ptxas_facts(log) == {"registers": 255, "stack_bytes": 16, "spill_store_bytes": 12, "spill_load_bytes": 16}


@pytest.mark.parametrize("log", ["", "ptxas info    : Used 20 registers", "something else altogether"])
def test_a_log_without_the_facts_is_an_error_and_not_zero(log: str) -> None:
    with pytest.raises(UnsupportedTritonError):
        ptxas_facts(log)
