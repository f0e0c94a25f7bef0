"""Draws follow the distribution, and depend on nothing but the sequence's own seed."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines.local.sampling import draw, uniform_numbers

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -torch.inf, 0.5])


def frequencies(sampling: SamplingConfig, draws: int = 40_000) -> np.ndarray:
    tokens, logprobs = draw(LOGITS.expand(draws, -1), uniform_numbers([7], draws)[0], sampling)
    torch.testing.assert_close(logprobs, LOGITS.log_softmax(0)[tokens])
    return np.bincount(tokens.numpy(), minlength=len(LOGITS)) / draws


def hugging_face(sampling: SamplingConfig) -> np.ndarray:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores = LOGITS.clone().unsqueeze(0)
    warpers = []
    if sampling.temperature != 1:
        warpers.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    for warper in warpers:
        scores = warper(torch.zeros((1, 1), dtype=torch.int64), scores)
    return scores.softmax(-1)[0].numpy()


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(),
        SamplingConfig(temperature=0.5),
        SamplingConfig(temperature=2.0),
        SamplingConfig(top_k=2),
        SamplingConfig(top_p=0.7),
        SamplingConfig(temperature=1.5, top_k=4, top_p=0.8),
    ],
    ids=str,
)
def test_same_distribution_as_hugging_face(sampling: SamplingConfig) -> None:
    expected = hugging_face(sampling)
    assert np.abs(frequencies(sampling) - expected).max() < 0.01
    assert (frequencies(sampling)[expected == 0] == 0).all()


def test_greedy_takes_the_likeliest() -> None:
    assert frequencies(SamplingConfig(temperature=0), 10).argmax() == 0


@settings(max_examples=50, deadline=None)
@example(291, 53, 0.0)  # a token of a probability that single precision has few digits for
@given(st.integers(2, 400), st.integers(0, 2**62), st.sampled_from([0.0, 1.0 - 2**-53, 0.5]))
def test_never_draws_the_impossible(vocabulary: int, seed: int, uniform: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((1, vocabulary), generator=generator) * 20
    logits[0, torch.rand(vocabulary, generator=generator) < 0.5] = -torch.inf
    logits[0, int(seed % vocabulary)] = 0.0
    token, logprob = draw(logits, torch.tensor([uniform], dtype=torch.float64), SamplingConfig())
    assert 0 <= int(token) < vocabulary
    assert torch.isfinite(logits[0, int(token)])
    torch.testing.assert_close(logprob, logits.log_softmax(-1)[0, token])


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 1000), st.integers(0, 2**62))
def test_a_draw_inverts_the_cumulative_distribution(vocabulary: int, seed: int) -> None:
    """By blocks or not: the first token whose cumulative probability exceeds the uniform number."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((8, vocabulary), generator=generator, dtype=torch.float64) * 3
    uniforms = uniform_numbers([seed], 8)[0]
    tokens, _ = draw(logits, uniforms, SamplingConfig())
    cumulative = logits.softmax(-1).cumsum(-1)
    for row, token in enumerate(tokens.tolist()):
        # Up to the rounding of single precision.
        assert uniforms[row] < cumulative[row, token] + 1e-6
        assert token == 0 or uniforms[row] >= cumulative[row, token - 1] - 1e-6


def test_uniforms_depend_on_their_own_seed_alone() -> None:
    together = uniform_numbers([5, 6, 7], 10)
    assert torch.equal(together[1], uniform_numbers([6], 10)[0])
    assert not torch.equal(together[0], together[1])
    assert torch.equal(uniform_numbers([6], 20)[0, :10], together[1])
