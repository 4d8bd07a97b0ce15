from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
import triton
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flopwatch.kernels import matmul_fp8, triton_matmul_fp8
from flopwatch.kernels.launch import Launches
from flopwatch.kernels.matmul_fp8 import FP8_AUTOTUNE, FP8_PROMOTED_AUTOTUNE
from flopwatch.kernels.matmul_fp8_kernel import matmul_fp8_kernel
from flopwatch.kernels.reference import matmul_reference
from flopwatch.kernels.scratch import is_aligned
from flopwatch.measure.numbers import difference
from flopwatch.model import KernelFacts, from_json
from flopwatch.poison import PoisonedAllocations
from flopwatch.static import pretend_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from flopwatch.kernels.configs import MatmulConfig

    Normal = Callable[..., torch.Tensor]
    Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

HAS_GPU = torch.cuda.is_available()
E4M3 = torch.float8_e4m3fn
SHAPES = ["64x64x64", "1x1x1", "1x300x70", "33x65x47", "16x48x512", "129x140x65"]
#: In units of the result's epsilon relative to the largest element. Rounding the result costs at most half of one. The
#: interpreter sums in float32; Hopper keeps 14 bits of the sum of a step, which is 2**-13 of it, or 2**10 of float32's.
CEILING_EPS = {
    torch.bfloat16: 1.0,
    torch.float16: 2.0 if HAS_GPU else 1.0,
    torch.float32: 2.0**13 if HAS_GPU else 8.0,
}
NAMES = ["a", "b", "scale_a", "scale_b"]
CONFIGS = tuple(dict.fromkeys(FP8_AUTOTUNE + FP8_PROMOTED_AUTOTUNE))


def reference(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    return matmul_reference(a, b) * scale_a.double().reshape(-1, 1) * scale_b.double().reshape(1, -1)


def error_eps(*operands: torch.Tensor, out_dtype: torch.dtype = torch.bfloat16, use_fast_accum: bool = False) -> float:
    """Multiply into poisoned memory; an element that is never written gives an infinite error."""
    a, b, scale_a, scale_b = operands
    with PoisonedAllocations():
        c = triton_matmul_fp8(a, b, scale_a, scale_b, out_dtype, use_fast_accum)
    assert c.dtype == out_dtype
    assert c.is_contiguous()
    error = difference(c, reference(*operands)).max_diff_eps
    return float("inf") if error is None else error


def operands(normal: Normal, shape: str, scales: str = "row") -> Operands:
    """A row-major, B column-major; scales near 1 that differ, or one for each matrix."""
    M, N, K = map(int, shape.split("x"))
    sizes = ((M, 1), (1, N)) if scales == "row" else ((), (1,))
    scale_a, scale_b = (normal(*size, dtype=torch.float32).abs() + 0.5 for size in sizes)
    return normal(M, K, dtype=E4M3), normal(N, K, dtype=E4M3).T, scale_a, scale_b


@pytest.mark.parametrize("scales", ["tensor", "row"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_as_exact_as_its_dtype(normal: Normal, shape: str, scales: str) -> None:
    assert error_eps(*operands(normal, shape, scales)) <= CEILING_EPS[torch.bfloat16]


@pytest.mark.parametrize("use_fast_accum", [False, True])
@pytest.mark.parametrize("out_dtype", CEILING_EPS, ids=str)
def test_a_product_is_returned_in_the_dtype_that_is_asked_for(
    normal: Normal, out_dtype: torch.dtype, use_fast_accum: bool
) -> None:
    error = error_eps(*operands(normal, "50x70x90"), out_dtype=out_dtype, use_fast_accum=use_fast_accum)

    assert error <= CEILING_EPS[out_dtype]


@pytest.mark.parametrize("shape", ["48x80x64", "64x16x272"])
@pytest.mark.parametrize("scales", ["tensor", "row"])
def test_a_product_is_that_of_torch(normal: Normal, shape: str, scales: str) -> None:
    a, b, scale_a, scale_b = operands(normal, shape, scales)

    theirs = torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)
    ours = triton_matmul_fp8(a, b, scale_a, scale_b)

    error = difference(ours, theirs.double()).max_diff_eps
    assert error is not None
    assert error <= 1.0


LAYOUTS: dict[str, Callable[[Normal, int, int], torch.Tensor]] = {
    "by rows": lambda normal, rows, columns: normal(rows, columns, dtype=E4M3),
    "by columns": lambda normal, rows, columns: normal(columns, rows, dtype=E4M3).T,
    "every other row": lambda normal, rows, columns: normal(2 * rows, columns, dtype=E4M3)[::2],
    "every other column": lambda normal, rows, columns: normal(rows, 2 * columns, dtype=E4M3)[:, ::2],
    "a corner": lambda normal, rows, columns: normal(rows + 5, columns + 7, dtype=E4M3)[3:-2, 5:-2],
    "a row, expanded": lambda normal, rows, columns: normal(1, columns, dtype=E4M3).expand(rows, columns),
    "a column, expanded": lambda normal, rows, columns: normal(rows, 1, dtype=E4M3).expand(rows, columns),
    "in rows of 64": lambda normal, rows, columns: normal(rows, 64 * (columns // 64 + 1), dtype=E4M3)[:, :columns],
}
SCALES: dict[str, Callable[[Normal, int], torch.Tensor]] = {
    "one": lambda normal, _count: normal(dtype=torch.float32),
    "one of two dimensions": lambda normal, _count: normal(1, 1, dtype=torch.float32),
    "a vector": lambda normal, count: normal(count, dtype=torch.float32),
    "every other element": lambda normal, count: normal(2 * count, dtype=torch.float32)[::2],
    "expanded": lambda normal, count: normal(dtype=torch.float32).expand(count),
}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(*[st.integers(1, 70)] * 3),
    layouts=st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 2),
    scales=st.tuples(*[st.sampled_from(sorted(SCALES))] * 2),
    out_dtype=st.sampled_from(list(CEILING_EPS)),
    use_fast_accum=st.booleans(),
)
def test_neither_shapes_nor_strides_matter(  # noqa: PLR0917 - what is drawn
    normal: Normal,
    shape: tuple[int, int, int],
    layouts: tuple[str, str],
    scales: tuple[str, str],
    out_dtype: torch.dtype,
    use_fast_accum: bool,
) -> None:
    M, N, K = shape
    a, b = LAYOUTS[layouts[0]](normal, M, K), LAYOUTS[layouts[1]](normal, K, N)
    scale_a, scale_b = SCALES[scales[0]](normal, M), SCALES[scales[1]](normal, N)

    error = error_eps(a, b, scale_a, scale_b, out_dtype=out_dtype, use_fast_accum=use_fast_accum)

    assert error <= CEILING_EPS[out_dtype]


def test_every_number_of_float8_is_read_as_it_is_and_nan_too(normal: Normal) -> None:
    bits = torch.zeros(256, 16, dtype=torch.uint8)
    bits[:, 0] = torch.arange(256)
    a = normal(256, 16, dtype=E4M3)
    a.copy_(bits.view(E4M3))
    one = normal(dtype=torch.float32).fill_(1.0)
    b = normal(16, 16, dtype=E4M3).fill_(1.0)

    c = triton_matmul_fp8(a, b, one, one, torch.float32)

    expected = bits[:, 0].view(E4M3).float()
    assert int(expected.isnan().sum()) == 2  # 0x7f and 0xff
    assert torch.equal(c.cpu()[:, 0].nan_to_num(nan=1e9), expected.nan_to_num(nan=1e9))


def test_nan_stays_in_its_row(normal: Normal) -> None:
    a, b, scale_a, scale_b = operands(normal, "40x33x48")
    a[7, 11] = float("nan")

    c = triton_matmul_fp8(a, b, scale_a, scale_b)

    assert c[7].isnan().all()
    assert int(c.isnan().sum()) == c.shape[1]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_configuration_that_may_win_is_right(normal: Normal, config: MatmulConfig) -> None:
    M, N, K = config.block_m + 3, config.block_n - 3, config.block_k + 16
    assert launch_error_eps(normal, (M, N, K), config.constants(), promote=config in FP8_PROMOTED_AUTOTUNE) <= 1.0


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("promote", [False, True])
def test_more_rows_of_tiles_than_a_group_are_all_computed(normal: Normal, promote: bool, wide: bool) -> None:
    constants = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 4}

    assert launch_error_eps(normal, (16 * 6 - 1, 40, 48), constants, promote=promote, wide=wide) <= 1.0


def launch_error_eps(
    normal: Normal, sizes: tuple[int, int, int], constants: dict[str, int], *, promote: bool, wide: bool = False
) -> float:
    M, N, K = sizes
    a, b, scale_a, scale_b = operands(normal, f"{M}x{N}x{K}")
    c = torch.full((M, N), float("nan"), device=a.device, dtype=torch.bfloat16)
    tiles = triton.cdiv(M, constants["BLOCK_M"]) * triton.cdiv(N, constants["BLOCK_N"])

    matmul_fp8_kernel[(tiles,)](
        *(a, b, c, scale_a, scale_b, M, N, K, *a.stride(), *b.stride(), *c.stride()),
        **constants,
        EVEN_MN=False,
        EVEN_K=False,
        PER_ROW=True,
        PER_COLUMN=True,
        PROMOTE=promote,
        WIDE=wide,
    )

    error = difference(c, reference(a, b, scale_a, scale_b)).max_diff_eps
    return float("inf") if error is None else error


@pytest.mark.gpu
def test_a_matrix_may_span_more_than_2_to_the_31_elements(normal: Normal) -> None:
    far = torch.empty_strided((64, 64), (2**31 // 32, 1), device="cuda", dtype=E4M3)
    far.copy_(normal(64, 64, dtype=E4M3))
    a, b, scale_a, scale_b = operands(normal, "64x64x64")

    assert error_eps(far, b, scale_a, scale_b) <= 1.0
    assert error_eps(far.T, b, scale_a, scale_b) <= 1.0
    assert error_eps(a, far.T, scale_a, scale_b) <= 1.0


@pytest.mark.parametrize("out_dtype", CEILING_EPS, ids=str)
def test_a_product_of_nothing_is_zero(normal: Normal, out_dtype: torch.dtype) -> None:
    one = normal(dtype=torch.float32)
    with PoisonedAllocations():
        c = triton_matmul_fp8(normal(3, 0, dtype=E4M3), normal(0, 5, dtype=E4M3), one, one, out_dtype)

    assert torch.equal(c.cpu(), torch.zeros(3, 5, dtype=out_dtype))


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """What each launch was given."""
    matmul_fp8._launches.forget()  # what another test has launched
    launches: list[SimpleNamespace] = []
    original = matmul_fp8._launch

    def launch(kernel: Any, *tensors: torch.Tensor, promotes: bool) -> object:  # noqa: ANN401 - Triton's
        launches.append(SimpleNamespace(configs=kernel.configs, tensors=tensors, promotes=promotes))
        return original(kernel, *tensors, promotes=promotes)

    monkeypatch.setattr(matmul_fp8, "_launch", launch)
    return launches


@pytest.mark.parametrize(("M", "N", "K"), [(0, 5, 3), (5, 0, 3), (0, 0, 0)])
def test_an_empty_product_launches_nothing(
    normal: Normal, launched: list[SimpleNamespace], M: int, N: int, K: int
) -> None:
    one = normal(dtype=torch.float32)

    c = triton_matmul_fp8(normal(M, K, dtype=E4M3), normal(K, N, dtype=E4M3), one, one)

    assert (c.shape, c.dtype) == ((M, N), torch.bfloat16)
    assert launched == []


def test_the_check_notices_a_kernel_that_does_not_write(normal: Normal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_fp8, "_launch", lambda *_arguments, **_constants: None)

    assert error_eps(*operands(normal, "8x16x16")) == float("inf")


@pytest.mark.parametrize("which", [0, 1, 2, 3], ids=["a", "b", "scale_a", "scale_b"])
def test_the_check_notices_one_wrong_number(normal: Normal, which: int) -> None:
    changed = operands(normal, "40x40x48")
    right = reference(*changed)
    changed[which][-1, -1] = 4 * changed[which][-1, -1].float().abs() + 4

    error = difference(triton_matmul_fp8(*changed), right).max_diff_eps

    assert error is not None
    assert error > 2.0


def addresses(*tensors: torch.Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


COPIES: dict[str, tuple[Callable[[Normal], torch.Tensor], Callable[[Normal], torch.Tensor], str]] = {
    "both along K": (lambda n: n(32, 48, dtype=E4M3), lambda n: n(64, 48, dtype=E4M3).T, ""),
    "across K, small": (lambda n: n(48, 32, dtype=E4M3).T, lambda n: n(48, 64, dtype=E4M3), ""),
    "odd rows": (lambda n: n(32, 47, dtype=E4M3), lambda n: n(64, 48, dtype=E4M3)[:, :47].T, "a"),
    "an odd start": (lambda n: n(32, 48, dtype=E4M3), lambda n: n(64, 64, dtype=E4M3)[:, 1:49].T, "b"),
    "a step along K": (lambda n: n(32, 96, dtype=E4M3)[:, ::2], lambda n: n(64, 48, dtype=E4M3).T, "a"),
}


@pytest.mark.parametrize("case", COPIES)
def test_what_cannot_be_read_16_bytes_at_a_time_is_copied(
    normal: Normal, launched: list[SimpleNamespace], case: str
) -> None:
    make_a, make_b, copied = COPIES[case]
    a, b = make_a(normal), make_b(normal)
    one = normal(dtype=torch.float32)

    assert error_eps(a, b, one, one) <= 1.0

    (launch,) = launched
    read = launch.tensors[:2]
    assert ["ab"[place] for place in (0, 1) if addresses(read[place]) != addresses((a, b)[place])] == list(copied)
    assert all(is_aligned(x.data_ptr(), x.stride()) for x in read)


@pytest.mark.parametrize("is_native", [True, False])
def test_a_large_product_is_read_along_k_where_float8_needs_that(
    normal: Normal, launched: list[SimpleNamespace], monkeypatch: pytest.MonkeyPatch, is_native: bool
) -> None:
    monkeypatch.setattr(matmul_fp8, "is_worth_scratch", lambda *_sizes: True)
    monkeypatch.setattr(matmul_fp8, "_multiplies_e4m3fn", lambda _device: is_native)
    one = normal(dtype=torch.float32)

    assert error_eps(normal(48, 32, dtype=E4M3).T, normal(48, 64, dtype=E4M3), one, one) <= 1.0

    (launch,) = launched
    a, b, *_ = launch.tensors
    assert (a.stride(1) == 1, b.stride(0) == 1) == (is_native, is_native)
    # Zeros round the depth up to a step of the configurations.
    assert a.shape[1] == b.shape[0] == (128 if is_native else 48)


def test_without_memory_for_copies_a_product_is_computed_all_the_same(
    normal: Normal, launched: list[SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(matmul_fp8, "pad", refuse)
    given_operands = operands(normal, "33x65x47")

    assert error_eps(*given_operands) <= 1.0
    assert addresses(*launched[0].tensors[:2]) == addresses(*given_operands[:2])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gpus_without_float8_multiply_float16(
    normal: Normal, launched: list[SimpleNamespace], monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(matmul_fp8, "_multiplies_e4m3fn", lambda _device: False)
    a, b = LAYOUTS[layout](normal, 33, 70), LAYOUTS[layout](normal, 70, 47)
    one = normal(dtype=torch.float32)

    assert error_eps(a, b, one, one) <= 1.0

    (launch,) = launched
    assert {x.dtype for x in launch.tensors[:2]} == {torch.float16}
    assert all(is_aligned(x.data_ptr(), x.stride()) for x in launch.tensors[:2])
    assert not launch.promotes
    # Half the step, so that as many bytes are in flight.
    assert [c.kwargs["BLOCK_K"] for c in launch.configs] == [config.block_k // 2 for config in FP8_AUTOTUNE]


@pytest.mark.parametrize(
    ("device", "multiplies", "in_14_bits"),
    [
        ("h200", True, True),
        ("l40s", True, False),
        ("b200", True, False),
        ("rtx5090", True, False),
        ("a100", False, False),
        ("mi300x", False, False),
        ("mi350x", True, False),
    ],
)
@pytest.mark.skipif(HAS_GPU, reason="torch asks the real GPU")
def test_what_multiplies_float8_and_how_is_told_by_capability(device: str, multiplies: bool, in_14_bits: bool) -> None:
    gpu = torch.device("cuda", 0)
    with pretend_gpu(device, tensors="meta"):
        assert (matmul_fp8._multiplies_e4m3fn(gpu), matmul_fp8._sums_in_14_bits(gpu)) == (multiplies, in_14_bits)


@pytest.mark.parametrize(
    ("in_14_bits", "use_fast_accum", "promotes"),
    [(True, False, True), (True, True, False), (False, False, False), (False, True, False)],
)
def test_sums_of_steps_are_promoted_where_the_gpu_needs_it(  # noqa: PLR0917 - two fixtures and a table
    normal: Normal,
    launched: list[SimpleNamespace],
    monkeypatch: pytest.MonkeyPatch,
    in_14_bits: bool,
    use_fast_accum: bool,
    promotes: bool,
) -> None:
    monkeypatch.setattr(matmul_fp8, "_sums_in_14_bits", lambda _device: in_14_bits)

    assert error_eps(*operands(normal, "16x16x16"), use_fast_accum=use_fast_accum) <= 1.0

    (launch,) = launched
    assert launch.promotes is promotes
    assert len(launch.configs) == len(FP8_PROMOTED_AUTOTUNE if promotes else FP8_AUTOTUNE)


def test_a_thread_has_registers_for_what_it_sums_twice() -> None:
    # Twice more than 64 elements leave too few of 255 registers for the rest: 128x256 in eight warps would spill.
    for config in FP8_PROMOTED_AUTOTUNE:
        assert config.block_m * config.block_n <= 64 * 32 * config.num_warps


@pytest.mark.parametrize(("stride_cm", "tried"), [(1008, len(FP8_AUTOTUNE)), (1005, len(FP8_AUTOTUNE) - 2)])
def test_configurations_that_spill_are_not_tried_where_rows_are_stored_in_pieces(stride_cm: int, tried: int) -> None:
    configs = [triton.Config(config.constants(), num_warps=config.num_warps) for config in FP8_AUTOTUNE]

    assert len(matmul_fp8._fitting_registers(configs, {"stride_cm": stride_cm})) == tried


def test_fakes_have_the_shape_and_dtype_of_the_product(normal: Normal) -> None:
    a, b, scale_a, scale_b = operands(normal, "48x80x64")

    c = matmul_fp8._product_of_fakes(a, b, scale_a, scale_b, torch.float16, use_fast_accum=True)

    assert (tuple(c.shape), c.dtype, c.device) == ((48, 80), torch.float16, a.device)
    with pytest.raises(ValueError, match="incompatible dimensions"):
        matmul_fp8._product_of_fakes(a, a, scale_a, scale_b, torch.float16, use_fast_accum=True)


def test_a_call_while_something_is_compiled_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # By another thread, or by the compiler itself, which computes constants: torch's flag is everybody's.
    importlib.import_module("torch._dynamo")  # it remembers what it finds in the flag's place
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    a = torch.zeros(16, 16).to(E4M3)

    with pytest.raises(ValueError, match="a must be a CUDA tensor"):
        triton_matmul_fp8(a, a, torch.ones(()), torch.ones(()))


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_matrix_that_is_not_2d_is_refused(normal: Normal, name: str) -> None:
    given_operands: dict[str, Any] = dict(zip(NAMES, operands(normal, "4x4x4"), strict=True))
    given_operands[name] = normal(2, 4, 4, dtype=E4M3)

    with pytest.raises(ValueError, match=rf"{name} must be 2D, got 3D of shape \(2, 4, 4\)\n  why: .*\n  do: "):
        triton_matmul_fp8(**given_operands)


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_on_the_host_is_refused(normal: Normal, name: str) -> None:
    given_operands: dict[str, Any] = dict(zip(NAMES, operands(normal, "4x4x4"), strict=True))
    given_operands[name] = given_operands[name].cpu()

    with pytest.raises(ValueError, match=f"{name} must be a CUDA tensor, got one on cpu"):
        triton_matmul_fp8(**given_operands)


def test_tensors_on_different_devices_are_refused(normal: Normal) -> None:
    _, b, scale_a, scale_b = operands(normal, "4x4x4")
    elsewhere = SimpleNamespace(ndim=2, shape=(4, 4), is_cuda=True, device=torch.device("cuda", 1))

    with pytest.raises(ValueError, match=r"a, b, scale_a and scale_b must be on the same device, got cuda:1, cuda:0"):
        triton_matmul_fp8(cast("torch.Tensor", elsewhere), b, scale_a, scale_b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.int8], ids=str)
@pytest.mark.parametrize("name", ["a", "b"])
def test_another_dtype_is_refused_and_the_supported_one_named(normal: Normal, name: str, dtype: torch.dtype) -> None:
    given_operands: dict[str, Any] = dict(zip(NAMES, operands(normal, "4x4x4"), strict=True))
    given_operands[name] = given_operands[name].float().to(dtype)

    with pytest.raises(TypeError, match=rf"{name} has the unsupported dtype {dtype}\n.*torch\.float8_e4m3fn\n"):
        triton_matmul_fp8(**given_operands)


@pytest.mark.parametrize("name", ["scale_a", "scale_b"])
@pytest.mark.parametrize("scale", [0.5, torch.float64], ids=str)
def test_a_scale_that_is_no_float32_tensor_is_refused(normal: Normal, name: str, scale: float | torch.dtype) -> None:
    given_operands: dict[str, Any] = dict(zip(NAMES, operands(normal, "4x4x4"), strict=True))
    given_operands[name] = given_operands[name].to(scale) if isinstance(scale, torch.dtype) else scale

    with pytest.raises(
        TypeError, match=f"{name} must be a tensor, got 0.5\n|{name} has the unsupported dtype torch.float64\n"
    ):
        triton_matmul_fp8(**given_operands)


@pytest.mark.parametrize(
    ("name", "shape", "advice"),
    [
        ("scale_a", (5,), "4 rows of a\n.*\n.*one element, or the shape (4,) or (4, 1)"),
        ("scale_a", (1, 4), "4 rows of a\n.*\n.*one element, or the shape (4,) or (4, 1)"),
        ("scale_b", (4,), "6 columns of b\n.*\n.*one element, or the shape (6,) or (1, 6)"),
        ("scale_b", (6, 1), "6 columns of b\n.*\n.*one element, or the shape (6,) or (1, 6)"),
        ("scale_b", (0,), "6 columns of b\n.*\n.*one element, or the shape (6,) or (1, 6)"),
    ],
)
def test_a_scale_that_fits_no_row_and_column_is_refused(
    normal: Normal, name: str, shape: tuple[int, ...], advice: str
) -> None:
    given_operands: dict[str, Any] = dict(zip(NAMES, operands(normal, "4x6x5"), strict=True))
    given_operands[name] = normal(*shape, dtype=torch.float32)

    pattern = advice.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ValueError, match=rf"{name} has the shape \({shape[0]},.*\), where there are {pattern}"):
        triton_matmul_fp8(**given_operands)


def test_dimensions_that_do_not_fit_are_refused(normal: Normal) -> None:
    a, b, scale_a, scale_b = operands(normal, "4x4x5")

    with pytest.raises(ValueError, match=r"incompatible dimensions: a is \(4, 5\), b is \(4, 5\)"):
        triton_matmul_fp8(a, b.T, scale_a, scale_b)


@pytest.mark.parametrize("out_dtype", [E4M3, torch.float64], ids=str)
def test_another_dtype_of_the_product_is_refused(normal: Normal, out_dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=rf"the out_dtype {out_dtype} is not supported\n.*torch\.float16.*\n  do: "):
        triton_matmul_fp8(*operands(normal, "4x4x4"), out_dtype)


def test_that_nothing_fits_is_not_called_the_callers_fault(normal: Normal, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*_arguments: object, **_constants: object) -> None:
        raise triton.runtime.errors.OutOfResources(300_000, 65_536, "shared memory")

    monkeypatch.setattr(matmul_fp8, "_launch", launch)

    with pytest.raises(ValueError, match=r"^no configuration of the float8 matmul fits the GPU\n.*300000.*\n  do: "):
        triton_matmul_fp8(*operands(normal, "4x4x4"))


#: Runs in a process of its own, in which kernels are compiled and not interpreted. Prints one line of facts a case,
#: and fails where ptxas says that it had to serialise the tensor cores' instructions.
COMPILE = """
import sys
import torch
from flopwatch.kernels import matmul_fp8
from flopwatch.model import to_json
from flopwatch.static import kernel_facts, pretend_gpu
from tests.kernels.assembled import serialised

def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, device="cuda", dtype=dtype)

def multiply(use_fast_accum):
    a, b = (empty(rows, 1001, dtype=torch.float8_e4m3fn) for rows in (1000, 1008))
    matmul_fp8.triton_matmul_fp8(a, b.T, empty(1000, 1), empty(1008), use_fast_accum=use_fast_accum)

fast, matmul_fp8.FP8_PROMOTED_AUTOTUNE = matmul_fp8.FP8_AUTOTUNE, matmul_fp8.FP8_PROMOTED_AUTOTUNE[:3:2]
for case in sys.argv[1:]:
    device, _, mode = case.partition(" ")
    matmul_fp8.FP8_AUTOTUNE = fast[:3:2] if mode else fast[3:4]
    with pretend_gpu(device, tensors="meta") as recorder:
        multiply(use_fast_accum=mode == "fast")
        print("facts", to_json(kernel_facts(recorder)).decode())
    for kernel in recorder.compiled.values() if device == "h200" else ():
        assert not serialised(kernel), "ptxas serialises the tensor cores' instructions"
"""
#: The configurations with the most registers, and of other GPUs one that fits all.
COMPILED = {"h200 fast": 2, "h200 promoted": 2, "a100": 1, "b200": 1, "rtx5090": 1}


@pytest.fixture(scope="module")
def compiled() -> Callable[[str], list[KernelFacts]]:
    """Facts of the kernels of a case."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMPILE, *COMPILED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
    )
    said, errors = process.communicate()
    assert process.returncode == 0, errors
    lines = [line.removeprefix("facts ") for line in said.splitlines() if line.startswith("facts ")]
    return lambda case: from_json(lines[[*COMPILED].index(case)], list[KernelFacts])


def products(fact: KernelFacts) -> set[str]:
    """The instructions of the tensor cores."""
    names = {name.split(".")[0] for name in fact.instructions or ()}
    return names & {"QGMMA", "HGMMA", "QMMA", "HMMA", "UTCQMMA", "UTCHMMA"}


@pytest.mark.parametrize(("case", "configurations"), COMPILED.items())
def test_no_configuration_spills(compiled: Callable[[str], list[KernelFacts]], case: str, configurations: int) -> None:
    facts = compiled(case)

    assert len(facts) == configurations
    assert [(fact.config, fact.failure, fact.spill_bytes) for fact in facts if fact.failure or fact.spill_bytes] == []


@pytest.mark.parametrize(
    ("case", "instruction"),
    [
        ("h200 fast", "QGMMA"),
        ("h200 promoted", "QGMMA"),
        ("rtx5090", "QMMA"),
        ("b200", "UTCQMMA"),
        ("a100", "HMMA"),
    ],
)
def test_the_tensor_cores_multiply_float8_where_they_can(
    compiled: Callable[[str], list[KernelFacts]], case: str, instruction: str
) -> None:
    assert {name for fact in compiled(case) for name in products(fact)} == {instruction}


@pytest.mark.parametrize(("case", "adds"), [("h200 fast", False), ("h200 promoted", True)])
def test_the_sum_of_each_step_is_added_in_float32_if_promoted(
    compiled: Callable[[str], list[KernelFacts]], case: str, adds: bool
) -> None:
    assert {"FADD" in (fact.instructions or {}) for fact in compiled(case)} == {adds}


@pytest.mark.gpu
@pytest.mark.parametrize("use_fast_accum", [False, True])
@pytest.mark.parametrize(
    "shape", ["1024x1024x1024", "4096x4096x4096", "128x8192x8192", "1000x1001x1003", "16x4096x4096"]
)
def test_large_products_on_a_gpu_are_as_exact_as_their_sums(normal: Normal, shape: str, use_fast_accum: bool) -> None:
    # All of K = 8192 in sums of 14 bits: 256 instructions, each of which cuts up to 2**-13 off a sum of up to 5 sigma.
    limit = 4.0 if use_fast_accum else 1.0

    assert error_eps(*operands(normal, shape), use_fast_accum=use_fast_accum) <= limit


@pytest.mark.gpu
def test_promoted_sums_on_hopper_are_nearer_to_the_product(normal: Normal, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("sums in float32 either way")
    # With tiles of 16 rows, which may be the fastest here, the older instructions sum in float32 either way.
    for name in ("FP8_AUTOTUNE", "FP8_PROMOTED_AUTOTUNE"):
        configs = [config for config in getattr(matmul_fp8, name) if config.block_m == config.block_n == 128]
        monkeypatch.setattr(matmul_fp8, name, tuple(configs[:1]))
    given_operands = operands(normal, "256x256x16384", "tensor")

    fast, promoted = (
        error_eps(*given_operands, out_dtype=torch.float32, use_fast_accum=use_fast_accum)
        for use_fast_accum in (True, False)
    )

    assert promoted < fast / 4


@pytest.fixture
def eager(normal: Normal) -> Callable[[], torch.Tensor]:
    """A call that launches on a GPU."""
    given_operands = operands(normal, "256x512x384")
    return lambda: triton_matmul_fp8(*given_operands)


@pytest.mark.gpu
def test_a_launch_that_was_kept_gives_the_same_bits(
    eager: Callable[[], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[torch.Tensor | None] = []
    launch_again = Launches.again

    def noted(launches: Launches, key: Hashable, addresses: tuple[int, ...]) -> torch.Tensor | None:
        found.append(launch_again(launches, key, addresses))
        return found[-1]

    monkeypatch.setattr(Launches, "again", noted)
    first = eager()
    torch.empty_like(first).fill_(float("nan"))  # what the next call is likely to be given
    found.clear()

    assert torch.equal(first, eager())
    has_fp8 = torch.cuda.get_device_capability() >= (8, 9)  # else what is launched reads copies in float16
    assert [product is not None for product in found] == [has_fp8]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_a_launch_is_captured_into_a_graph_and_compiled(eager: Callable[[], torch.Tensor]) -> None:
    expected = eager()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = eager()
    out.fill_(float("nan"))
    graph.replay()

    assert torch.equal(expected, out)
    assert torch.equal(expected, torch.compile(eager, fullgraph=True)())
