"""What the GPU can do, how fast a kernel is on it (`flopwatch.utils.benchmark`), and whether its numbers are right."""

from flopwatch.utils.gpu import GPUArch, GPUCapabilities, detect_gpu, print_gpu_info
from flopwatch.utils.validation import validate_attention, validate_matmul

__all__ = [
    "GPUArch",
    "GPUCapabilities",
    "detect_gpu",
    "print_gpu_info",
    "validate_attention",
    "validate_matmul",
]
