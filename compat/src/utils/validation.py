"""The validation of `flopwatch.utils`, under a shorter name."""

from flopwatch.utils.validation import validate_attention, validate_matmul

__all__ = ["validate_attention", "validate_matmul"]
