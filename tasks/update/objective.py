"""The RL objective of one micro-batch: policy loss, KL to the reference, entropy; and the sums behind the metrics."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.training.batches import MicroBatch
from tasks.update.config import UpdateConfig
from tasks.update.corrections import Correction, correction
from tasks.update.doors import POLICY_LOSS
from tasks.update.kl import kl_penalty
from tasks.update.losses import LossPerToken, aggregate, masked_sum, per_token


@dataclass(frozen=True)
class Targets:
    """Targets of a micro-batch's loss; all [n, R], aligned with the micro-batch's mask."""

    old_log_probs: Tensor | None
    """Of the policy that the ratio starts from; None: of the policy itself, as it is now."""
    sampler_log_probs: Tensor | None
    """Of the policy that sampled, if its other numerics are corrected for."""
    advantages: Tensor
    reference_log_probs: Tensor | None


def objective(
    batch: MicroBatch, log_probs: Tensor, entropies: Tensor, targets: Targets, config: UpdateConfig, normaliser: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """log_probs, entropies [N] -> (this micro-batch's part of the optimizer step's loss, sums over its tokens).

    The sums are for metrics; of them `loss` and `policy_loss` are already normalised.

    `normaliser` is the optimizer step's, over all micro-batches and ranks: parts are summed, never averaged.
    """
    mask = batch.mask
    new = batch.unflatten(log_probs)
    entropy = batch.unflatten(entropies)
    old = new.detach() if targets.old_log_probs is None else targets.old_log_probs
    if targets.sampler_log_probs is None:
        corrected = Correction(weights=mask, kept=mask)
    else:
        corrected = correction(old, targets.sampler_log_probs, mask, config.correction)
    losses, figures = policy_loss(new, old, targets.advantages, mask, config)
    policy = aggregate(losses * corrected.weights, mask, config.aggregation, normaliser)
    loss = policy
    kl_sum = torch.zeros((), device=mask.device)
    if targets.reference_log_probs is not None:
        kl = kl_penalty(new, targets.reference_log_probs, config.kl_estimator)
        kl_sum = masked_sum(kl.detach(), mask)
        if config.kl_coefficient > 0 and config.kl_in == "loss":
            loss = loss + config.kl_coefficient * aggregate(kl * corrected.kept, mask, config.aggregation, normaliser)
    if config.entropy_coefficient > 0:
        bonus = aggregate(entropy * corrected.kept, mask, config.aggregation, normaliser)
        loss = loss - config.entropy_coefficient * bonus
    zero = torch.zeros_like(mask)
    sums = {
        "loss": loss.detach(),
        "policy_loss": policy.detach(),
        "kl": kl_sum,
        "entropy": masked_sum(entropy.detach(), mask),
        "clipped": masked_sum(figures.get("clipped", zero).to(mask.dtype), mask),
        "clipped_dual": masked_sum(figures.get("clipped_dual", zero).to(mask.dtype), mask),
        "old_kl": masked_sum(old - new.detach(), mask),
        "weight": corrected.weights.sum(),
        "rejected": (mask - corrected.kept).sum(),
        "tokens": mask.sum(),
    }
    return loss, sums


def policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, config: UpdateConfig
) -> LossPerToken:
    """Return the configured loss per token [n, R] and its figures. Raises InputError if its shape is another one."""
    found = POLICY_LOSS.load(config.policy_loss)(log_probs, old_log_probs, advantages, mask, config)
    loss, figures = found if isinstance(found, tuple) else (found, {})
    return per_token(loss, log_probs, f"update.policy_loss: {config.policy_loss}"), figures
