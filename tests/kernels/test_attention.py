from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch
import triton

from flopwatch.kernels import attention, flash_attention
from flopwatch.kernels.attention_kernel import attention_kernel
from flopwatch.kernels.configs import ATTENTION_AUTOTUNE, HEAD_DIMS, AttentionConfig
from flopwatch.kernels.reference import attention_reference
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable

    Normal = Callable[..., torch.Tensor]

HAS_GPU = torch.cuda.is_available()
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: In units of float16's epsilon relative to the largest element: half of one for rounding the result, and as much again
#: for rounding the weights and float32 inputs.
CEILING_EPS = 1.5
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


def error_eps(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    seq_lens: torch.Tensor | None = None,
) -> float:
    """Compute into poisoned memory; an element that is never written gives an infinite error."""
    with PoisonedAllocations():
        out = flash_attention(q, k, v, causal=causal, sm_scale=sm_scale, seq_lens=seq_lens)
    reference = attention_reference(q, k, v, causal=causal, sm_scale=sm_scale, seq_lens=seq_lens)
    error = difference(out, reference).max_diff_eps
    return float("inf") if error is None else error


def lengths(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


SMALL = ["1x1x1", "2x3x16", "1x2x77", "1x1x128", "1x1x300"]
LARGE = ["4x8x1024", "2x2x4096", "3x5x1333"]


@CAUSAL
@pytest.mark.parametrize("shape", SMALL + LARGE * HAS_GPU)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_attention_is_as_exact_as_float16(normal: Normal, dtype: torch.dtype, shape: str, causal: bool) -> None:
    B, H, S = map(int, shape.split("x"))
    q, k, v = (normal(B, H, S, 32, dtype=dtype) for _ in range(3))

    assert error_eps(q, k, v, causal=causal) <= CEILING_EPS


@CAUSAL
@pytest.mark.parametrize("varied", [False, True], ids=["one length", "seq_lens"])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_head_dimension_is_as_exact_as_float16(normal: Normal, head_dim: int, varied: bool, causal: bool) -> None:
    q, k, v = (normal(3, 1, 150, head_dim) for _ in range(3))
    seq_lens = lengths(131, 0, 150) if varied else None

    assert error_eps(q, k, v, causal=causal, seq_lens=seq_lens) <= CEILING_EPS


@CAUSAL
@pytest.mark.parametrize("config", [c for configs in ATTENTION_AUTOTUNE.values() for c in configs], ids=str)
def test_every_configuration_that_may_win_is_right(
    normal: Normal, monkeypatch: pytest.MonkeyPatch, config: AttentionConfig, causal: bool
) -> None:
    only = triton.Config(config.constants(), num_warps=config.num_warps, num_stages=config.num_stages)
    tuner = triton.autotune([only], key=[])(attention_kernel)
    monkeypatch.setitem(attention._autotuned, config.head_dim, tuner)
    q, k, v = (normal(2, 1, 200, config.head_dim) for _ in range(3))

    assert error_eps(q, k, v, causal=causal, seq_lens=lengths(200, 145)) <= CEILING_EPS


@CAUSAL
def test_three_dimensions_are_as_many_heads(normal: Normal, causal: bool) -> None:
    q, k, v = (normal(2, 3, 50, 32) for _ in range(3))

    with PoisonedAllocations():
        out = flash_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), causal=causal)

    reference = attention_reference(q, k, v, causal=causal).flatten(0, 1)
    error = difference(out, reference).max_diff_eps
    assert error is not None
    assert error <= CEILING_EPS


def test_with_three_dimensions_every_head_has_its_own_length(normal: Normal) -> None:
    q, k, v = (normal(3, 40, 16) for _ in range(3))

    assert error_eps(q, k, v, seq_lens=lengths(40, 0, 13)) <= CEILING_EPS


VIEWS: dict[str, Callable[[Normal], torch.Tensor]] = {
    "heads beside the dimension": lambda normal: normal(2, 40, 3, 32).transpose(1, 2),
    "dimension before the sequence": lambda normal: normal(2, 3, 32, 40).transpose(2, 3),
    "every other position": lambda normal: normal(2, 3, 80, 32)[:, :, ::2],
    "a slice of a larger dimension": lambda normal: normal(2, 3, 40, 51)[..., 7:39],
    "one head for all": lambda normal: normal(2, 1, 40, 32).expand(2, 3, 40, 32),
}


@CAUSAL
@pytest.mark.parametrize("view", VIEWS)
def test_strides_do_not_matter(normal: Normal, view: str, causal: bool) -> None:
    q, k, v = (VIEWS[view](normal) for _ in range(3))

    assert flash_attention(q, k, v, causal=causal).is_contiguous()
    assert error_eps(q, k, v, causal=causal) <= CEILING_EPS


@CAUSAL
@pytest.mark.parametrize("sm_scale", [1.0, 0.0, -0.3, 4.0])
def test_the_scale_may_be_any_number(normal: Normal, sm_scale: float, causal: bool) -> None:
    q, k, v = (normal(1, 2, 140, 32) for _ in range(3))

    assert error_eps(q, k, v, causal=causal, sm_scale=sm_scale) <= CEILING_EPS


def test_the_default_scale_is_the_inverse_root_of_the_head_dimension(normal: Normal) -> None:
    q, k, v = (normal(1, 1, 40, 64) for _ in range(3))

    assert torch.equal(flash_attention(q, k, v), flash_attention(q, k, v, sm_scale=1 / math.sqrt(64)))


@CAUSAL
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_positions_past_the_length_give_exactly_zero(normal: Normal, dtype: torch.dtype, causal: bool) -> None:
    q, k, v = (normal(3, 2, 140, 32, dtype=dtype) for _ in range(3))

    with PoisonedAllocations():
        out = flash_attention(q, k, v, causal=causal, seq_lens=lengths(0, 5, 139)).cpu()

    assert [int(out[i, :, n:].count_nonzero()) for i, n in enumerate((0, 5, 139))] == [0, 0, 0]


@CAUSAL
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -float("inf"), 60000.0])
def test_what_lies_past_the_length_never_shows(normal: Normal, garbage: float, causal: bool) -> None:
    valid = (0, 70, 129)
    q, k, v = (normal(3, 2, 200, 32) for _ in range(3))
    clean = flash_attention(q, k, v, causal=causal, seq_lens=lengths(*valid))
    for tensor in (q, k, v):
        for entry, length in enumerate(valid):
            tensor[entry, :, length:] = garbage

    with PoisonedAllocations():
        out = flash_attention(q, k, v, causal=causal, seq_lens=lengths(*valid))

    assert torch.equal(out, clean)


def test_strided_lengths_are_read_in_order(normal: Normal) -> None:
    q, k, v = (normal(3, 1, 40, 16) for _ in range(3))

    assert error_eps(q, k, v, seq_lens=lengths(7, 40, 20, 40, 33, 40)[::2]) <= CEILING_EPS


def test_large_scores_do_not_overflow(normal: Normal) -> None:
    q, k, v = (normal(1, 1, 40, 32) for _ in range(3))

    # Whole numbers, so that scores tie or differ by 10000: some that differ by 1 of 300000, as in 5 of 1500 seeds,
    # float32 does not tell apart, and the sums were 8 eps off.
    assert error_eps(q.round() * 100, k.round() * 100, v, sm_scale=1.0) <= CEILING_EPS


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of infinite numbers
@CAUSAL
def test_a_whole_block_of_keys_without_weight_changes_nothing(normal: Normal, causal: bool) -> None:
    q, k, v = (normal(1, 1, 300, 16) for _ in range(3))
    q[..., 0], k[:, :, :200, 0] = -1.0, float("inf")
    rows = slice(200, None)  # those that see other keys

    out = flash_attention(q, k, v, causal=causal)[:, :, rows]

    error = difference(out, attention_reference(q, k, v, causal=causal)[:, :, rows]).max_diff_eps
    assert error is not None
    assert error <= CEILING_EPS


@CAUSAL
def test_offsets_of_64_bits_inside_a_block_give_the_same_result(
    normal: Normal, monkeypatch: pytest.MonkeyPatch, causal: bool
) -> None:
    q, k, v = (normal(1, 2, 140, 32) for _ in range(3))
    monkeypatch.setattr(attention, "_LARGEST_BLOCK", 2**31)  # as if every stride were enormous

    assert error_eps(q, k, v, causal=causal) <= CEILING_EPS


@pytest.mark.gpu
@CAUSAL
def test_a_tensor_may_span_more_than_2_to_the_31_elements(normal: Normal, causal: bool) -> None:
    q, k, v = (normal(1, 1, 64, 32) for _ in range(3))
    far = torch.empty_strided((1, 1, 64, 32), (1, 1, 2**31 // 32, 1), device="cuda", dtype=torch.float16)
    far.copy_(k)

    assert error_eps(q, far, v, causal=causal) <= CEILING_EPS


@pytest.mark.gpu
def test_lengths_out_of_range_are_clamped_while_a_graph_is_captured(normal: Normal) -> None:
    q, k, v = (normal(3, 1, 40, 16) for _ in range(3))
    seq_lens = lengths(-5, 20, 1000)
    flash_attention(q, k, v, seq_lens=lengths(0, 20, 40))  # tuned before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = flash_attention(q, k, v, seq_lens=seq_lens)
    graph.replay()

    error = difference(out, attention_reference(q, k, v, seq_lens=lengths(0, 20, 40))).max_diff_eps
    assert error is not None
    assert error <= CEILING_EPS


@pytest.mark.parametrize("shape", [(0, 2, 5, 16), (2, 0, 5, 16), (2, 2, 0, 16), (0, 5, 16), (3, 0, 16)], ids=str)
def test_nothing_gives_nothing(normal: Normal, shape: tuple[int, ...]) -> None:
    x = normal(*shape)

    out = flash_attention(x, x, x, seq_lens=lengths(*[0] * shape[0]))

    assert (out.shape, out.dtype) == (shape, torch.float16)


def test_a_kept_launch_is_for_one_dtype_of_the_result_and_one_shape_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    q, more = torch.zeros(1, 2, 8, 16), torch.zeros(1, 2, 9, 16)
    calls = [(k, out_dtype) for k in (q, more, q[:, :1]) for out_dtype in DTYPES]
    keys: list[object] = []

    def again(key: object, _addresses: tuple[int, ...]) -> torch.Tensor:
        keys.append(key)
        return q

    monkeypatch.setattr(attention, "_launches", SimpleNamespace(again=again))
    for k, dtype in calls:
        flash_attention(q, k, k, out_dtype=dtype)

    assert len(set(keys) - {None}) == len(calls)


def test_the_check_notices_a_kernel_that_does_not_write(normal: Normal, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoKernel:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda *_arguments, **_constants: None

    monkeypatch.setitem(attention._autotuned, 32, NoKernel())

    assert error_eps(*(normal(1, 1, 8, 32) for _ in range(3))) == float("inf")


def test_the_check_notices_a_forgotten_mask(normal: Normal) -> None:
    q, k, v = (normal(1, 1, 40, 32) for _ in range(3))

    error = difference(flash_attention(q, k, v), attention_reference(q, k, v, causal=True)).max_diff_eps

    assert error is not None
    assert error > 10 * CEILING_EPS


@pytest.mark.parametrize("shape", [(4, 16), (1, 1, 1, 4, 16)], ids=str)
@pytest.mark.parametrize("index", range(3), ids="qkv".__getitem__)
def test_an_input_that_is_neither_3d_nor_4d_is_refused(normal: Normal, index: int, shape: tuple[int, ...]) -> None:
    qkv = [normal(1, 1, 4, 16) for _ in range(3)]
    qkv[index] = normal(*shape)
    q, k, v = qkv

    with pytest.raises(ValueError, match=f"{'qkv'[index]} must be 3D or 4D, got {len(shape)}D"):
        flash_attention(q, k, v)


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (0, (2, 2, 4, 16)),
        (0, (1, 2, 4, 32)),
        (0, (2, 4, 16)),
        (1, (1, 1, 4, 16)),
        (1, (1, 2, 5, 16)),
        (2, (1, 1, 4, 16)),
        (2, (1, 2, 4, 32)),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_are_refused(normal: Normal, index: int, shape: tuple[int, ...]) -> None:
    qkv = [normal(1, 2, 4, 16) for _ in range(3)]
    qkv[index] = normal(*shape)
    q, k, v = qkv

    with pytest.raises(ValueError, match=rf"shapes of q, k and v must match, got .*{re.escape(str(shape))}"):
        flash_attention(q, k, v)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 2), (3, 2), (2, 0)])
def test_heads_that_cannot_be_shared_are_refused(normal: Normal, heads: int, kv_heads: int) -> None:
    q, k = normal(1, heads, 4, 16), normal(1, kv_heads, 4, 16)

    with pytest.raises(ValueError, match=f"heads of k and v must divide those of q, got {kv_heads} and {heads} "):
        flash_attention(q, k, k)


def test_three_dimensions_have_no_heads_to_share(normal: Normal) -> None:
    q, k = normal(4, 4, 16), normal(2, 4, 16)

    with pytest.raises(ValueError, match="shapes of q, k and v must match"):
        flash_attention(q, k, k)


@pytest.mark.parametrize("out_dtype", [torch.float64, torch.int32, "float16"], ids=str)
def test_an_unsupported_dtype_of_the_result_is_refused(normal: Normal, out_dtype: torch.dtype) -> None:
    x = normal(1, 1, 4, 16)

    with pytest.raises(TypeError, match=rf"out_dtype={out_dtype} is not supported\n.*torch\.bfloat16, torch\.float32"):
        flash_attention(x, x, x, out_dtype=out_dtype)


def test_lengths_with_as_many_keys_as_queries_alone(normal: Normal) -> None:
    q, k = normal(1, 1, 4, 16), normal(1, 1, 5, 16)

    with pytest.raises(ValueError, match="seq_lens cannot go with 4 queries and 5 keys"):
        flash_attention(q, k, k, seq_lens=lengths(4))


@pytest.mark.parametrize("index", range(3), ids="qkv".__getitem__)
def test_an_input_on_the_host_is_refused(normal: Normal, index: int) -> None:
    qkv = [normal(1, 1, 4, 16) for _ in range(3)]
    qkv[index] = qkv[index].cpu()
    q, k, v = qkv

    with pytest.raises(ValueError, match=f"{'qkv'[index]} must be a CUDA tensor, got one on cpu"):
        flash_attention(q, k, v)


def test_inputs_on_different_devices_are_refused() -> None:
    q, k, v = (
        cast(
            "torch.Tensor",
            SimpleNamespace(
                ndim=3, shape=(1, 4, 16), dtype=torch.float16, is_cuda=True, device=torch.device("cuda", index)
            ),
        )
        for index in (0, 0, 1)
    )

    with pytest.raises(ValueError, match="q, k and v must be on the same device, got cuda:0, cuda:0, cuda:1"):
        flash_attention(q, k, v)


def test_an_unsupported_dtype_is_refused_and_the_supported_ones_named(normal: Normal) -> None:
    x = normal(1, 1, 4, 16, dtype=torch.float64)

    with pytest.raises(
        TypeError, match=r"unsupported dtype torch\.float64\n.*float16, torch\.bfloat16, torch\.float32"
    ):
        flash_attention(x, x, x)


@pytest.mark.parametrize("index", range(3), ids="qkv".__getitem__)
def test_dtypes_that_differ_are_refused(normal: Normal, index: int) -> None:
    qkv = [normal(1, 1, 4, 16) for _ in range(3)]
    qkv[index] = qkv[index].float()
    q, k, v = qkv

    with pytest.raises(TypeError, match="dtypes of q, k and v must match"):
        flash_attention(q, k, v)


@pytest.mark.parametrize("head_dim", [0, 8, 48, 512])
def test_an_unsupported_head_dimension_is_refused_and_the_supported_ones_named(normal: Normal, head_dim: int) -> None:
    x = normal(1, 1, 4, head_dim)

    with pytest.raises(ValueError, match=f"head_dim={head_dim} is not supported\n.*16, 32, 64, 96, 128, 192, 256"):
        flash_attention(x, x, x)


@pytest.mark.parametrize("values", [(), (4,), (4, 4, 4)], ids=str)
def test_lengths_of_another_number_than_the_batch_are_refused(normal: Normal, values: tuple[int, ...]) -> None:
    x = normal(2, 1, 4, 16)

    with pytest.raises(ValueError, match=rf"seq_lens must have length 2 .*got \({len(values)},\)"):
        flash_attention(x, x, x, seq_lens=lengths(*values))


def test_lengths_of_two_dimensions_are_refused(normal: Normal) -> None:
    x = normal(2, 1, 4, 16)

    with pytest.raises(ValueError, match=r"seq_lens must have length 2 .*got \(2, 1\)"):
        flash_attention(x, x, x, seq_lens=lengths(4, 4)[:, None])


@pytest.mark.parametrize("wrong", [-1, 5, 2**31 - 1])
def test_a_length_out_of_range_is_refused(normal: Normal, wrong: int) -> None:
    x = normal(2, 1, 4, 16)

    with pytest.raises(ValueError, match=f"seq_lens must be between 0 and 4, got {wrong}\n"):
        flash_attention(x, x, x, seq_lens=lengths(4, wrong))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool], ids=str)
def test_lengths_that_are_not_int32_are_refused(normal: Normal, dtype: torch.dtype) -> None:
    x = normal(1, 1, 4, 16)

    with pytest.raises(TypeError, match=f"seq_lens must be int32, got {dtype}"):
        flash_attention(x, x, x, seq_lens=lengths(1).to(dtype))


def test_lengths_in_a_list_are_refused(normal: Normal) -> None:
    x = normal(2, 1, 4, 16)

    with pytest.raises(TypeError, match=r"seq_lens must be a tensor, got \[1, 4\]\n  why: .*\n  do: .*torch\.int32"):
        flash_attention(x, x, x, seq_lens=cast("torch.Tensor", [1, 4]))


def test_fakes_are_refused_for_the_same_lengths(normal: Normal) -> None:
    q, k = normal(2, 1, 4, 16), normal(2, 1, 5, 16)

    with pytest.raises(ValueError, match="seq_lens cannot go with 4 queries and 5 keys"):
        attention._attention_of_fakes(q, k, k, causal=False, sm_scale=None, seq_lens=lengths(4, 4), out_dtype=None)


def test_lengths_on_the_host_are_refused(normal: Normal) -> None:
    x = normal(1, 1, 4, 16)

    with pytest.raises(ValueError, match="seq_lens must be a CUDA tensor, got one on cpu"):
        flash_attention(x, x, x, seq_lens=torch.tensor([1], dtype=torch.int32, device="cpu"))
