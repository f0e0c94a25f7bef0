"""The canary tells right weights from wrong ones, and new ones from those just before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.rollout.engines.sglang.canary import Answer, canary_prompts, compare, verified_weights

PROMPT, NEW = 150, 16


def server_answers(logprobs: np.ndarray, noise: np.ndarray, again: np.ndarray | None = None) -> list[Answer]:
    """Four prompts of distinct tokens, each with its continuation; `again`: the noise of the second scoring."""
    again = noise if again is None else again
    answers: list[Answer] = []
    for row in range(4):
        first, second = logprobs[row] + noise[row], logprobs[row] + again[row]
        ids = tuple(range(1000 * row, 1000 * row + PROMPT + NEW))
        answers.append(Answer(ids, PROMPT, tuple(first.tolist()), tuple(second[: PROMPT - 1].tolist())))
    return answers


def weights(seed: int) -> np.ndarray:
    return -np.random.default_rng(seed).exponential(2.0, (4, PROMPT + NEW - 1))


def test_right_weights_pass_and_others_do_not() -> None:
    right, other = weights(0), weights(1)
    noise = np.random.default_rng(2).normal(0, 0.05, right.shape)
    accepted = compare(server_answers(right, noise), right)
    assert accepted.tokens == right.size
    assert accepted.mean_difference == pytest.approx(0.04, abs=0.005)
    assert accepted.refusal(0.1) is None
    refused = compare(server_answers(right, noise), other)
    assert "expected a mean of at most 0.1" in (refused.refusal(0.1) or "")


def test_numbers_that_are_none_are_refused() -> None:
    right = weights(0)
    assert compare(server_answers(right, np.full(right.shape, np.nan)), right).refusal(0.1) is not None


@settings(max_examples=60, deadline=None)
@given(
    step=st.floats(0.0005, 0.05),
    rounding=st.floats(0, 0.06),
    jitter=st.floats(0, 0.00005),
    stale=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_an_update_far_below_the_rounding_is_seen(
    step: float, rounding: float, jitter: float, stale: bool, seed: int
) -> None:
    """New weights are rounded anew: the change of the answers is mostly noise. But stale ones do not change at all."""
    generator = np.random.default_rng(seed)
    old = weights(seed)
    new = old + generator.normal(0, step, old.shape)
    common, other = (generator.normal(0, rounding, old.shape) for _ in range(2))
    first, second, third = (generator.normal(0, jitter, old.shape) for _ in range(3))
    before = verified_weights("old", server_answers(old, common + first), old)
    held, noise = (old, common) if stale else (new, other)
    result = compare(server_answers(held, noise + second, noise + third), new, before)
    assert (result.refusal(0.2) is None) == (not stale)


@settings(max_examples=60, deadline=None)
@given(step=st.floats(0.02, 0.2), noise=st.floats(0, 0.7), stale=st.booleans(), seed=st.integers(0, 1000))
def test_a_server_that_never_repeats_itself_is_seen_through_where_the_step_is_no_smaller_than_its_noise(
    step: float, noise: float, stale: bool, seed: int
) -> None:
    """A share's standard error is √2·noise/√596 ≤ 0.041: the bounds below lie at least 7 of them away."""
    jitter = noise * step
    generator = np.random.default_rng(seed)
    old = weights(seed)
    new = old + generator.normal(0, step, old.shape)
    first, second, third = (generator.normal(0, jitter, old.shape) for _ in range(3))
    before = verified_weights("old", server_answers(old, first), old)
    result = compare(server_answers(old if stale else new, second, third), new, before)
    assert result.shift is not None
    assert result.shift.share == pytest.approx(0 if stale else 1, abs=0.5)
    assert result.shift.is_stale == stale


@settings(max_examples=60, deadline=None)
@given(
    step=st.floats(1e-6, 0.003),
    rounding=st.floats(0, 0.06),
    jitter=st.floats(0, 0.06),
    seed=st.integers(0, 1000),
)
def test_noise_convicts_nobody(step: float, rounding: float, jitter: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    old = weights(seed)
    new = old + generator.normal(0, step, old.shape)
    first, second, third = (generator.normal(0, jitter, old.shape) for _ in range(3))
    before = verified_weights("old", server_answers(old, generator.normal(0, rounding, old.shape) + first), old)
    noise = generator.normal(0, rounding, old.shape)
    result = compare(server_answers(new, noise + second, noise + third), new, before)
    assert result.shift is not None
    assert not result.shift.is_stale


@settings(max_examples=60, deadline=None)
@given(
    step=st.floats(1e-6, 0.05),
    rounding=st.floats(0.002, 0.06),
    jitter=st.floats(0, 0.0001),
    stale=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_checkpoint_that_is_rounded_itself_convicts_only_who_stood_still(
    step: float, rounding: float, jitter: float, stale: bool, seed: int
) -> None:
    """In bfloat16 on other hardware each change of the weights is rounded anew on both sides, and not alike."""
    generator = np.random.default_rng(seed)
    old = weights(seed)
    new = old + generator.normal(0, step, old.shape)
    rounded = [generator.normal(0, rounding, old.shape) for _ in range(4)]
    first, second, third = (generator.normal(0, jitter, old.shape) for _ in range(3))
    before = verified_weights("old", server_answers(old, rounded[0] + first), old + rounded[1])
    held, noise = (old, rounded[0]) if stale else (new, rounded[2])
    result = compare(server_answers(held, noise + second, noise + third), new + rounded[3], before)
    assert result.shift is not None
    assert result.shift.is_stale == stale


def test_an_update_that_changes_nothing_convicts_nobody() -> None:
    old = weights(0)
    answers = server_answers(old, np.zeros(old.shape))
    assert compare(answers, old, verified_weights("old", answers, old)).refusal(0.1) is None


def test_other_prompts_than_before_tell_nothing() -> None:
    old, new = weights(0), weights(0) + 0.01
    before = verified_weights("old", server_answers(old, np.zeros(old.shape))[:3], old[:3])
    assert compare(server_answers(old, np.zeros(old.shape)), new, before).shift is None


def test_prompts_are_fixed_fit_the_context_and_end_where_the_answer_begins(small_tokenizer: object) -> None:
    prompts = canary_prompts(small_tokenizer, 6, 2048)
    assert prompts == canary_prompts(small_tokenizer, 6, 2048)
    assert len(set(prompts)) == 6
    short = canary_prompts(small_tokenizer, 6, 64)
    assert all(2 <= len(prompt) <= 64 - 16 for prompt in short)
    for whole, cut in zip(prompts, short, strict=True):
        assert whole[-len(cut) :] == cut
