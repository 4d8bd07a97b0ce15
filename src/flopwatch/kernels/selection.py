"""Which kernel and which configuration fit the GPU at hand, decided by its capabilities and never by its name.

One matmul and one attention kernel serve every architecture; what differs is the configuration. On Hopper a call
without one may take another kernel than these (`flopwatch.kernels.routes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flopwatch.kernels.attention import flash_attention
from flopwatch.kernels.configs import AttentionConfig, MatmulConfig, attention_config_for, matmul_config_for
from flopwatch.kernels.matmul import triton_matmul
from flopwatch.utils.gpu import GPUArch, GPUCapabilities, detect_gpu

if TYPE_CHECKING:
    from collections.abc import Callable


class AdaptiveKernelSelector:
    """Select kernels and configurations for one GPU.

    Args:
        capabilities: of the GPU; those of the current device if None. Without a GPU every answer is that for
            `GPUArch.UNKNOWN`.
    """

    def __init__(self, capabilities: GPUCapabilities | None = None) -> None:
        self.capabilities = _current_gpu() if capabilities is None else capabilities

    @property
    def arch(self) -> GPUArch:
        """The architecture for which this selects."""
        return GPUArch.UNKNOWN if self.capabilities is None else self.capabilities.arch

    def select_matmul_kernel(self) -> Callable[..., torch.Tensor]:
        """Return the matmul for this GPU: a function of ``(a, b)``, as `triton_matmul`."""
        return triton_matmul

    def select_attention_kernel(self) -> Callable[..., torch.Tensor]:
        """Return the attention for this GPU: a function of ``(q, k, v)``, as `flash_attention`."""
        return flash_attention

    def get_matmul_config(self) -> MatmulConfig:
        """Return the matmul configuration for this GPU."""
        return matmul_config_for(self.arch)

    def get_attention_config(self, head_dim: int = 64) -> AttentionConfig:
        """Return the attention configuration for this GPU and a head dimension.

        Raises:
            ValueError: the kernel is not configured for that head dimension.
        """
        return attention_config_for(self.arch, head_dim)


def get_optimal_matmul() -> Callable[..., torch.Tensor]:
    """Return the matmul for the current GPU: a function of ``(a, b)``, as `triton_matmul`."""
    return AdaptiveKernelSelector().select_matmul_kernel()


def get_optimal_attention() -> Callable[..., torch.Tensor]:
    """Return the attention for the current GPU: a function of ``(q, k, v)``, as `flash_attention`."""
    return AdaptiveKernelSelector().select_attention_kernel()


def get_matmul_config(arch: GPUArch | None = None) -> MatmulConfig:
    """Return the matmul configuration of an architecture, the current GPU's if None.

    Without a GPU it is that of `GPUArch.UNKNOWN`: untuned, but fit for any GPU from Ampere on.
    """
    return AdaptiveKernelSelector().get_matmul_config() if arch is None else matmul_config_for(arch)


def get_attention_config(arch: GPUArch | None = None, head_dim: int = 64) -> AttentionConfig:
    """Return the attention configuration of an architecture, the current GPU's if None.

    Without a GPU it is that of `GPUArch.UNKNOWN`: untuned, but fit for any GPU from Ampere on.

    Raises:
        ValueError: the kernel is not configured for that head dimension.
    """
    if arch is None:
        return AdaptiveKernelSelector().get_attention_config(head_dim)
    return attention_config_for(arch, head_dim)


def check_hopper_features() -> dict[str, bool | str | tuple[int, int]]:
    """Tell which of Hopper's features the current GPU has.

    Returns:
        ``tma_available``, ``fp8_available`` and ``wgmma_available`` (bool), ``arch`` (such as "sm_90") and
        ``compute_capability`` (major, minor). Without a GPU: False, "unknown" and (0, 0).
    """
    gpu = _current_gpu()
    return {
        "tma_available": gpu is not None and gpu.has_tma,
        "fp8_available": gpu is not None and gpu.has_fp8,
        "wgmma_available": gpu is not None and gpu.has_warpgroup_mma,
        "arch": GPUArch.UNKNOWN.value if gpu is None else gpu.arch.value,
        "compute_capability": (0, 0) if gpu is None else gpu.compute_capability,
    }


def supports_fp8() -> bool:
    """Tell whether the tensor cores of the current GPU take float8 operands; False without a GPU."""
    gpu = _current_gpu()
    return gpu is not None and gpu.has_fp8


def _current_gpu() -> GPUCapabilities | None:
    if not torch.cuda.is_available() or torch.version.hip is not None:
        return None
    return detect_gpu(torch.cuda.current_device())
