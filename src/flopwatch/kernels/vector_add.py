"""Vector addition: the smallest complete kernel, and its variant that shows Triton's debugging operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from flopwatch.kernels.launch import Launched, Launches, key_of
from flopwatch.kernels.operands import check_dtypes, check_on_one_gpu

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

SUPPORTED_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def block_size_for(n_elements: int) -> int:
    """Return how many elements one program adds: more for larger tensors, which have programs to spare.

    A common rule of Triton tutorials (128, 256, 512, 1024 with steps at 1024, 65536 and 262144), not tuned here: from
    512 on the addition is bound by memory bandwidth whatever the block.

    >>> [block_size_for(n) for n in (1023, 1024, 65536, 262144)]
    [128, 256, 512, 1024]
    """
    for limit, block_size in ((1024, 128), (65536, 256), (262144, 512)):
        if n_elements < limit:
            return block_size
    return 1024


_HEURISTICS = {"BLOCK_SIZE": lambda args: block_size_for(args["n_elements"])}


@triton.heuristics(_HEURISTICS)  # type: ignore[untyped-decorator] # Triton ships no types
@triton.jit  # type: ignore[untyped-decorator] # Triton ships no types
def vector_add_kernel(  # type: ignore[no-untyped-def] # Triton types the arguments
    x_ptr,  # (n_elements,)
    y_ptr,  # (n_elements,)
    out_ptr,  # (n_elements,)
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """Add two vectors.

    Formula: ``out[i] = x[i] + y[i]``.

    =========  =============  ==========  ==============
    tensor     shape          strides     dtype
    =========  =============  ==========  ==============
    x, y, out  (n_elements,)  contiguous  any one float
    =========  =============  ==========  ==============

    One program adds BLOCK_SIZE consecutive elements.

    Numerics and limits: the sum is rounded once to the dtype. Offsets are 64-bit; the number of programs is below
    2**31.
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.heuristics(_HEURISTICS)  # type: ignore[untyped-decorator] # Triton ships no types
@triton.jit(debug=True)  # type: ignore[untyped-decorator] # Triton ships no types
def vector_add_debug_kernel(  # type: ignore[no-untyped-def] # Triton types the arguments
    x_ptr,  # (n_elements,)
    y_ptr,  # (n_elements,)
    out_ptr,  # (n_elements,)
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    """Add two vectors and tell about it.

    Formula, shapes and layouts: as `vector_add_kernel`.

    One program adds BLOCK_SIZE consecutive elements. While compiling, the block size is printed and asserted to be a
    multiple of a warp. While running, program 1 prints its first offset, and every program asserts that its sums are
    numbers.

    Numerics and limits: as `vector_add_kernel`. It is compiled with ``debug=True``: without that (or TRITON_DEBUG=1)
    ``device_assert`` is left out. A failing assertion on a GPU ends the process's CUDA context.
    """
    tl.static_print("vector_add_debug: BLOCK_SIZE =", BLOCK_SIZE)
    tl.static_assert(BLOCK_SIZE % 32 == 0, "a block must fill whole warps")
    pid = tl.program_id(0)
    start = pid.to(tl.int64) * BLOCK_SIZE
    if pid == 1:
        tl.device_print("first offset of program 1: ", start)
    offsets = start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    out = x + y
    tl.device_assert(out == out, "a sum is not a number", mask=mask)  # noqa: PLR0124 - only NaN differs from itself
    tl.store(out_ptr + offsets, out, mask=mask)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add two tensors of the same shape; no gradient.

    Args:
        x: any shape, float16, bfloat16, float32 or float64, on a CUDA device. A strided tensor is copied first.
        y: the same shape, dtype and device.

    Returns:
        A contiguous tensor of that shape and dtype.

    Raises:
        ValueError: a tensor is not on CUDA, or shapes or devices differ.
        TypeError: a dtype is not supported, or the dtypes differ.
    """
    if torch.compiler.is_compiling():
        added: torch.Tensor = torch.ops.flopwatch.vector_add.default(x, y)
        return added
    return _eager(x, y)


def _eager(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    key, addresses = key_of(x, y)
    added = _launches.again(key, addresses)
    if added is not None:
        return added
    return _add(vector_add_kernel, x, y, key)


#: One node of a graph of `torch.compile`, which would trace through to what only an eager call may do.
_operator = torch.library.custom_op(
    "flopwatch::vector_add", _eager, mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor"
)
_launches = Launches()


@_operator.register_fake
def _vector_add_of_fakes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    _check(x, y)
    return torch.empty(x.shape, device=x.device, dtype=x.dtype)


def vector_add_debug(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add two tensors like `vector_add`, with printing and assertions inside the kernel.

    Shows ``static_print``, ``static_assert``, ``device_print`` and ``device_assert`` at work. It is for learning and
    for looking, not for speed.

    Args:
        x: as for `vector_add`; its sum with `y` holds no NaN.
        y: likewise.

    Returns:
        As `vector_add`.

    Raises:
        ValueError: as `vector_add`.
        TypeError: as `vector_add`.
        RuntimeError: a sum is NaN. The GPU reports it at the next synchronisation, and the process cannot use it any
            more.
    """
    return _add(vector_add_debug_kernel, x, y)


def _add(  # type: ignore[no-untyped-def] # untyped Triton
    kernel, x: torch.Tensor, y: torch.Tensor, key: tuple[Hashable, ...] | None = None
) -> torch.Tensor:
    _check(x, y)
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_elements = out.numel()
    if n_elements:
        grid: tuple[int, ...] = ()

        def noted_grid(meta: Mapping[str, int]) -> tuple[int, ...]:
            nonlocal grid
            grid = (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
            return grid

        with torch.cuda.device(x.device):
            compiled = kernel[noted_grid](x.contiguous(), y.contiguous(), out, n_elements)
            if x.is_contiguous() and y.is_contiguous():  # else what is launched reads copies
                _launches.keep(key, Launched(compiled=compiled, grid=grid, pointers=3, numbers=(n_elements,)), out)
    return out


def _check(x: torch.Tensor, y: torch.Tensor) -> None:
    check_on_one_gpu(x=x, y=y)
    check_dtypes(SUPPORTED_DTYPES, x=x, y=y)
    if x.shape != y.shape:
        raise ValueError(
            f"the shapes of x and y must match, got {tuple(x.shape)} and {tuple(y.shape)}\n"
            "  why: the kernel adds element by element and does not broadcast\n"
            "  do:  expand one of them: y.expand_as(x)"
        )
