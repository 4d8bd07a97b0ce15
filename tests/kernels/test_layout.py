from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from flopwatch.kernels import flash_attention, triton_matmul, triton_matmul_fp8
from flopwatch.kernels.layout import heads_and_layouts, layout, product_layouts
from flopwatch.kernels.tuner import KIND, Tuner
from flopwatch.static import pretend_gpu

if TYPE_CHECKING:
    import triton

ROWS = torch.empty(80, 80)
ODD = torch.empty(80, 81)[:, :80]


def product(a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    """Name the arguments of a product's kernel."""
    (M, K), N = a.shape, b.shape[1]
    strides = dict(zip(("stride_am", "stride_ak", "stride_bk", "stride_bn"), a.stride() + b.stride(), strict=True))
    return {"a_ptr": a, "b_ptr": b, "M": M, "N": N, "K": K, **strides}


@pytest.mark.parametrize(
    ("pointer", "strides", "expected"),
    [
        (4096, (80, 1), "rows"),
        (4096, (1, 80), "columns"),
        (4096, (1, 1), "odd rows"),
        (4096, (1, 88), "columns"),
        (4096, (1, 84), "odd columns"),
        (4096, (1, 81), "odd columns"),
        (4098, (80, 1), "odd rows"),
        (4096, (160, 2), "elements"),
    ],
)
def test_a_matrix_is_what_triton_can_read_of_it_at_a_time(
    pointer: int, strides: tuple[int, int], expected: str
) -> None:
    assert layout(pointer, strides, 2) == expected


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ROWS, ROWS),
        (torch.empty(80, 160)[:, :80], torch.empty(80, 96)[:, 16:]),
        (torch.empty(7, 81), torch.empty(81, 83)),
        (torch.empty(80, 1), torch.empty(1, 80)),
    ],
    ids=["contiguous", "parts that start as rows of their own would", "odd sizes", "one deep"],
)
def test_nothing_is_said_of_rows_that_lie_as_their_length_has_it(a: torch.Tensor, b: torch.Tensor) -> None:
    assert product_layouts(product(a, b)) == ""


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (ROWS.T, ROWS, "A by columns and B by rows"),
        (ROWS, ROWS.T, "A by rows and B by columns"),
        (ROWS.T, ROWS.T, "A by columns and B by columns"),
        (ODD, ROWS, "A by odd rows and B by rows"),
        (ROWS, ODD.T, "A by rows and B by odd columns"),
        (ROWS, torch.empty(80, 160)[:, ::2], "A by rows and B by elements"),
        (torch.empty(80, 96)[:, :81], torch.empty(81, 80), "A by rows and B by rows"),
    ],
    ids=["A turned", "B turned", "both turned", "A odd", "B turned and odd", "every other", "aligned though 81 deep"],
)
def test_products_of_operands_that_lie_otherwise_are_told_apart(
    a: torch.Tensor, b: torch.Tensor, expected: str
) -> None:
    assert product_layouts(product(a, b)) == expected


@pytest.mark.parametrize(
    ("batch", "heads", "expected"),
    [(1, 1, "1+ heads"), (1, 31, "16+ heads"), (4, 8, "32+ heads"), (7, 9, "32+ heads"), (256, 4, "1024+ heads")],
)
def test_attention_is_told_apart_by_the_power_of_two_of_its_heads(batch: int, heads: int, expected: str) -> None:
    q = torch.empty(batch, heads, 3, 16)
    assert heads_and_layouts({"q_ptr": q, "k_ptr": q, "v_ptr": q}) == expected


@pytest.mark.parametrize("name", ["q_ptr", "k_ptr", "v_ptr"])
@pytest.mark.parametrize(
    "other",
    [
        torch.empty(2, 4, 16, 48).mT,
        torch.empty(2, 4, 48, 17)[..., :16],
        torch.empty(2, 4, 48, 32)[..., 1:17],
        torch.empty(2, 4 * 48 * 16 + 1)[:, :-1].view(2, 4, 48, 16),
    ],
    ids=["by columns", "odd rows", "an odd start", "an odd batch"],
)
def test_attention_of_operands_that_are_not_read_by_rows_is_told_apart(name: str, other: torch.Tensor) -> None:
    args = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), torch.empty(2, 4, 48, 16))
    assert heads_and_layouts({**args, name: other}) == "8+ heads not by rows"


def test_sequences_of_interleaved_heads_are_read_by_rows() -> None:
    q = torch.empty(2, 48, 4, 16).transpose(1, 2)
    assert heads_and_layouts({"q_ptr": q, "k_ptr": q, "v_ptr": q}) == "8+ heads"


def test_the_tuner_of_each_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def note(tuner: Tuner, _constants: dict[str, Any]) -> list[triton.Config]:
        assert tuner.nargs is not None
        told.append(tuner.nargs.get(KIND, ""))
        last: list[triton.Config] = tuner.configs[-1:]
        return last

    monkeypatch.setattr(Tuner, "prune_configs", note)
    with pretend_gpu("h200", tensors="cpu"):
        rows, q = (torch.zeros(shape, device="cuda", dtype=torch.float16) for shape in ((64, 64), (2, 4, 64, 16)))
        triton_matmul(rows, rows)
        triton_matmul(rows, rows.T)
        e4m3, scale = rows.to(torch.float8_e4m3fn), torch.ones(1, device="cuda")
        triton_matmul_fp8(e4m3, e4m3.T, scale, scale)
        flash_attention(q, q, q)
    assert told == ["", "A by rows and B by columns", "A by rows and B by columns", "8+ heads"]
