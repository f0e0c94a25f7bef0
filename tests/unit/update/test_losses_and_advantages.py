"""Invariances: order, padding, what lies outside the mask, the split into micro-batches."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from tasks.update import advantages, corrections, kl, losses
from tasks.update.doors import KL_ESTIMATOR

AGGREGATIONS = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"]
LOSSES = ["ppo_clip", "gspo", "cispo", "dppo"]
seeds = st.integers(0, 10_000)


def batch(seed: int, sequences: int = 6, tokens: int = 7) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(sequences, tokens, generator=generator) < 0.7).float()
    mask[:, 0] = 1
    old = -3 * torch.rand(sequences, tokens, generator=generator)
    new = (old + 0.5 * torch.randn(sequences, tokens, generator=generator)).clamp(max=0)
    advantage = torch.randn(sequences, 1, generator=generator).expand(sequences, tokens).clone()
    return {"new": new, "old": old, "advantage": advantage, "mask": mask}


def per_token(name: str, new: torch.Tensor, given_: dict[str, Any], rows: slice = slice(None)) -> torch.Tensor:
    old, advantage, mask = (given_[key][rows] for key in ("old", "advantage", "mask"))
    if name == "gspo":
        return losses.gspo(new[rows], old, advantage, mask)[0]
    return getattr(losses, name)(new[rows], old, advantage)[0]


@given(seed=seeds, name=st.sampled_from(LOSSES), how=st.sampled_from(AGGREGATIONS), cut=st.integers(1, 5))
def test_micro_batches_sum_to_the_whole(seed: int, name: str, how: Any, cut: int) -> None:
    data = batch(seed)
    whole = data["new"].clone().requires_grad_()
    losses.aggregate(per_token(name, whole, data), data["mask"], how).backward()
    split = data["new"].clone().requires_grad_()
    normaliser = losses.normaliser_of(data["mask"], how)
    for rows in (slice(0, cut), slice(cut, None)):
        losses.aggregate(per_token(name, split, data, rows), data["mask"][rows], how, normaliser).backward()
    torch.testing.assert_close(split.grad, whole.grad, atol=1e-6, rtol=1e-5)


@given(seed=seeds, name=st.sampled_from(LOSSES), how=st.sampled_from(AGGREGATIONS[:3]))
def test_padding_and_masked_tokens_do_not_matter(seed: int, name: str, how: Any) -> None:
    data = batch(seed)
    plain = losses.aggregate(per_token(name, data["new"], data), data["mask"], how)
    outside = data["mask"] == 0
    spoilt = {**data, "old": data["old"].masked_fill(outside, -7.0)}
    new = data["new"].masked_fill(outside, -2.0)
    padded = {key: torch.nn.functional.pad(value, (0, 3)) for key, value in spoilt.items()}
    found = losses.aggregate(per_token(name, torch.nn.functional.pad(new, (0, 3)), padded), padded["mask"], how)
    torch.testing.assert_close(found, plain, atol=1e-6, rtol=1e-5)


@given(seed=seeds, name=st.sampled_from(LOSSES))
def test_on_policy_every_loss_has_the_policy_gradient(seed: int, name: str) -> None:
    data = batch(seed)
    new = data["old"].clone().requires_grad_()
    losses.aggregate(per_token(name, new, data), data["mask"], "token_mean").backward()
    expected = -data["advantage"] * data["mask"] / data["mask"].sum()
    torch.testing.assert_close(new.grad, expected, atol=1e-6, rtol=1e-5)


@given(seed=seeds)
def test_dppo_leaves_out_only_what_moves_on(seed: int) -> None:
    data = batch(seed)
    new = data["new"].clone().requires_grad_()
    loss, figures = losses.dppo(new, data["old"], data["advantage"])
    loss.sum().backward()
    moved = data["new"].exp() - data["old"].exp()
    towards = moved * data["advantage"].sign()
    assert new.grad is not None
    assert bool((towards[figures["clipped"]] > 0.2).all())
    assert bool((new.grad[figures["clipped"]] == 0).all())


rewards = st.lists(st.tuples(st.sampled_from("abc"), st.floats(-3, 3, width=32)), min_size=1, max_size=12)


@given(rows=rewards, order=st.randoms(use_true_random=False))
def test_group_advantages_do_not_depend_on_order(rows: list[tuple[str, float]], order: Any) -> None:
    places = list(range(len(rows)))
    order.shuffle(places)
    for compute in (advantages.group_advantages, advantages.leave_one_out_advantages):
        plain = compute(torch.tensor([row[1] for row in rows]), [row[0] for row in rows])
        shuffled = compute(torch.tensor([rows[place][1] for place in places]), [rows[place][0] for place in places])
        torch.testing.assert_close(shuffled, plain[places], atol=1e-4, rtol=1e-4)


@given(rows=rewards, shift=st.floats(-2, 2, width=32))
def test_group_advantages_sum_to_zero_ignore_shifts_and_groups_of_one(
    rows: list[tuple[str, float]], shift: float
) -> None:
    scores, groups = torch.tensor([row[1] for row in rows]), [row[0] for row in rows]
    found = advantages.leave_one_out_advantages(scores, groups)
    torch.testing.assert_close(advantages.leave_one_out_advantages(scores + shift, groups), found, atol=1e-4, rtol=1e-4)
    for label in set(groups):
        of_group = found[[index for index, group in enumerate(groups) if group == label]]
        assert float(of_group.sum()) == pytest.approx(0, abs=1e-4)


def test_leave_one_out_is_what_it_says() -> None:
    scores = torch.tensor([1.0, 2.0, 6.0])
    expected = torch.tensor([1 - 4.0, 2 - 3.5, 6 - 1.5])
    torch.testing.assert_close(advantages.leave_one_out_advantages(scores, "aaa"), expected)


def test_as_many_labels_as_responses() -> None:
    with pytest.raises(InputError, match="one label a response"):
        advantages.group_advantages(torch.ones(3), ["a"])


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"mask: found the shape \(2, 4\), expected that of the loss, \(2, 3\)"):
        losses.aggregate(torch.ones(2, 3), torch.ones(2, 4))


@given(seed=seeds)
def test_gae_of_gamma_and_lambda_one_is_return_less_value(seed: int) -> None:
    data = batch(seed)
    reward = torch.randn(6, generator=torch.Generator().manual_seed(seed))
    token_rewards = advantages.outcome_rewards(reward, data["mask"])
    found, returns = advantages.gae(token_rewards, data["old"], data["mask"])
    kept = data["mask"].bool()
    expected = (reward[:, None] - data["old"])[kept]
    torch.testing.assert_close(found[kept], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(returns[kept], reward[:, None].expand_as(returns)[kept], atol=1e-5, rtol=1e-5)


@given(seed=seeds, name=st.sampled_from(sorted(KL_ESTIMATOR.ours)))
def test_kl_of_equal_policies_is_zero_with_zero_gradient(seed: int, name: str) -> None:
    reference = batch(seed)["old"]
    log_probs = reference.clone().requires_grad_()
    value = kl.kl_penalty(log_probs, reference, name)
    torch.testing.assert_close(value, torch.zeros_like(value))
    value.sum().backward()
    if name != "k1":
        torch.testing.assert_close(log_probs.grad, torch.zeros_like(reference))


def test_k2_has_the_gradient_of_the_kl_in_expectation_and_k3_has_not() -> None:
    """Checked on a small distribution by enumeration: Σ p ∇estimator against ∇KL."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.0, 0.5, -0.5, 0.2], dtype=torch.float64).log_softmax(-1)
    exact = (logits.softmax(-1) * (logits.log_softmax(-1) - reference)).sum()
    (expected,) = torch.autograd.grad(exact, logits)

    def gradient(name: str) -> torch.Tensor:
        log_probs = logits.log_softmax(-1)
        (found,) = torch.autograd.grad(
            (log_probs.exp().detach() * kl.kl_penalty(log_probs, reference, name)).sum(), logits
        )
        return found

    torch.testing.assert_close(gradient("k2"), expected)
    torch.testing.assert_close(gradient("k3_k2"), expected)
    assert not torch.allclose(gradient("k3"), expected, atol=1e-3)


@given(seed=seeds, level=st.sampled_from(["token", "sequence"]))
def test_weights_are_one_on_policy_and_bounded_off_policy(seed: int, level: Any) -> None:
    data = batch(seed)
    on_policy = corrections.truncated_weights(data["old"], data["old"], data["mask"], level=level)
    torch.testing.assert_close(on_policy, data["mask"])
    off_policy = corrections.truncated_weights(data["new"], data["old"], data["mask"], upper=2.0, level=level)
    assert bool((off_policy <= 2).all())
    assert bool((off_policy[data["mask"] == 0] == 0).all())


def test_one_impossible_token_vetoes_its_sequence() -> None:
    trainer = torch.tensor([[-1.0, -20.0, -1.0], [-1.0, -20.0, -1.0]])
    sampler = torch.full((2, 3), -1.0)
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    kept = corrections.veto_mask(trainer, sampler, mask)
    assert kept.tolist() == [[0, 0, 0], [1, 0, 1]]


def test_mismatch_of_equal_log_probs_is_nothing() -> None:
    data = batch(0)
    figures = corrections.mismatch(data["old"], data["old"], data["mask"])
    assert figures["mismatch_max_abs"] == 0
    assert figures["mismatch_ess"] == pytest.approx(1)
    assert set(corrections.mismatch(data["old"], data["old"], torch.zeros_like(data["mask"]))) == set(figures)


ANYTHING = [float("-inf"), float("inf"), float("nan"), -3e38, -300.0]


@given(
    seed=seeds,
    name=st.sampled_from([*LOSSES, *KL_ESTIMATOR.ours]),
    which=st.sets(st.sampled_from(["new", "old", "advantage"]), min_size=1),
    value=st.sampled_from(ANYTHING),
    how=st.sampled_from(AGGREGATIONS),
)
def test_nothing_outside_the_mask_reaches_the_gradient(seed: int, name: str, which: set[str], value: float, how: Any):
    data = batch(seed)
    outside = data["mask"] == 0

    def gradient(data: dict[str, torch.Tensor]) -> torch.Tensor:
        new = data["new"].clone().requires_grad_()
        loss = kl.kl_penalty(new, data["old"], name) if name in KL_ESTIMATOR.ours else per_token(name, new, data)
        losses.aggregate(loss, data["mask"], how).backward()
        assert new.grad is not None
        return new.grad

    spoilt = {**data, **{key: data[key].masked_fill(outside, value) for key in which}}
    found = gradient(spoilt)
    assert (found[outside] == 0).all()
    torch.testing.assert_close(found, gradient(data), atol=0, rtol=0)


@pytest.mark.parametrize("value", [float("-inf"), float("inf"), float("nan")])
def test_what_is_not_finite_outside_the_mask_leaves_the_value_loss_its_gradient(value: float) -> None:
    data = batch(3)
    for spoilt in ("new", "old", "advantage"):
        tensors = {**data, spoilt: data[spoilt].masked_fill(data["mask"] == 0, value)}
        values = tensors["new"].clone().requires_grad_()
        loss = losses.value_loss(values, tensors["old"], tensors["advantage"])[0]
        losses.aggregate(loss, data["mask"]).backward()
        assert values.grad is not None
        assert values.grad.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_within_the_mask_it_shows(name: str) -> None:
    data = batch(3)
    data["old"][0, 0] = float("nan")
    assert losses.aggregate(per_token(name, data["new"], data), data["mask"]).isnan()


@given(
    value=st.floats(-1e4, 1e4, width=32),
    number=st.integers(2, 64),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_equal_scores_have_no_advantage(value: float, number: int, dtype: torch.dtype) -> None:
    scores, groups = torch.full((number,), value, dtype=dtype), ["a"] * number
    mask = torch.ones(number, 1, dtype=dtype)
    found = [
        advantages.group_advantages(scores, groups),
        advantages.group_advantages(scores, groups, scale_by_std=False),
        advantages.leave_one_out_advantages(scores, groups),
        advantages.turn_grpo(scores[:, None], groups),
        advantages.turn_rloo(scores[:, None], groups),
    ]
    if dtype == torch.float32:  # whitens in float64, where the mean of equal float32 values is exact
        found.append(advantages.reinforce_plus_plus(scores, mask)[0])
    for result in found:
        assert result.dtype == dtype
        assert (result == 0).all()


@given(
    lengths=st.lists(st.integers(0, 100), min_size=1, max_size=8), limit=st.integers(1, 60), buffer=st.integers(0, 60)
)
def test_the_overlong_penalty_is_0_up_to_its_buffer_and_1_past_the_limit(
    lengths: list[int], limit: int, buffer: int
) -> None:
    found = advantages.soft_overlong_penalty(torch.tensor(lengths), limit, buffer).tolist()
    for length, penalty in zip(lengths, found, strict=True):
        assert 0 <= penalty <= 1
        assert penalty == 0 or length > limit - buffer
        assert penalty == 1 or length <= limit


def test_a_negative_overlong_buffer_is_refused() -> None:
    with pytest.raises(InputError, match="buffer: found -1"):
        advantages.soft_overlong_penalty(torch.tensor([3.0]), 20, -1)
