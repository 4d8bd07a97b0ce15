"""The GPU detection of `flopwatch.utils`, under a shorter name."""

from flopwatch.utils.gpu import GPUArch, GPUCapabilities, detect_gpu, print_gpu_info

__all__ = ["GPUArch", "GPUCapabilities", "detect_gpu", "print_gpu_info"]
