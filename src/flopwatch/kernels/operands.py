"""What kernels ask of their tensors: one GPU, one dtype, shapes that fit. Messages say what, why and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch


def check_on_one_gpu(**tensors: torch.Tensor) -> None:
    """Check that all tensors are on the same CUDA device.

    Raises:
        ValueError: one is not on CUDA, or the devices differ.
    """
    for name, tensor in tensors.items():
        if not tensor.is_cuda:
            raise ValueError(
                f"{name} must be a CUDA tensor, got one on {tensor.device}\n"
                "  why: the kernel runs on the GPU\n"
                f'  do:  move it: {name}.to("cuda")'
            )
    if len({tensor.device for tensor in tensors.values()}) > 1:
        (first, tensor), *_ = tensors.items()
        raise ValueError(
            f"{_listed(tensors)} must be on the same device, got "
            f"{', '.join(str(tensor.device) for tensor in tensors.values())}\n"
            "  why: one launch reads the memory of one GPU\n"
            f"  do:  move them to {first}'s: .to({str(tensor.device)!r})"
        )


def check_dtypes(supported: Iterable[torch.dtype], **tensors: torch.Tensor) -> None:
    """Check that all tensors have the same, supported dtype.

    Raises:
        TypeError: one is not supported, or they differ.
    """
    supported = tuple(supported)
    for name, tensor in tensors.items():
        if tensor.dtype not in supported:
            raise TypeError(
                f"{name} has the unsupported dtype {tensor.dtype}\n"
                f"  why: the kernel takes {', '.join(map(str, supported))}\n"
                f"  do:  convert it: {name}.to({supported[0]})"
            )
    if len({tensor.dtype for tensor in tensors.values()}) > 1:
        (first, tensor), *_ = tensors.items()
        raise TypeError(
            f"the dtypes of {_listed(tensors)} must match, got "
            f"{', '.join(str(tensor.dtype) for tensor in tensors.values())}\n"
            "  why: the kernel is compiled for operands of one dtype\n"
            f"  do:  convert them to {first}'s: .to({tensor.dtype})"
        )


def check_factors(a: torch.Tensor, b: torch.Tensor) -> None:
    """Check that two matrices have a product.

    Raises:
        ValueError: one is not 2D, or their dimensions are incompatible.
    """
    for name, matrix in (("a", a), ("b", b)):
        if matrix.ndim != 2:  # noqa: PLR2004 - a matrix
            raise ValueError(
                f"{name} must be 2D, got {matrix.ndim}D of shape {tuple(matrix.shape)}\n"
                "  why: the kernel multiplies two matrices\n"
                "  do:  reshape it, or call once per matrix of a batch"
            )
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"incompatible dimensions: a is {tuple(a.shape)}, b is {tuple(b.shape)}\n"
            "  why: the columns of a are multiplied by the rows of b, one to one\n"
            "  do:  pass (M, K) and (K, N); transpose one of them if needed: b.T"
        )


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}"
