"""The RL objective of one micro-batch: policy loss, KL to the reference, entropy; and the sums that metrics are made of."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.update.batches import MicroBatch
from tasks.update.config import UpdateConfig
from tasks.update.kl import kl_penalty
from tasks.update.losses import LossPerToken, aggregate, cispo, dppo, gspo, ppo_clip
from tasks.update.masking import masked_sum


@dataclass(frozen=True)
class Targets:
    """What the loss of a micro-batch compares with; all [n, R], aligned with the micro-batch's mask."""

    old_log_probs: Tensor
    advantages: Tensor
    reference_log_probs: Tensor | None


SUMS = ("loss", "policy_loss", "kl", "entropy", "clipped", "clipped_dual", "old_kl", "tokens")
"""Entries of the vector that `objective` returns. `loss` and `policy_loss` are already normalised; the others are sums over tokens."""


def objective(
    batch: MicroBatch, log_probs: Tensor, entropies: Tensor, targets: Targets, config: UpdateConfig, normaliser: float
) -> tuple[Tensor, Tensor]:
    """log_probs, entropies [N] -> (this micro-batch's part of the optimizer step's loss, sums as named by SUMS).

    `normaliser` is the optimizer step's, over all micro-batches and ranks: parts are summed, never averaged.
    """
    mask = batch.mask
    new = batch.unflatten(log_probs)
    entropy = batch.unflatten(entropies)
    per_token, figures = policy_loss(new, targets, mask, config)
    policy = aggregate(per_token, mask, config.aggregation, normaliser)
    loss = policy
    kl_sum = torch.zeros((), device=mask.device)
    if targets.reference_log_probs is not None:
        kl = kl_penalty(new, targets.reference_log_probs, config.kl_estimator)
        kl_sum = masked_sum(kl.detach(), mask)
        if config.kl_coefficient > 0:
            loss = loss + config.kl_coefficient * aggregate(kl, mask, config.aggregation, normaliser)
    if config.entropy_coefficient > 0:
        loss = loss - config.entropy_coefficient * aggregate(entropy, mask, config.aggregation, normaliser)
    zero = torch.zeros_like(mask)
    sums = torch.stack(
        [
            loss.detach(),
            policy.detach(),
            kl_sum,
            masked_sum(entropy.detach(), mask),
            masked_sum(figures.get("clipped", zero).to(mask.dtype), mask),
            masked_sum(figures.get("clipped_dual", zero).to(mask.dtype), mask),
            masked_sum(targets.old_log_probs - new.detach(), mask),
            mask.sum(),
        ]
    ).double()
    return loss, sums


def policy_loss(log_probs: Tensor, targets: Targets, mask: Tensor, config: UpdateConfig) -> LossPerToken:
    """Return the configured loss per token [n, R], and its figures."""
    old, advantages = targets.old_log_probs, targets.advantages
    match config.policy_loss:
        case "ppo_clip":
            return ppo_clip(log_probs, old, advantages, config.clip_low, config.clip_high, config.dual_clip)
        case "gspo":
            return gspo(log_probs, old, advantages, mask, config.clip_low, config.clip_high)
        case "cispo":
            return cispo(log_probs, old, advantages, config.clip_low, config.clip_high)
        case "dppo":
            return dppo(log_probs, old, advantages, config.clip_low, config.clip_high)
