from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flopwatch.kernels.reference import attention_reference, matmul_reference
from flopwatch.utils import validate_attention, validate_matmul
from flopwatch.utils.validation import compare

if TYPE_CHECKING:
    from collections.abc import Callable

    Kernel = Callable[..., torch.Tensor]

INVALID = (False, math.inf)
DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32], ids=["float16", "bfloat16", "float32"]
)
HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])

REPORT = """\
                   matmul 64x64x64 float16
┌───────────────────────────┬────────────────────────────────┐
│ verdict                   │ INVALID                        │
│ problem                   │ 1 of 4096 elements are not     │
│                           │ finite                         │
│ tolerance, rounding apart │ 0.001 + 0.001 * |reference|    │
│ reference                 │ float64 on the same inputs     │
└───────────────────────────┴────────────────────────────────┘
"""


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Accumulate in float32 and round once: what a good kernel does."""
    return (a.float() @ b.float()).to(a.dtype)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Softmax in float32, its weights rounded to the dtype of V: what a good kernel does."""
    scores = q.float() @ k.float().mT / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    total = weights.sum(-1, keepdim=True)
    return ((weights.to(v.dtype).float() @ v.float()) / total).to(v.dtype)


def check_matmul(fn: Kernel, size: int = 128, dtype: torch.dtype = torch.float16) -> tuple[bool, float]:
    return validate_matmul(fn, m=size, n=size, k=size, dtype=dtype, device="cpu")


def check_attention(fn: Kernel, dtype: torch.dtype = torch.float16, *, causal: bool = False) -> tuple[bool, float]:
    return validate_attention(fn, batch=1, heads=2, seq_len=512, head_dim=64, causal=causal, dtype=dtype, device="cpu")


def steps_up(tensor: torch.Tensor, steps: int) -> torch.Tensor:
    """Move every element that many units in the last place away from zero."""
    return (tensor.view(torch.int16) + steps).view(tensor.dtype)


@DTYPES
def test_one_rounding_of_a_float32_sum_is_valid_at_the_documented_size(dtype: torch.dtype) -> None:
    is_valid, max_diff = check_matmul(matmul, 1024, dtype)
    assert is_valid
    assert 0 < max_diff < 1


@DTYPES
@pytest.mark.parametrize("causal", [False, True])
def test_weights_rounded_to_the_dtype_of_v_are_valid_at_the_documented_length(
    dtype: torch.dtype, *, causal: bool
) -> None:
    is_valid, max_diff = check_attention(attention, dtype, causal=causal)
    assert is_valid
    assert 0 < max_diff < 0.02


def test_the_largest_difference_is_against_the_unrounded_reference() -> None:
    seen: list[float] = []

    def spy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append(float((matmul(a, b).double() - a.double() @ b.double()).abs().max()))
        return matmul(a, b)

    _, max_diff = check_matmul(spy)
    assert pytest.approx(seen[0]) == max_diff


@HALVES
@pytest.mark.parametrize("steps", [4, -4])
def test_one_element_four_units_in_the_last_place_off_is_invalid(dtype: torch.dtype, steps: int) -> None:
    def off(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = matmul(a, b)
        result[5:6, 7:8] = steps_up(matmul(a, b), steps)[5:6, 7:8]
        return result

    is_valid, max_diff = check_matmul(off, dtype=dtype)
    assert not is_valid
    assert math.isfinite(max_diff)


def test_bfloat16_one_unit_off_everywhere_is_invalid_though_a_tolerance_of_one_unit_would_let_it_pass() -> None:
    assert not check_matmul(lambda a, b: steps_up(matmul(a, b), 1), dtype=torch.bfloat16)[0]


@HALVES
def test_sums_kept_in_the_dtype_of_the_inputs_are_invalid(dtype: torch.dtype) -> None:
    def low_precision(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
        for start in range(0, a.shape[1], 16):
            total += matmul(a[:, start : start + 16], b[start : start + 16])
        return total

    assert not check_matmul(low_precision, dtype=dtype)[0]


@pytest.mark.parametrize(
    "fault",
    [
        lambda a, b: matmul(a, b).T,
        lambda a, b: matmul(b, a),
        lambda a, b: matmul(a[:, :-1], b[:-1]),
        lambda a, b: matmul(a, b) + 0.25,
        lambda a, b: torch.zeros_like(matmul(a, b)),
    ],
    ids=["transposed", "operands swapped", "last k left out", "a quarter added", "zeros"],
)
def test_a_wrong_product_is_invalid(fault: Kernel) -> None:
    is_valid, max_diff = check_matmul(fault)
    assert not is_valid
    assert 0.1 < max_diff < math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_is_invalid_with_an_infinite_difference(value: float) -> None:
    def not_finite(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = matmul(a, b)
        result[-1, -1] = value
        return result

    assert check_matmul(not_finite) == INVALID


@pytest.mark.parametrize(
    "fault",
    [
        lambda a, b: matmul(a, b)[:-1],
        lambda a, b: matmul(a, b)[None],
        lambda a, b: matmul(a, b).reshape(-1),
        lambda a, b: matmul(a, b).double(),
        lambda a, b: matmul(a, b).to(torch.bfloat16),
        lambda a, b: matmul(a, b).int(),
        lambda _a, _b: None,
    ],
    ids=["a row short", "a dimension more", "flat", "float64", "bfloat16", "integers", "nothing"],
)
def test_a_result_of_another_shape_or_dtype_is_invalid_with_an_infinite_difference(fault: Kernel) -> None:
    assert check_matmul(fault) == INVALID


def test_an_element_that_is_never_written_is_invalid() -> None:
    def forgetful(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
        result[:-1] = matmul(a, b)[:-1]
        return result

    assert check_matmul(forgetful) == INVALID


def test_a_kernel_that_overwrites_its_inputs_does_not_change_the_reference() -> None:
    def destructive(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return matmul(a.zero_(), b)

    assert not check_matmul(destructive)[0]


@pytest.mark.parametrize(
    ("dtype", "returned"),
    [(torch.float32, torch.float16), (torch.float16, torch.float32), (torch.bfloat16, torch.float32)],
    ids=["float32 lowered to float16", "float16 widened", "bfloat16 widened"],
)
def test_the_dtypes_that_the_bundled_products_return_are_valid(dtype: torch.dtype, returned: torch.dtype) -> None:
    assert check_matmul(lambda a, b: (a.float() @ b.float()).to(returned), dtype=dtype)[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
def test_an_attention_computed_and_returned_in_float16_is_valid(dtype: torch.dtype) -> None:
    def lowered(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
        return attention(q.half(), k.half(), v.half(), causal=causal)

    assert check_attention(lowered, dtype)[0]


@pytest.mark.parametrize(
    "fault",
    [
        lambda q, k, v, causal: attention(q, k[..., :-1, :], v[..., :-1, :], causal=causal),
        lambda q, k, v, causal: attention(q, k, v, causal=not causal),
        lambda q, k, v, causal: attention(q * 8, k, v, causal=causal),
        lambda q, k, v, causal: attention(k, q, v, causal=causal),
        lambda q, k, v, causal: attention(q, k, v.flip(1), causal=causal),
    ],
    ids=["last key left out", "other mask", "not scaled", "operands swapped", "heads swapped"],
)
def test_a_wrong_attention_is_invalid(fault: Kernel) -> None:
    is_valid, max_diff = check_attention(fault)
    assert not is_valid
    assert max_diff > 1e-3


def test_a_causal_mask_that_is_one_off_is_invalid() -> None:
    def one_off(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
        assert causal
        result = attention(q, k, v, causal=True)
        result[..., 1:, :] = attention(q[..., 1:, :], k[..., :-1, :], v[..., :-1, :], causal=True)
        return result

    assert not check_attention(one_off, causal=True)[0]


def test_an_attention_of_another_shape_is_invalid_with_an_infinite_difference() -> None:
    assert check_attention(lambda q, k, v, causal: attention(q, k, v, causal=causal).flatten(0, 1)) == INVALID


@given(
    st.floats(-1000, 1000),
    st.floats(-1, 1),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
)
def test_whatever_is_within_the_tolerance_is_valid_after_rounding(
    reference: float, share: float, dtype: torch.dtype
) -> None:
    within = reference + share * (1 - 1e-12) * (1e-3 + 1e-3 * abs(reference))
    agreement = compare(
        torch.tensor([within], dtype=torch.float64).to(dtype),
        torch.tensor([reference], dtype=torch.float64),
        {dtype},
        rtol=1e-3,
        atol=1e-3,
    )
    assert agreement.is_valid


@given(
    st.floats(1, 500),
    st.sampled_from([(torch.float16, 4, 2.0), (torch.bfloat16, 2, 0.5)]),
    st.sampled_from([1, -1]),
)
def test_a_few_units_in_the_last_place_are_never_within_the_tolerance(
    magnitude: float, case: tuple[torch.dtype, int, float], sign: int
) -> None:
    dtype, steps, smallest = case
    reference = magnitude * smallest
    exact = torch.tensor([reference], dtype=torch.float64)
    off = steps_up(exact.to(dtype), sign * steps)
    assert compare(off, exact, {dtype}, rtol=1e-3, atol=1e-3).wrong == 1


def test_the_inputs_are_the_same_each_time_and_are_float16_numbers_of_unit_variance() -> None:
    seen: list[torch.Tensor] = []

    def remember(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.extend((a, b))
        return matmul(a, b)

    check_matmul(remember, 256, torch.float32)
    check_matmul(remember, 256, torch.float32)
    a, b, a_again, b_again = seen
    assert torch.equal(a, a_again)
    assert torch.equal(b, b_again)
    assert torch.equal(a, a.half().float())
    assert not torch.equal(a, b)
    assert pytest.approx(1.0, abs=0.02) == float(a.var())


def test_the_references_are_those_beside_the_kernels() -> None:
    assert torch.float64 == matmul_reference(torch.ones(2, 3), torch.ones(3, 4)).dtype
    q = torch.ones(1, 1, 4, 8)
    assert torch.float64 == attention_reference(q, q, q, causal=True).dtype


@pytest.mark.parametrize("sizes", [(0, 4, 4), (4, 0, 4), (4, 4, 0)])
def test_an_empty_product_is_valid(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    assert validate_matmul(matmul, m, n, k, device="cpu") == (True, 0.0)


def test_the_sizes_are_rows_columns_and_the_length_of_the_sums() -> None:
    def remember(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        assert (tuple(a.shape), tuple(b.shape)) == ((3, 7), (7, 5))
        return matmul(a, b)

    assert validate_matmul(remember, 3, 5, 7, device="cpu")[0]


def test_a_tighter_tolerance_is_honoured() -> None:
    def slightly_off(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.float() @ b.float()) * (1 + 3e-4)

    assert validate_matmul(slightly_off, 64, 64, 64, device="cpu")[0]
    assert not validate_matmul(slightly_off, 64, 64, 64, rtol=1e-4, atol=1e-4, device="cpu")[0]


def test_verbose_prints_what_was_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def not_finite(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = matmul(a, b)
        result[0, 0] = math.nan
        return result

    monkeypatch.setenv("COLUMNS", "62")
    validate_matmul(not_finite, 64, 64, 64, device="cpu", verbose=True)
    assert "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines()) == REPORT


def test_verbose_counts_the_elements_outside_the_tolerance(capsys: pytest.CaptureFixture[str]) -> None:
    def off(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
        result = attention(q, k, v, causal=causal)
        result[0, 0, :3] += 1
        return result

    validate_attention(off, 1, 1, 16, 32, device="cpu", verbose=True)
    out = capsys.readouterr().out
    assert "attention 1x1x16x32 float16" in out
    assert "96 of 512 elements" in out


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    check_matmul(matmul)
    assert not capsys.readouterr().out


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.float8_e4m3fn])
def test_a_dtype_without_a_derived_tolerance_is_a_type_error(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"is not supported\n  why: .*\n  do: "):
        check_matmul(matmul, dtype=dtype)


def test_on_cuda_without_cuda_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="CUDA is not available"):
        validate_matmul(matmul, 16, 16, 16)
    with pytest.raises(RuntimeError, match="CUDA is not available"):
        validate_attention(attention, 1, 1, 16, 32)


@DTYPES
def test_the_bundled_matmul_is_valid_at_a_small_size(cuda: str, dtype: torch.dtype) -> None:
    from flopwatch.kernels import triton_matmul  # noqa: PLC0415 - imports Triton

    assert validate_matmul(triton_matmul, 64, 48, 80, dtype=dtype, device=cuda)[0]


@DTYPES
@pytest.mark.parametrize("causal", [False, True])
def test_the_bundled_attention_is_valid_at_a_small_size(cuda: str, dtype: torch.dtype, *, causal: bool) -> None:
    from flopwatch.kernels import flash_attention  # noqa: PLC0415 - imports Triton

    assert validate_attention(flash_attention, 1, 2, 80, 32, causal=causal, dtype=dtype, device=cuda)[0]


@pytest.mark.gpu
@DTYPES
def test_the_bundled_matmul_and_torch_are_valid_at_the_documented_size(dtype: torch.dtype) -> None:
    from flopwatch.kernels import triton_matmul, triton_matmul_fp32  # noqa: PLC0415 - imports Triton

    assert validate_matmul(triton_matmul, 1024, 1024, 1024, dtype=dtype)[0]
    assert validate_matmul(torch.matmul, 1024, 1024, 1024, dtype=dtype)[0]
    if dtype != torch.bfloat16:
        assert validate_matmul(triton_matmul_fp32, 1024, 1024, 1024, dtype=dtype)[0]


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("causal", [False, True])
def test_the_bundled_attention_and_torch_are_valid_at_the_documented_size(dtype: torch.dtype, *, causal: bool) -> None:
    from flopwatch.kernels import flash_attention  # noqa: PLC0415 - imports Triton

    def torch_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    assert validate_attention(flash_attention, 2, 8, 512, 64, causal=causal, dtype=dtype)[0]
    assert validate_attention(torch_attention, 2, 8, 512, 64, causal=causal, dtype=dtype)[0]
