"""bfloat16 as the interpreter keeps it: the upper half of a float32, in a uint16."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What every NaN becomes that is rounded.
QUIET_NAN = np.uint16(0x7FC0)


def to_float32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen, exactly; any shape.

    >>> to_float32(np.array([0x3F80, 0xC000], dtype=np.uint16))
    array([ 1., -2.], dtype=float32)
    """
    return (np.ascontiguousarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(np.shape(bits))


def from_float32(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to the nearest, ties to even; any shape. Every NaN becomes the quiet one.

    >>> [hex(bits) for bits in from_float32(np.array([1.0, 1.00390625, 1.01171875], dtype=np.float32))]
    ['0x3f80', '0x3f80', '0x3f82']
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    # Half of the last place kept, less one, plus the last place itself: carries exactly when nearest-even rounds up.
    tie_to_even = np.uint64(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = ((bits + tie_to_even) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(values), QUIET_NAN, rounded).astype(np.uint16).reshape(np.shape(values))
