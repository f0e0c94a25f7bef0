"""Advantages, losses with gradients, KL estimators and corrections equal those of verl, OpenRLHF and slime to 1e-5."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.training.batches import TrainedSequence
from tasks.trajectories.returns import turn_returns
from tasks.update import advantages, corrections, kl, losses
from tasks.update.config import UpdateConfig
from tasks.update.credit_assignment import Sample, credit

VECTORS = json.loads((Path(__file__).parent / "policy_optimisation_vectors.json").read_text())
GROUPS = VECTORS["inputs"]["group"]
OUTPUTS = VECTORS["outputs"]


def given(name: str) -> Tensor:
    return torch.tensor(VECTORS["inputs"][name])


def assert_equal(found: Tensor, expected: Any) -> None:
    torch.testing.assert_close(found.float(), torch.tensor(expected), atol=1e-5, rtol=0)


def test_group_advantages() -> None:
    rewards, mask = given("rewards"), given("mask")
    assert_equal(advantages.grpo(rewards, GROUPS, mask), OUTPUTS["grpo_adv_std"])
    assert_equal(advantages.dr_grpo(rewards, GROUPS, mask), OUTPUTS["grpo_adv_nostd(dr_grpo)"])
    assert_equal(advantages.rloo(rewards, GROUPS, mask), OUTPUTS["rloo_adv"])


def test_reinforce_plus_plus() -> None:
    found, returns = advantages.reinforce_plus_plus(given("rewards"), given("mask"), gamma=0.9)
    assert_equal(found, OUTPUTS["reinforce_pp_gamma0.9"]["adv"])
    assert_equal(returns, OUTPUTS["reinforce_pp_gamma0.9"]["ret"])


def test_gae_that_skips_observations() -> None:
    mask = given("mask")
    token_rewards = advantages.outcome_rewards(given("rewards"), mask)
    found, returns = advantages.gae(token_rewards, given("values"), mask, gamma=0.99, lam=0.95, whiten=True)
    assert_equal(found, OUTPUTS["gae_skip_obs_g0.99_l0.95"]["adv_whitened"])
    assert_equal(returns * mask, OUTPUTS["gae_skip_obs_g0.99_l0.95"]["ret_masked"])


def test_gae_without_a_mask() -> None:
    token_rewards = advantages.outcome_rewards(given("rewards"), given("mask"))
    found, _ = advantages.gae(token_rewards, given("values"), gamma=0.99, lam=0.95)
    assert_equal(found, OUTPUTS["slime_gae_nomask_g0.99_l0.95"]["adv"])


def test_turn_returns_and_their_baselines() -> None:
    expected = OUTPUTS["kevin_turn_returns_gamma0.4"]
    returns = torch.tensor([turn_returns(rewards, gamma=0.4) for rewards in expected["turn_rewards"]])
    assert_equal(returns, expected["returns"])
    one_problem = ["a"] * 4
    assert_equal(advantages.turn_grpo(returns, one_problem), expected["grpo_turn_adv_std"])
    assert_equal(advantages.turn_rloo(returns, one_problem), expected["trloo"])


def loss_and_gradient(loss_of: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    log_probs = given("new_logp").requires_grad_()
    loss = loss_of(log_probs)
    loss.backward()
    assert log_probs.grad is not None
    return loss.detach(), log_probs.grad


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("token-mean", "token_mean"),
        ("seq-mean-token-mean", "seq_mean_token_mean"),
        ("seq-mean-token-sum", "seq_mean_token_sum"),
        ("seq-mean-token-sum-norm", "seq_mean_token_sum_norm"),
    ],
)
def test_ppo_with_dual_clip(theirs: str, ours: losses.Aggregation) -> None:
    loss, gradient = loss_and_gradient(
        lambda new: losses.aggregate(
            losses.ppo_clip(new, given("old_logp"), given("adv"), 0.2, 0.28, 3.0)[0], given("mask"), ours
        )
    )
    assert_equal(loss, OUTPUTS[f"ppo_clip(0.2,0.28,c=3)/{theirs}"]["loss"])
    assert_equal(gradient, OUTPUTS[f"ppo_clip(0.2,0.28,c=3)/{theirs}"]["grad"])


@pytest.mark.parametrize("kind", ["tis", "icepop"])
def test_ppo_with_a_correction_for_the_sampler(kind: str) -> None:
    old, sampler, mask = given("old_logp"), given("rollout_logp"), given("mask")
    if kind == "tis":
        weights = corrections.truncated_weights(old, sampler, mask, lower=0.5, upper=5)
    else:
        weights = corrections.icepop_weights(old, sampler, mask, lower=0.5, upper=5)
    loss, gradient = loss_and_gradient(
        lambda new: losses.aggregate(losses.ppo_clip(new, old, given("adv"), 0.2, 0.28, None)[0] * weights, mask)
    )
    assert_equal(loss, OUTPUTS[f"openrlhf_ppo_{kind}[0.5,5]"]["loss"])
    assert_equal(gradient, OUTPUTS[f"openrlhf_ppo_{kind}[0.5,5]"]["grad"])


def test_gspo() -> None:
    mask = given("mask")
    loss, gradient = loss_and_gradient(
        lambda new: losses.aggregate(
            losses.gspo(new, given("old_logp"), given("adv"), mask, 3e-4, 4e-4)[0], mask, "seq_mean_token_mean"
        )
    )
    assert_equal(loss, OUTPUTS["openrlhf_gspo(3e-4,4e-4)_seqmean"]["loss"])
    assert_equal(gradient, OUTPUTS["openrlhf_gspo(3e-4,4e-4)_seqmean"]["grad"])


def test_cispo() -> None:
    loss, gradient = loss_and_gradient(
        lambda new: losses.aggregate(losses.cispo(new, given("old_logp"), given("adv"), 1.0, 4.0)[0], given("mask"))
    )
    assert_equal(loss, OUTPUTS["slime_cispo(1.0,4.0)_tokenmean"]["loss"])
    assert_equal(gradient, OUTPUTS["slime_cispo(1.0,4.0)_tokenmean"]["grad"])


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "low_var_kl"])
@pytest.mark.parametrize("source", ["verl", "slime"])
def test_kl_estimators(estimator: str, source: str) -> None:
    found = kl.kl_penalty(given("new_logp"), given("ref_logp"), estimator) * given("mask")
    assert_equal(found, OUTPUTS[f"kl_{estimator}"][source])


def test_k3_with_the_gradient_of_k2() -> None:
    new, reference = given("new_logp").requires_grad_(), given("ref_logp")
    value = kl.k3_k2(new, reference)
    assert_equal(value.detach() * given("mask"), OUTPUTS["kl_k3"]["verl"])
    value.sum().backward()
    assert new.grad is not None
    assert_equal(new.grad, (given("new_logp") - reference).tolist())


def test_off_policy_sequence_mask() -> None:
    found = corrections.off_policy_sequence_mask(
        given("new_logp"), given("old_logp"), given("adv"), given("mask"), 1e-4
    )
    assert_equal(found, OUTPUTS["slime_opsm_mask_delta1e-4"])


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_importance_weights(level: corrections.Level) -> None:
    found = corrections.truncated_weights(
        given("old_logp"), given("rollout_logp"), given("mask"), upper=2.0, level=level
    )
    assert_equal(found, OUTPUTS[f"verl_is_{level}_thr2"])


@pytest.mark.parametrize(
    ("level", "estimator", "lower", "upper", "name"),
    [
        ("seq_mean", "k1", 0.9, 1.1, "verl_rs_seq_mean_k1_0.9_1.1"),
        ("seq_sum", "k1", 0.5, 2.0, "verl_rs_seq_sum_k1_0.5_2.0"),
        ("token", "k1", 0.5, 2.0, "verl_rs_token_k1_0.5_2.0"),
        ("seq_mean", "k3", None, 0.02, "verl_rs_seq_mean_k3_0.02"),
    ],
)
def test_rejection_masks(level: Any, estimator: Any, lower: float | None, upper: float, name: str) -> None:
    found = corrections.rejection_mask(
        given("old_logp"), given("rollout_logp"), given("mask"), upper, lower, level, estimator
    )
    assert_equal(found, OUTPUTS[name])


def samples_of(scores: list[float], groups: list[str], turns: list[int], trajectories: list[str]) -> list[Sample]:
    """One sample a score; its response has as many tokens as its row of the vectors' mask, or one."""
    lengths = [int(row.sum()) for row in given("mask")] if len(scores) == len(GROUPS) else [1] * len(scores)
    return [
        Sample(
            score=score,
            group=(group, turn, "solver"),
            trajectory=trajectory,
            sequence=TrainedSequence(np.zeros(length + 1, np.int32), np.arange(length + 1) > 0),
            sampler_log_probs=np.zeros(length, np.float32),
            return_=score,
        )
        for score, group, turn, trajectory, length in zip(scores, groups, turns, trajectories, lengths, strict=True)
    ]


def of_tokens(rows: list[Tensor]) -> Tensor:
    """Lay advantages [R_i] out on the vectors' mask."""
    mask = given("mask")
    return torch.zeros_like(mask).masked_scatter(mask.bool(), torch.cat(rows))


@pytest.mark.parametrize(
    ("advantage", "name"), [("grpo", "grpo_adv_std"), ("dr_grpo", "grpo_adv_nostd(dr_grpo)"), ("rloo", "rloo_adv")]
)
def test_an_update_computes_these_advantages(advantage: Any, name: str) -> None:
    rewards = VECTORS["inputs"]["rewards"]
    trajectories = [str(row) for row in range(len(rewards))]
    samples = samples_of(rewards, [str(group) for group in GROUPS], [0] * len(rewards), trajectories)
    for choice in (advantage, f"turn_{advantage}"):
        if choice != "turn_dr_grpo":
            assert_equal(of_tokens(credit(samples, UpdateConfig(advantage=choice)).advantages), OUTPUTS[name])


def test_an_update_computes_these_advantages_of_tokens() -> None:
    rewards, mask = VECTORS["inputs"]["rewards"], given("mask")
    samples = samples_of(rewards, [str(group) for group in GROUPS], [0] * len(rewards), [""] * len(rewards))
    found = credit(samples, UpdateConfig(advantage="reinforce_pp", gamma=0.9))
    assert_equal(of_tokens(found.advantages), OUTPUTS["reinforce_pp_gamma0.9"]["adv"])
    values = [row[kept.bool()] for row, kept in zip(given("values"), mask, strict=True)]
    found = credit(samples, UpdateConfig(advantage="gae", gamma=0.99, gae_lambda=0.95), values=values)
    expected = OUTPUTS["gae_skip_obs_g0.99_l0.95"]
    assert_equal(of_tokens(found.advantages), (torch.tensor(expected["adv_whitened"]) * mask).tolist())
    assert found.returns is not None
    assert_equal(of_tokens(found.returns), expected["ret_masked"])


@pytest.mark.parametrize(("advantage", "name"), [("turn_grpo", "grpo_turn_adv_std"), ("turn_rloo", "trloo")])
def test_an_update_computes_these_advantages_of_turns(advantage: Any, name: str) -> None:
    expected = OUTPUTS["kevin_turn_returns_gamma0.4"]
    places = [(row, turn) for row, returns in enumerate(expected["returns"]) for turn in range(len(returns))]
    samples = samples_of(
        [expected["returns"][row][turn] for row, turn in places],
        ["a"] * len(places),
        [turn for _, turn in places],
        [str(row) for row, _ in places],
    )
    found = credit(samples, UpdateConfig(advantage=advantage)).advantages
    assert_equal(torch.cat(found), [expected[name][row][turn] for row, turn in places])
