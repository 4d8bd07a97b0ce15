from __future__ import annotations

import pytest
import torch

from flopwatch.kernels import reference
from flopwatch.kernels.reference import attention_reference, matmul_reference, vector_add_reference


def test_a_matmul_is_computed_in_float64_from_the_inputs_as_they_are() -> None:
    a, b = torch.randn(7, 5), torch.randn(5, 3)

    c = matmul_reference(a, b)

    assert c.dtype == torch.float64
    assert torch.equal(c, torch.einsum("mk,kn->mn", a.double(), b.double()).double())


def test_a_sum_is_computed_in_float64() -> None:
    x, y = torch.tensor([2049.0]).half(), torch.tensor([1.0]).half()

    assert vector_add_reference(x, y).tolist() == [2049.0]
    assert vector_add_reference(torch.tensor([1e-9]), torch.tensor([1.0])).item() != 1.0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sm_scale", [None, 0.7])
@pytest.mark.parametrize("shape", [(2, 3, 11, 8), (3, 11, 8), (1, 1, 1, 4)], ids=str)
def test_attention_agrees_with_torch(shape: tuple[int, ...], sm_scale: float | None, causal: bool) -> None:
    q, k, v = (torch.randn(shape) for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=causal, scale=sm_scale
    )

    out = attention_reference(q, k, v, causal=causal, sm_scale=sm_scale)

    assert out.dtype == torch.float64
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_a_negative_scale_is_that_of_negated_queries(causal: bool) -> None:
    q, k, v = (torch.randn(2, 11, 8) for _ in range(3))

    out = attention_reference(q, k, v, causal=causal, sm_scale=-0.7)

    assert torch.equal(out, attention_reference(-q, k, v, causal=causal, sm_scale=0.7))


@pytest.mark.parametrize("causal", [False, True])
def test_lengths_cut_the_sequence_and_leave_zeros(causal: bool) -> None:
    q, k, v = (torch.randn(3, 2, 9, 4) for _ in range(3))
    lengths = torch.tensor([9, 0, 4], dtype=torch.int32)
    k[2, :, 4:] = v[2, :, 4:] = float("nan")

    out = attention_reference(q, k, v, causal=causal, seq_lens=lengths)

    for entry, length in enumerate(lengths.tolist()):
        short_q, short_k, short_v = (tensor[entry : entry + 1, :, :length] for tensor in (q, k, v))
        expected = attention_reference(short_q, short_k, short_v, causal=causal)
        assert torch.equal(out[entry : entry + 1, :, :length], expected)
        assert not out[entry, :, length:].any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 3])
def test_shared_heads_are_as_heads_that_were_repeated(kv_heads: int, causal: bool) -> None:
    q, k, v = torch.randn(2, 6, 9, 4), torch.randn(2, kv_heads, 9, 4), torch.randn(2, kv_heads, 9, 4)
    out = attention_reference(q, k, v, causal=causal)

    k, v = (tensor.repeat_interleave(6 // kv_heads, dim=1) for tensor in (k, v))
    assert torch.equal(out, attention_reference(q, k, v, causal=causal))


@pytest.mark.parametrize("keys", [1, 5, 9, 14])
def test_a_causal_mask_ends_at_the_last_query_and_the_last_key(keys: int) -> None:
    q, k, v = torch.randn(2, 9, 4), torch.randn(2, keys, 4), torch.randn(2, keys, 4)
    mask = torch.ones(9, keys).tril(diagonal=keys - 9).bool()
    blind = max(0, 9 - keys)

    out = attention_reference(q, k, v, causal=True)

    expected = torch.nn.functional.scaled_dot_product_attention(
        q[:, blind:].double(), k.double(), v.double(), attn_mask=mask[blind:]
    )
    torch.testing.assert_close(out[:, blind:], expected, rtol=1e-12, atol=1e-12)
    assert not out[:, :blind].any()


def test_keys_of_another_number_are_all_seen_without_a_mask() -> None:
    q, k, v = torch.randn(2, 3, 9, 4), torch.randn(2, 3, 14, 4), torch.randn(2, 3, 14, 4)
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())

    torch.testing.assert_close(attention_reference(q, k, v), expected, rtol=1e-12, atol=1e-12)
    assert not attention_reference(q, k[:, :, :0], v[:, :, :0]).any()


@pytest.mark.parametrize("causal", [False, True])
def test_computing_some_rows_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    q, k, v = (torch.randn(2, 2, 13, 4) for _ in range(3))
    expected = attention_reference(q, k, v, causal=causal)
    monkeypatch.setattr(reference, "_SCORES_AT_ONCE", 4 * 13)

    out = attention_reference(q, k, v, causal=causal)

    torch.testing.assert_close(out, expected, rtol=1e-14, atol=1e-14)
