"""The utilities of `flopwatch.utils`, under a shorter name."""

from flopwatch.utils import GPUArch, GPUCapabilities, detect_gpu, print_gpu_info, validate_attention, validate_matmul

__all__ = [
    "GPUArch",
    "GPUCapabilities",
    "detect_gpu",
    "print_gpu_info",
    "validate_attention",
    "validate_matmul",
]
