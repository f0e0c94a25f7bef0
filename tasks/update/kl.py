"""Per-token estimators of KL(policy || reference) from the log-probabilities of the sampled tokens.

Source of k1, k2, k3: Schulman 2020, "Approximating KL divergence". Values are unbiased for k1 and k3; the *gradient* of
k2 is the KL's, k3's own is not, hence the straight-through default `k3_k2`. Its value is limited: one token that became
10 nats less likely has a k3 of 22,000, more than all others of a step together. A token whose value is not finite has
no gradient.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tasks.update.doors import KL_ESTIMATOR
from tasks.update.losses import LOG_RATIO_LIMIT, per_token

_KL_LIMIT = 10.0


def k1(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """The log ratio: unbiased, of high variance, can be negative."""
    return log_probs - reference_log_probs


def k2(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """Half the squared log ratio: biased, low variance; its gradient is an unbiased estimate of the KL's."""
    return _with_finite_gradient(lambda log_ratio: 0.5 * log_ratio**2, log_probs - reference_log_probs)


def k3(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """exp(-k1) - 1 + k1: unbiased, never negative."""
    return _with_finite_gradient(lambda log_ratio: torch.expm1(log_ratio) - log_ratio, reference_log_probs - log_probs)


def low_var_kl(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """k3 with the log ratio clamped to ±20 and the value to ±10 (as verl and slime do)."""
    log_ratio = (reference_log_probs - log_probs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return (torch.expm1(log_ratio) - log_ratio).clamp(-_KL_LIMIT, _KL_LIMIT)


def k3_k2(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """The value of `low_var_kl` with the gradient of k2 (straight-through)."""
    gradient = k2(log_probs, reference_log_probs)
    return gradient + (low_var_kl(log_probs, reference_log_probs) - gradient).detach()


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {name: globals()[name] for name in KL_ESTIMATOR.ours}
"""Ours, by the names of `update.kl_estimator`."""


def kl_penalty(log_probs: Tensor, reference_log_probs: Tensor, estimator: str) -> Tensor:
    """Return the named estimator's value per token (`update.kl_estimator`)."""
    found = KL_ESTIMATOR.load(estimator)(log_probs, reference_log_probs)
    return per_token(found, log_probs, f"update.kl_estimator: {estimator}")


def _with_finite_gradient(function: Callable[[Tensor], Tensor], log_ratio: Tensor) -> Tensor:
    """Return function(log_ratio), with the gradient 0 where the value is not finite.

    A gradient of 0 (the token is outside the mask) times an infinite factor would be NaN.
    """
    value = function(log_ratio.detach())
    finite = value.isfinite()
    return torch.where(finite, function(torch.where(finite, log_ratio, torch.zeros_like(log_ratio))), value)
