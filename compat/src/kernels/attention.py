"""The attention of `flopwatch.kernels`, under a shorter name."""

from flopwatch.kernels import flash_attention

__all__ = ["flash_attention"]
