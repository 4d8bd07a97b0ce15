"""How operands lie in memory, as far as the fastest configuration of a kernel depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopwatch.kernels.scratch import ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


def layout(pointer: int, strides: tuple[int, int], element_bytes: int) -> str:
    """Say along what a matrix is contiguous, "odd" where it cannot be read 16 bytes at a time.

    >>> layout(4096, (1000, 1), 2), layout(4098, (1, 1000), 2), layout(4096, (2016, 2), 2), layout(4096, (1000, 1), 1)
    ('rows', 'odd columns', 'elements', 'odd rows')
    """
    if 1 not in strides:
        return "elements"
    along = "rows" if strides[1] == 1 else "columns"
    is_readable = pointer % ALIGNMENT == 0 and max(strides) * element_bytes % ALIGNMENT == 0
    return along if is_readable else f"odd {along}"


def product_layouts(args: Mapping[str, Any]) -> str:
    """Say how the operands of a product lie, by the arguments of its kernel; nothing where they lie as usual.

    Usual are contiguous rows, and what is read like them: rows that start at multiples of 16 bytes if those of a
    contiguous matrix of that shape do.

    Args:
        args: at least a_ptr, b_ptr, N, K and the strides of both.

    >>> import torch
    >>> square = torch.empty(64, 64)
    >>> args = {"a_ptr": square, "b_ptr": square, "N": 64, "K": 64, "stride_am": 64, "stride_ak": 1}
    >>> product_layouts({**args, "stride_bk": 1, "stride_bn": 64})
    'A by rows and B by columns'
    >>> product_layouts({**args, "stride_bk": 64, "stride_bn": 1})
    ''
    """
    element_bytes = args["a_ptr"].element_size()
    a = layout(args["a_ptr"].data_ptr(), (args["stride_am"], args["stride_ak"]), element_bytes)
    b = layout(args["b_ptr"].data_ptr(), (args["stride_bk"], args["stride_bn"]), element_bytes)
    usual = tuple(layout(0, (columns, 1), element_bytes) for columns in (args["K"], args["N"]))
    return "" if (a, b) == usual else f"A by {a} and B by {b}"


def heads_and_layouts(args: Mapping[str, Any]) -> str:
    """Say how many heads attention is called for, to a power of two, and whether whole rows of operands can be read.

    Few heads leave multiprocessors idle in a configuration that is the fastest for more: 20 heads of 4096 positions
    take 5 % longer in that of 32 (H200, 2026-11-22; both are in ``evidence/h200/tunings-2026-11-22.json``).

    Args:
        args: at least q_ptr, k_ptr and v_ptr, of four dimensions.

    >>> import torch
    >>> q = torch.empty(2, 10, 64, 32)
    >>> heads_and_layouts({"q_ptr": q, "k_ptr": q, "v_ptr": q})
    '16+ heads'
    >>> heads_and_layouts({"q_ptr": q, "k_ptr": q, "v_ptr": torch.empty(2, 10, 32, 64).mT})
    '16+ heads not by rows'
    """
    q, k, v = (args[name] for name in ("q_ptr", "k_ptr", "v_ptr"))
    heads = q.shape[0] * q.shape[1]
    text = f"{1 << heads.bit_length() - 1}+ heads"
    return text if all(map(_is_by_rows, (q, k, v))) else f"{text} not by rows"


def _is_by_rows(tensor: torch.Tensor) -> bool:
    """Tell whether Triton can read rows 16 bytes at a time."""
    *others, last = tensor.stride()
    return last == 1 and not any(offset % ALIGNMENT for offset in (tensor.data_ptr(), *others))
