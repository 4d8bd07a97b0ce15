"""What the kernel does beyond one length and one number of heads, and how much it reads."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import triton
from triton.language import target_info
from triton.runtime import interpreter

from flopwatch.kernels import attention, flash_attention
from flopwatch.kernels.attention_kernel import attention_kernel, pointers_walk
from flopwatch.kernels.reference import attention_reference
from flopwatch.measure.numbers import difference
from flopwatch.poison import PoisonedAllocations

if TYPE_CHECKING:
    from collections.abc import Callable

    Normal = Callable[..., torch.Tensor]

CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
#: In units of the result's epsilon: as of float16 in test_attention.py, and of bfloat16 likewise. In float32 what
#: remains is the rounding of weights and inputs to float16, up to 2**-11 each: 2**12 epsilons of float32, times four
#: since scores and values may be larger than the result.
CEILING_EPS = {torch.float16: 1.5, torch.bfloat16: 1.5, torch.float32: 2.0**14}
HAS_GPU = torch.cuda.is_available()


def error_eps(out: torch.Tensor, reference: torch.Tensor) -> float:
    error = difference(out, reference).max_diff_eps
    return float("inf") if error is None else error


@CAUSAL
@pytest.mark.parametrize("out_dtype", [None, torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_every_dtype_of_the_result_is_as_exact_as_it_can_be(
    normal: Normal, dtype: torch.dtype, out_dtype: torch.dtype | None, causal: bool
) -> None:
    q, k, v = (normal(2, 1, 140, 32, dtype=dtype) for _ in range(3))

    with PoisonedAllocations():
        out = flash_attention(q, k, v, causal=causal, out_dtype=out_dtype)

    assert out.dtype == (out_dtype or torch.float16)
    assert error_eps(out, attention_reference(q, k, v, causal=causal)) <= CEILING_EPS[out.dtype]


@pytest.mark.parametrize(("is_hip", "version"), [(True, "3.6.1"), (True, "3.7.1"), (False, "3.6.0")])
def test_pointers_stay_for_amd_with_triton_3_6_alone(
    monkeypatch: pytest.MonkeyPatch, is_hip: bool, version: str
) -> None:
    monkeypatch.setattr(target_info, "is_hip", lambda: is_hip)
    monkeypatch.setattr(triton, "__version__", version)

    assert pointers_walk() == (version != "3.6.1")


@CAUSAL
@pytest.mark.skipif(HAS_GPU, reason="is about the interpreter")
def test_pointers_that_stay_lead_to_the_same_keys(
    normal: Normal, monkeypatch: pytest.MonkeyPatch, causal: bool
) -> None:
    q, k, v = (normal(1, 2, length, 96) for length in (140, 300, 300))
    expected = flash_attention(q, k, v, causal=causal)
    asked: list[bool] = []

    def stay() -> bool:
        asked.append(True)
        return False

    monkeypatch.setattr(sys.modules[attention_kernel.fn.__module__], "pointers_walk", stay)

    with PoisonedAllocations():
        assert torch.equal(flash_attention(q, k, v, causal=causal), expected)
    assert asked


def test_asking_for_float16_changes_nothing(normal: Normal) -> None:
    q, k, v = (normal(1, 2, 40, 32) for _ in range(3))

    assert torch.equal(flash_attention(q, k, v), flash_attention(q, k, v, out_dtype=torch.float16))


def test_bfloat16_that_is_asked_for_keeps_its_range(normal: Normal) -> None:
    q, k, v = (normal(1, 1, 40, 32, dtype=torch.bfloat16) for _ in range(3))
    q, k, v = q * 2.0**-30, k * 2.0**30, v * 2.0**40

    out = flash_attention(q, k, v, out_dtype=torch.bfloat16)

    assert error_eps(out, attention_reference(q, k, v)) <= CEILING_EPS[torch.bfloat16]


@CAUSAL
@pytest.mark.parametrize("varied", [False, True], ids=["one length", "seq_lens"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 2), (3, 1)])
def test_heads_of_keys_and_values_are_shared(
    normal: Normal, heads: int, kv_heads: int, varied: bool, causal: bool
) -> None:
    q, k, v = (normal(2, number, 70, 16) for number in (heads, kv_heads, kv_heads))
    seq_lens = torch.tensor([70, 33], dtype=torch.int32, device=q.device) if varied else None

    with PoisonedAllocations():
        out = flash_attention(q, k, v, causal=causal, seq_lens=seq_lens)

    assert error_eps(out, attention_reference(q, k, v, causal=causal, seq_lens=seq_lens)) <= CEILING_EPS[out.dtype]
    k, v = (tensor.repeat_interleave(heads // kv_heads, dim=1) for tensor in (k, v))
    assert torch.equal(out, flash_attention(q, k, v, causal=causal, seq_lens=seq_lens))


LENGTHS = ["1x1", "1x200", "200x1", "40x41", "64x128", "130x70", "200x64", "70x200"]
LARGE_LENGTHS = ["1x8192", "128x4096", "1000x3333", "3333x1000"]


@CAUSAL
@pytest.mark.parametrize("lengths", LENGTHS + LARGE_LENGTHS * HAS_GPU)
def test_keys_may_be_more_or_fewer_than_queries(normal: Normal, lengths: str, causal: bool) -> None:
    S, S_KV = map(int, lengths.split("x"))
    q, k, v = normal(2, 2, S, 32), normal(2, 1, S_KV, 32), normal(2, 1, S_KV, 32)

    with PoisonedAllocations():
        out = flash_attention(q, k, v, causal=causal)

    assert error_eps(out, attention_reference(q, k, v, causal=causal)) <= CEILING_EPS[out.dtype]
    if causal:
        assert not out[:, :, : max(0, S - S_KV)].any()


@pytest.mark.parametrize("head_dim", [96, 192, 256])
def test_a_head_dimension_of_two_parts_has_both_at_any_stride(normal: Normal, head_dim: int) -> None:
    q, k, v = (normal(1, 70, 2, 2 * head_dim).transpose(1, 2)[..., ::2] for _ in range(3))

    with PoisonedAllocations():
        out = flash_attention(q, k[:, :1], v[:, :1], sm_scale=-0.1)

    assert error_eps(out, attention_reference(q, k[:, :1], v[:, :1], sm_scale=-0.1)) <= CEILING_EPS[out.dtype]


@CAUSAL
def test_three_dimensions_may_have_more_keys_too(normal: Normal, causal: bool) -> None:
    q, k, v = normal(3, 20, 16), normal(3, 50, 16), normal(3, 50, 16)

    with PoisonedAllocations():
        out = flash_attention(q, k, v, causal=causal)

    assert error_eps(out, attention_reference(q, k, v, causal=causal)) <= CEILING_EPS[out.dtype]


def test_the_last_query_sees_all_keys_and_torch_s_first_query_sees_one(normal: Normal) -> None:
    q, k, v = normal(1, 1, 3, 16), normal(1, 1, 5, 16), normal(1, 1, 5, 16)
    ours = flash_attention(q, k, v, causal=True).double()

    def of_torch(**mask: Any) -> torch.Tensor:  # noqa: ANN401 - torch's own
        of_q, of_k, of_v = (tensor.cpu().double() for tensor in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(of_q, of_k, of_v, **mask).to(ours.device)

    mask = torch.ones(3, 5, device="cpu").tril(diagonal=2).bool()
    torch.testing.assert_close(ours, of_torch(attn_mask=mask), rtol=2e-3, atol=2e-3)
    assert not torch.allclose(ours, of_torch(is_causal=True), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shape", [(2, 1, 7, 16), (3, 7, 16)], ids=str)
def test_without_keys_everything_is_zero(normal: Normal, shape: tuple[int, ...]) -> None:
    q = normal(*shape)
    k = q[..., :0, :]

    with PoisonedAllocations():
        out = flash_attention(q, k, k)

    assert out.shape == shape
    assert not out.any()


class Counting:
    """Triton's interpreter, and how many elements of memory it was asked for."""

    def __init__(self) -> None:
        self.loaded = 0
        self._real = interpreter._interpreter

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - untyped triton
        return getattr(self._real, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:  # noqa: ANN401 - untyped triton
        self.loaded += int(np.count_nonzero(np.broadcast_to(mask, np.shape(pointers))))
        return self._real.load(pointers, mask, other, dtype)


@pytest.fixture
def loaded(normal: Normal, cuda: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Count what attention of a batch loads, in blocks of 64 queries and 32 keys of 16 dimensions."""
    if HAS_GPU:
        pytest.skip("counts what the interpreter loads")
    only = triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_warps=4, num_stages=1)
    monkeypatch.setitem(attention._autotuned, 16, triton.autotune([only], key=[])(attention_kernel))
    counting = Counting()
    monkeypatch.setattr(interpreter, "_interpreter", counting)

    def count(*lengths: int, causal: bool = False) -> int:
        q, k, v = (normal(len(lengths), 1, 256, 16) for _ in range(3))
        before = counting.loaded
        flash_attention(q, k, v, causal=causal, seq_lens=torch.tensor(lengths, dtype=torch.int32, device=cuda))
        return counting.loaded - before

    return count


def expected_loads(*lengths: int) -> int:
    """Count Q once, K and V once for each block of queries, and each of four programs' length."""
    return sum(4 + 16 * (length + 2 * length * math.ceil(length / 64)) for length in lengths)


def test_work_falls_with_the_lengths(loaded: Callable[..., int]) -> None:
    whole, spread, none = loaded(256, 256, 256, 256), loaded(64, 128, 192, 256), loaded(0, 0, 0, 0)

    assert (whole, spread, none) == (
        expected_loads(256, 256, 256, 256),
        expected_loads(64, 128, 192, 256),
        expected_loads(0, 0, 0, 0),
    )
    assert spread / whole < 0.5  # the mean of the squared lengths is 0.47, that of the lengths 0.63


def test_causal_work_falls_with_the_lengths_too(loaded: Callable[..., int]) -> None:
    work = [loaded(length, length, causal=True) for length in (0, 32, 64, 128, 192, 256)]

    assert work == sorted(set(work))
    assert work[-1] < loaded(256, 256)


def test_a_launch_without_the_second_length_is_compiled_as_if_there_were_none(
    normal: Normal, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    class Noting:
        def __getitem__(self, _grid: object) -> Callable[..., Any]:
            return lambda *arguments, **_constants: given.append(arguments[5:9])

    monkeypatch.setitem(attention._autotuned, 16, Noting())
    monkeypatch.setattr(attention, "_launches", SimpleNamespace(again=lambda *_: None, keep=lambda *_: None))
    flash_attention(normal(1, 6, 8, 16), normal(1, 2, 8, 16), normal(1, 2, 8, 16))
    flash_attention(normal(1, 6, 8, 16), normal(1, 6, 9, 16), normal(1, 6, 9, 16))

    assert given == [(6, 3, 8, None), (6, 1, 8, 9)]
