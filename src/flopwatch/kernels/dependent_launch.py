"""Programmatic dependent launch: programs are there before the launch in front of theirs has ended.

They make their barriers meanwhile, and wait before they touch memory. Hopper has it, and later GPUs (CUDA C++
Programming Guide, "Programmatic Dependent Launch and Synchronization"). What it saves is what a kernel's start takes,
about 1 us: much of a product that takes 5 (docs/decisions/0006-dependent-launch.md).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
# Triton types what is compiled, and ships no types itself.

from __future__ import annotations

from typing import Any

import triton.language as tl  # noqa: TC002 - Triton looks for it when it compiles
from triton.language.extra import cuda


def come_after(DEPENDENT: tl.constexpr):  # compiled by Triton and by Gluon, in the kernels' modules
    """Wait until the launch before has ended and its memory is written; then let the next one's programs come.

    They come only then, so that those of no third launch take the places of the second one's.
    """
    if DEPENDENT:
        cuda.gdc_wait()
        cuda.gdc_launch_dependents()


def constants(*, dependent: bool) -> dict[str, Any]:
    """Return what a kernel with the constant DEPENDENT is launched with, and Triton's option.

    >>> constants(dependent=True)
    {'DEPENDENT': True, 'launch_pdl': True}
    """
    return {"DEPENDENT": True, "launch_pdl": True} if dependent else {"DEPENDENT": False}
