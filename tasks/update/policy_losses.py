"""Policy losses by name: each calls a formula of tasks.update.losses with the update's settings.

A loss is a function (log_probs, old_log_probs, advantages, mask, settings): tensors [n, R], n responses of at most R
tokens, and the UpdateConfig. It returns the loss of each token [n, R], or that and figures by name, each [n, R]. An
unset clip range is the formula's own default.
"""

from typing import Any

from torch import Tensor

from tasks.update import losses
from tasks.update.config import UpdateConfig
from tasks.update.losses import LossPerToken


def ppo_clip(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, settings: UpdateConfig
) -> LossPerToken:
    """PPO's clipped surrogate with a dual clip."""
    return losses.ppo_clip(log_probs, old_log_probs, advantages, dual_clip=settings.dual_clip, **_range(settings))


def gspo(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, settings: UpdateConfig
) -> LossPerToken:
    """PPO's surrogate on the sequence's mean ratio."""
    return losses.gspo(log_probs, old_log_probs, advantages, mask, **_range(settings))


def cispo(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, settings: UpdateConfig
) -> LossPerToken:
    """REINFORCE weighted by the clipped ratio."""
    return losses.cispo(log_probs, old_log_probs, advantages, **_range(settings))


def dppo(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, settings: UpdateConfig
) -> LossPerToken:
    """REINFORCE without the tokens whose probability moved too far."""
    return losses.dppo(log_probs, old_log_probs, advantages, **_range(settings))


def _range(settings: UpdateConfig) -> dict[str, Any]:
    return losses.given(clip_low=settings.clip_low, clip_high=settings.clip_high)
