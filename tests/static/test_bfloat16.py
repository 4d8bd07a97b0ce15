from __future__ import annotations

import numpy as np
import torch

from flopwatch.static.bfloat16 import from_float32, to_float32


def test_every_bfloat16_survives_the_way_there_and_back() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    values = to_float32(bits)
    finite = ~np.isnan(values)
    assert np.array_equal(from_float32(values)[finite], bits[finite])


def test_rounding_is_torchs_own() -> None:
    # Every pattern of the upper 17 bits with the bits that decide: none, one, just below half, half, above, all.
    upper = np.arange(2**16, dtype=np.uint32) << np.uint32(16)
    values = np.concatenate([upper | np.uint32(low) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(np.float32)
    expected = torch.from_numpy(values).bfloat16()
    actual = torch.from_numpy(from_float32(values).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual[~actual.isnan()], expected[~expected.isnan()])


def test_shapes_are_kept() -> None:
    for shape in ((), (3,), (2, 3)):
        assert from_float32(np.zeros(shape, dtype=np.float32)).shape == shape
        assert to_float32(np.zeros(shape, dtype=np.uint16)).shape == shape
