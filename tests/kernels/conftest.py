"""Fresh random inputs for the kernels' tests."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Normal = Callable[..., torch.Tensor]


@pytest.fixture
def normal(cuda: str) -> Normal:
    """Draw normal numbers on the GPU from a seed that differs in every run; pytest shows it where a test fails."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - captured, and shown with a failure
    generator = torch.Generator(device=cuda).manual_seed(seed)

    def draw(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        return torch.randn(shape, device=cuda, generator=generator).to(dtype)

    return draw
