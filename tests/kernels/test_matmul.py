from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch
import triton

from flopwatch.kernels import matmul, triton_matmul, triton_matmul_fp32
from flopwatch.kernels.configs import MATMUL_AUTOTUNE, MatmulConfig
from flopwatch.kernels.reference import matmul_reference
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable

    Normal = Callable[..., torch.Tensor]

HAS_GPU = torch.cuda.is_available()
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SMALL = ["64x64x64", "128x256x128", "1x1x1", "1x300x70", "300x1x70", "16x48x512", "33x65x47", "129x257x65", "130x31x0"]
LARGE = ["1024x1024x1024", "1000x1000x1000", "16x4096x4096", "2049x511x1023", "256x256x16384"]
SHAPES = SMALL + LARGE * HAS_GPU
#: In units of the result's epsilon relative to the largest element. Rounding the result costs at most half of one;
#: rounding float32 inputs to float16 first about as much again.
CEILING_EPS = {torch.float16: 1.0, torch.bfloat16: 1.0, torch.float32: 2.0}


Blocks = tuple[int | None, int | None, int | None]
TUNED: Blocks = (None, None, None)


def error_eps(a: torch.Tensor, b: torch.Tensor, blocks: Blocks = TUNED) -> float:
    """Multiply into poisoned memory; an element that is never written gives an infinite error."""
    with PoisonedAllocations():
        c = triton_matmul(a, b, *blocks)
    error = difference(c, matmul_reference(a, b)).max_diff_eps
    return float("inf") if error is None else error


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_as_exact_as_its_dtype(normal: Normal, shape: str, dtype: torch.dtype) -> None:
    M, N, K = map(int, shape.split("x"))

    assert error_eps(normal(M, K, dtype=dtype), normal(K, N, dtype=dtype)) <= CEILING_EPS[dtype]


@pytest.mark.parametrize("blocks", [(16, 16, 16), (64, 32, 16), (16, 128, 32)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_explicit_blocks_give_the_same_product(normal: Normal, dtype: torch.dtype, blocks: Blocks) -> None:
    assert error_eps(normal(70, 90, dtype=dtype), normal(90, 50, dtype=dtype), blocks) <= CEILING_EPS[dtype]


@pytest.mark.parametrize("config", MATMUL_AUTOTUNE, ids=str)
@pytest.mark.parametrize("exact", [True, False], ids=["whole tiles", "ragged tiles"])
def test_every_configuration_that_may_win_is_right(normal: Normal, config: MatmulConfig, exact: bool) -> None:
    M, N, K = (2 * block - (0 if exact else 3) for block in (config.block_m, config.block_n, config.block_k))
    a, b = normal(M, K), normal(K, N)
    with PoisonedAllocations():
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)

    matmul._launch(matmul._configured, a, b, c, config)

    error = difference(c, matmul_reference(a, b)).max_diff_eps
    assert error is not None
    assert error <= 1.0


VIEWS: dict[str, Callable[[Normal], tuple[torch.Tensor, torch.Tensor]]] = {
    "A transposed": lambda normal: (normal(70, 45).T, normal(70, 33)),
    "B transposed": lambda normal: (normal(45, 70), normal(33, 70).T),
    "both transposed": lambda normal: (normal(70, 45).T, normal(33, 70).T),
    "every other row": lambda normal: (normal(90, 70)[::2], normal(140, 33)[::2]),
    "every other column": lambda normal: (normal(45, 140)[:, ::2], normal(70, 66)[:, ::2]),
    "a corner": lambda normal: (normal(64, 128)[3:48, 5:75], normal(96, 64)[7:77, 1:34]),
    "expanded": lambda normal: (normal(1, 70).expand(45, 70), normal(70, 1).expand(70, 33)),
    "rows of eights": lambda normal: (normal(45, 72), normal(72, 40)),
    "columns of eights": lambda normal: (normal(72, 40).T, normal(24, 72).T),
    "rows and columns of eights": lambda normal: (normal(40, 104)[:, 32:], normal(88, 72)[:56].T),
    "columns and rows of eights": lambda normal: (normal(72, 40).T, normal(72, 40)),
    "a column of a column": lambda normal: (normal(45, 1), normal(1, 33)),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("blocks", [TUNED, (32, 32, 32)], ids=["tuned", "explicit"])
def test_strides_do_not_matter(normal: Normal, view: str, blocks: Blocks) -> None:
    a, b = VIEWS[view](normal)

    assert error_eps(a, b, blocks) <= 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_more_rows_of_tiles_than_a_group_are_all_computed(normal: Normal, dtype: torch.dtype) -> None:
    assert error_eps(normal(16 * 19, 16, dtype=dtype), normal(16, 48, dtype=dtype), (16, 16, 16)) <= 1.0


def test_offsets_of_64_bits_inside_a_tile_give_the_same_product(normal: Normal) -> None:
    a, b = normal(40, 20), normal(20, 30)
    c = torch.full((40, 30), float("nan"), device=a.device, dtype=a.dtype)

    matmul.matmul_kernel[(4,)](
        *(a, b, c, 40, 30, 20, *a.stride(), *b.stride(), *c.stride()),
        BLOCK_M=32,
        BLOCK_N=16,
        BLOCK_K=16,
        GROUP_M=8,
        EVEN_MN=False,
        EVEN_K=False,
        WIDE=True,
    )

    error = difference(c, matmul_reference(a, b)).max_diff_eps
    assert error is not None
    assert error <= 1.0


@pytest.mark.parametrize(("stride", "wide"), [(4096, False), (2**31 // 64 - 64, False), (2**31 // 64, True)])
def test_offsets_are_64_bits_when_a_tile_reaches_beyond_31(stride: int, wide: bool) -> None:
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    strides = {"stride_am": stride, "stride_ak": 1, "stride_bk": 64, "stride_bn": 1, "stride_cm": 64, "stride_cn": 1}

    assert matmul._is_wide(blocks | strides) is wide


@pytest.mark.gpu
def test_a_matrix_may_span_more_than_2_to_the_31_elements(normal: Normal) -> None:
    far = torch.empty_strided((64, 64), (2**31 // 32, 1), device="cuda", dtype=torch.float16)
    far.copy_(normal(64, 64))
    near = normal(64, 64)

    assert error_eps(far, near) <= 1.0
    assert error_eps(far.T, near) <= 1.0
    assert error_eps(near, far) <= 1.0


def test_a_product_of_nothing_is_zero(normal: Normal) -> None:
    with PoisonedAllocations():
        c = triton_matmul(normal(3, 0), normal(0, 5))

    assert torch.equal(c.cpu(), torch.zeros(3, 5, dtype=torch.float16))


@pytest.mark.parametrize(("M", "N", "K"), [(0, 5, 3), (5, 0, 3), (0, 0, 0)])
def test_an_empty_product_launches_nothing(
    normal: Normal, monkeypatch: pytest.MonkeyPatch, M: int, N: int, K: int
) -> None:
    def launch(*_arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr(matmul, "_launch", launch)

    c = triton_matmul(normal(M, K), normal(K, N))

    assert (c.shape, c.dtype) == ((M, N), torch.float16)


def test_the_check_notices_a_kernel_that_does_not_write(normal: Normal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "_launch", lambda *_arguments: None)

    assert error_eps(normal(8, 8), normal(8, 8)) == float("inf")


def test_the_check_notices_one_wrong_factor(normal: Normal) -> None:
    a, b = normal(40, 40), normal(40, 40)
    c = triton_matmul(a, b)
    a[7, 11] = 4 * a[7, 11].abs() + 4

    error = difference(c, matmul_reference(a, b)).max_diff_eps

    assert error is not None
    assert error > 2.0


def test_float32_is_computed_and_returned_in_float16(normal: Normal) -> None:
    c = triton_matmul(normal(8, 8, dtype=torch.float32), normal(8, 8, dtype=torch.float32))

    assert c.dtype == torch.float16


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matmul_fp32_is_the_float16_product_as_float32(normal: Normal, dtype: torch.dtype) -> None:
    a, b = normal(33, 65, dtype=dtype), normal(65, 47, dtype=dtype)

    c = triton_matmul_fp32(a, b)

    assert c.dtype == torch.float32
    assert torch.equal(c, triton_matmul(a.half(), b.half()).float())


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[MatmulConfig | None]:
    """The configuration of each launch; None where the autotuner chooses it."""
    matmul._launches.forget()  # what another test has launched
    configs: list[MatmulConfig | None] = []
    original = matmul._launch

    def launch(
        kernel: object, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, config: MatmulConfig | None = None
    ) -> None:
        configs.append(config)
        original(kernel, a, b, c, config)

    monkeypatch.setattr(matmul, "_launch", launch)
    return configs


def test_the_kernel_is_tuned_unless_told_otherwise(normal: Normal, launched: list[MatmulConfig | None]) -> None:
    triton_matmul(normal(16, 16), normal(16, 16))

    assert launched == [None]


def test_blocks_given_in_part_are_used_and_the_missing_ones_tuned(
    normal: Normal, launched: list[MatmulConfig | None]
) -> None:
    triton_matmul(normal(16, 16), normal(16, 16), block_m=32)

    candidates = matmul._candidates(torch.device("cuda", 0), {"block_m": 32}, element_bytes=2)
    assert launched == [None]
    assert {config.block_m for config in candidates} == {32}
    assert len({(config.block_n, config.block_k) for config in candidates}) == len(candidates) > 1


def test_without_tuning_missing_blocks_come_from_the_architecture(
    normal: Normal, launched: list[MatmulConfig | None]
) -> None:
    triton_matmul(normal(16, 16), normal(16, 16), block_m=32, use_autotune=False)

    (config,) = launched
    expected = matmul._config_for(torch.device("cuda", 0), {}, element_bytes=2)
    assert config is not None
    assert (config.block_m, config.block_n, config.block_k) == (32, expected.block_n, expected.block_k)


def test_without_tuning_everything_comes_from_the_architecture(
    normal: Normal, launched: list[MatmulConfig | None]
) -> None:
    triton_matmul(normal(16, 16), normal(16, 16), use_autotune=False)

    assert launched == [matmul._config_for(torch.device("cuda", 0), {}, element_bytes=2)]


def test_all_blocks_given_bypass_the_tuning(normal: Normal, launched: list[MatmulConfig | None]) -> None:
    triton_matmul(normal(16, 16), normal(16, 16), 16, 32, 64)

    (config,) = launched
    assert config is not None
    assert (config.block_m, config.block_n, config.block_k) == (16, 32, 64)


@pytest.mark.parametrize("names", [("a",), ("b",), ("a", "b")], ids=str)
def test_an_operand_that_is_not_2d_is_refused(normal: Normal, names: tuple[str, ...]) -> None:
    a, b = (normal(2, 4, 4) if name in names else normal(4, 4) for name in ("a", "b"))

    with pytest.raises(ValueError, match=rf"{names[0]} must be 2D, got 3D of shape \(2, 4, 4\)"):
        triton_matmul(a, b)


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_operand_on_the_host_is_refused(normal: Normal, name: str) -> None:
    a, b = (normal(4, 4).cpu() if name == which else normal(4, 4) for which in ("a", "b"))

    with pytest.raises(ValueError, match=f"{name} must be a CUDA tensor, got one on cpu"):
        triton_matmul(a, b)


def test_operands_on_different_devices_are_refused() -> None:
    a, b = (
        cast(
            "torch.Tensor",
            SimpleNamespace(
                ndim=2, shape=(4, 4), dtype=torch.float16, is_cuda=True, device=torch.device("cuda", index)
            ),
        )
        for index in range(2)
    )

    with pytest.raises(ValueError, match="a and b must be on the same device, got cuda:0, cuda:1"):
        triton_matmul(a, b)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.complex64], ids=str)
@pytest.mark.parametrize("function", [triton_matmul, triton_matmul_fp32])
def test_an_unsupported_dtype_is_refused_and_the_supported_ones_named(
    normal: Normal, function: Callable[..., torch.Tensor], dtype: torch.dtype
) -> None:
    a = normal(4, 4, dtype=torch.float32).to(dtype)

    with pytest.raises(TypeError, match=r"unsupported dtype.*\n.*float16, torch\.bfloat16, torch\.float32"):
        function(a, a)


@pytest.mark.parametrize("function", [triton_matmul, triton_matmul_fp32])
def test_dtypes_that_differ_are_refused(normal: Normal, function: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(TypeError, match=r"dtypes of a and b must match, got torch\.float16, torch\.bfloat16"):
        function(normal(4, 4), normal(4, 4, dtype=torch.bfloat16))


def test_incompatible_dimensions_are_refused(normal: Normal) -> None:
    with pytest.raises(ValueError, match=r"incompatible dimensions: a is \(4, 5\), b is \(4, 5\)"):
        triton_matmul(normal(4, 5), normal(4, 5))


@pytest.mark.parametrize("block", [-16, 0, 8, 24, 100])
@pytest.mark.parametrize("name", ["block_m", "block_n", "block_k"])
def test_a_block_size_must_be_positive_a_power_of_two_and_at_least_16(normal: Normal, name: str, block: int) -> None:
    with pytest.raises(ValueError, match=f"block size {name}={block} must be positive, a power of two and at least 16"):
        triton_matmul(normal(4, 4), normal(4, 4), **{name: block})  # type: ignore[arg-type] # a block size


def test_blocks_beyond_tritons_largest_tile_are_refused(normal: Normal) -> None:
    with pytest.raises(ValueError, match="block sizes block_m=2048, block_n=1024 are too large"):
        triton_matmul(normal(4, 4), normal(4, 4), 2048, 1024)


def test_blocks_that_do_not_fit_shared_memory_are_refused_by_their_sizes(
    normal: Normal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(*_arguments: object) -> None:
        raise triton.runtime.errors.OutOfResources(300_000, 232_448, "shared memory")

    monkeypatch.setattr(matmul, "_launch", launch)

    with pytest.raises(ValueError, match=r"block sizes .*block_k=512 do not fit the GPU\n.*300000"):
        triton_matmul(normal(4, 4), normal(4, 4), 64, 256, 512)


@pytest.mark.parametrize(
    ("use_autotune", "refused"),
    [
        (False, r"the architecture's configuration, block_m=\d+, block_n=\d+, block_k=\d+, does not fit the GPU"),
        (True, "none of the configurations to choose from fits the GPU"),
    ],
)
def test_a_configuration_that_the_caller_did_not_give_is_not_called_the_callers(
    normal: Normal, monkeypatch: pytest.MonkeyPatch, use_autotune: bool, refused: str
) -> None:
    def launch(*_arguments: object) -> None:
        raise triton.runtime.errors.OutOfResources(300_000, 65_536, "shared memory")

    monkeypatch.setattr(matmul, "_launch", launch)

    with pytest.raises(ValueError, match=rf"^{refused}\n.*300000"):
        triton_matmul(normal(4, 4), normal(4, 4), use_autotune=use_autotune)


@pytest.mark.parametrize(
    ("strides", "addresses", "vectorised"),
    [
        (((64, 1), (64, 1)), (256, 512), True),
        (((72, 1), (64, 1)), (256, 512), True),
        (((1, 64), (1, 72)), (256, 512), True),
        (((68, 1), (64, 1)), (256, 512), False),
        (((1, 64), (1, 64)), (256, 512), True),
        (((65, 1), (64, 1)), (256, 512), False),
        (((64, 1), (64, 1)), (256, 514), False),
        (((64, 2), (64, 1)), (256, 512), False),
        (((1, 17), (64, 1)), (256, 512), False),
    ],
)
def test_configurations_that_spill_are_not_tried_where_elements_are_loaded_one_by_one(
    strides: tuple[tuple[int, int], tuple[int, int]], addresses: tuple[int, int], vectorised: bool
) -> None:
    (am, ak), (bk, bn) = strides
    a, b = (SimpleNamespace(data_ptr=lambda address=address: address) for address in addresses)
    args = {"a_ptr": a, "b_ptr": b, "stride_am": am, "stride_ak": ak, "stride_bk": bk, "stride_bn": bn}
    args |= dict.fromkeys("MNK", 64)
    configs = [
        triton.Config(config.constants(), num_warps=config.num_warps, num_stages=config.num_stages)
        for config in MATMUL_AUTOTUNE
    ]

    tried = matmul._fitting_registers(configs, args)

    assert (tried == configs) is vectorised
    assert tried
