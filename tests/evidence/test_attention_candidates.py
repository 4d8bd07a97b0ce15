from __future__ import annotations

import math
import pickle

import pytest
import torch
from evidence.attention_candidates import HELD_OUT, LARGEST_ERROR, AttentionExperiment, Compilation, Sampled, Sizes

from flopwatch.kernels.hopper_attention import HOPPER_ATTENTION, hopper_attention
from flopwatch.kernels.hopper_attention_kernel import hopper_attention_kernel


def test_points_have_the_work_of_their_masks_and_sequences() -> None:
    points = {point.name: point for point in AttentionExperiment().points()}

    assert 48 == len(points)
    # 4 B H S S D: 32 batches of 32 heads, 512 x 512 scores of 64 products each, twice
    assert 4.0 * 32 * 32 * 512 * 512 * 64 == points["64 full 512"].flops
    assert points["64 full 512"].flops == 2 * points["64 causal 512"].flops
    assert points["256 causal 16384"].flops == 32 * points["64 causal 512"].flops


def test_what_is_held_out_was_not_raced_and_has_one_candidate() -> None:
    experiment = AttentionExperiment(held_out=True)
    raced = {Sizes.of(point) for point in AttentionExperiment().points()}
    held_out = [Sizes.of(point) for point in experiment.points()]

    assert len(set(held_out)) == len(HELD_OUT)
    assert not raced & set(held_out)
    assert [len(experiment.candidates(sizes)) for sizes in held_out] == [1] * len(HELD_OUT)


def test_each_configuration_is_compiled_once_for_all_sequences() -> None:
    experiment = AttentionExperiment()

    jobs = {job for point in experiment.points() for job in experiment.compilations(point)}

    assert 2 * sum(len(HOPPER_ATTENTION[head_dim]) for head_dim in (32, 64, 128, 256)) == len(jobs)
    assert jobs == {pickle.loads(pickle.dumps(job)) for job in jobs}  # noqa: S301 - its own


def test_the_experiment_goes_to_other_processes() -> None:
    experiment = AttentionExperiment(flex=True)

    assert experiment == pickle.loads(pickle.dumps(experiment))  # noqa: S301 - its own
    assert experiment.source == pickle.loads(pickle.dumps(experiment)).source  # noqa: S301 - its own


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_right_passes_and_what_is_not_does_not(causal: bool) -> None:
    q, k, v = torch.randn(3, 2, 3, 200, 16)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    sampled = Sampled(q, k, v, causal=causal)

    assert sampled.error(right.half()) < LARGEST_ERROR / 2
    last = right.clone()
    last[-1, -1, -1] = 0
    poisoned = right.clone()
    poisoned[0, 1, 77, 3] = math.nan

    assert sampled.error(last) > LARGEST_ERROR
    assert math.isnan(sampled.error(poisoned))
    assert sampled.error(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=not causal)) > 0.1


@pytest.mark.gpu
def test_what_is_compiled_is_what_is_launched() -> None:
    config = HOPPER_ATTENTION[64][0]
    q = torch.randn(1, 32, 512, 64, device="cuda", dtype=torch.float16)
    Compilation(64, causal=True, config=config)()
    caches = hopper_attention_kernel.device_caches[torch.cuda.current_device()]
    compiled = len(caches[0])

    hopper_attention(q, q, q, config, causal=True)

    assert compiled == len(caches[0]) > 0
