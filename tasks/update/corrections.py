"""Corrections for a sampler that is not quite the policy that trains: importance weights and rejection masks.

Shapes: log_probs, sampler_log_probs, mask [B, T]. `log_probs` are the training engine's at the start of the iteration, detached.
The log ratio is log π_train − log π_sampler. Weights multiply the policy loss per token; masks multiply the
loss mask. Entries outside the mask are 0 in both.
"""

from typing import Literal

import torch
from torch import Tensor

from tasks.update.masking import masked_mean, masked_sum

Level = Literal["token", "sequence"]
Estimator = Literal["k1", "k3"]
RejectionLevel = Literal["token", "seq_mean", "seq_sum"]

_LOG_RATIO_LIMIT = 20.0


def truncated_weights(
    log_probs: Tensor,
    sampler_log_probs: Tensor,
    mask: Tensor,
    upper: float = 2.0,
    lower: float = 0.0,
    level: Level = "token",
) -> Tensor:
    """Truncated importance sampling (TIS): the ratio clamped to [lower, upper], detached. Returns [B, T].

    `level="sequence"` gives every token the product of its sequence's ratios. Source: Yao et al. 2025, "Your efficient RL framework
    secretly brings you off-policy RL training"; Espeholt et al. 2018 (V-trace) for the truncation.
    """
    return _weights(log_probs, sampler_log_probs, mask, level).clamp(lower, upper) * mask


def icepop_weights(
    log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, lower: float = 0.5, upper: float = 5.0
) -> Tensor:
    """IcePop: the token ratio where it lies in [lower, upper], 0 elsewhere (the token is left out). Returns [B, T].

    Source: Ling team 2025, "Small leak can sink a great ship" (IcePop).
    """
    weights = _weights(log_probs, sampler_log_probs, mask, "token")
    return torch.where((weights >= lower) & (weights <= upper), weights, torch.zeros_like(weights)) * mask


def rejection_mask(
    log_probs: Tensor,
    sampler_log_probs: Tensor,
    mask: Tensor,
    upper: float,
    lower: float | None = None,
    level: RejectionLevel = "seq_mean",
    estimator: Estimator = "k1",
) -> Tensor:
    """Keep what is close enough to on-policy: a mask [B, T] of 0 and 1, 0 outside `mask`.

    `estimator="k1"`: the log ratio per token, its mean (geometric) or its sum over the sequence must lie in [log lower, log upper]; lower
    defaults to 1 / upper. `estimator="k3"`: the divergence per token, its mean or its sum must be at most `upper`.
    Source: verl 0.9 (rollout correction); Liu & Li 2025, "When speed kills stability".
    """
    log_ratio = _log_ratio(log_probs, sampler_log_probs)
    per_token = log_ratio if estimator == "k1" else torch.expm1(log_ratio) - log_ratio
    if level == "token":
        statistic = per_token
    elif level == "seq_mean":
        statistic = masked_mean(per_token, mask, dim=1)[:, None]
    else:
        statistic = masked_sum(per_token, mask, dim=1)[:, None]
    if estimator == "k1":
        low, high = torch.tensor([1 / upper if lower is None else lower, upper], dtype=statistic.dtype).log().tolist()
        kept = (statistic >= low) & (statistic <= high)
    else:
        kept = statistic <= upper
    return kept.to(mask.dtype) * mask


def veto_mask(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, smallest_ratio: float = 1e-4) -> Tensor:
    """Drop a whole sequence in which any token's ratio is below `smallest_ratio`: mask [B, T] of 0 and 1.

    Such a token is one that the trainer would next to never have sampled: the sampler was broken there. Source: verl 0.9.
    """
    log_ratio = log_probs - sampler_log_probs
    vetoed = ((log_ratio < torch.tensor(smallest_ratio).log()) & mask.bool()).any(dim=1, keepdim=True)
    return (~vetoed).to(mask.dtype) * mask


def off_policy_sequence_mask(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, delta: float = 1e-4
) -> Tensor:
    """OPSM: 0 for sequences with a negative advantage and a mean log ratio old − new above `delta`, else 1. Returns [B, T].

    The returned mask is constant along T and says nothing of which tokens count. Source: DeepSeek-V3.2 2025, section 3.1; as slime.
    """
    divergence = masked_mean(old_log_probs - log_probs, mask, dim=1)[:, None]
    dropped = (advantages < 0) & (divergence > delta)
    return (~dropped).to(mask.dtype)


def mismatch(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor) -> dict[str, float]:
    """How far sampler and trainer are apart: mean and largest |Δ log-prob|, k3, largest ratio, effective sample size (share of tokens)."""
    kept = mask.bool()
    if not bool(kept.any()):
        return dict.fromkeys(
            ("mismatch_mean_abs", "mismatch_max_abs", "mismatch_k3", "mismatch_max_ratio", "mismatch_ess"), 0.0
        )
    log_ratio = (log_probs - sampler_log_probs)[kept].double()
    ratio = log_ratio.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT).exp()
    return {
        "mismatch_mean_abs": float(log_ratio.abs().mean()),
        "mismatch_max_abs": float(log_ratio.abs().max()),
        "mismatch_k3": float((torch.expm1(log_ratio) - log_ratio).mean()),
        "mismatch_max_ratio": float(ratio.max()),
        "mismatch_ess": float(ratio.sum() ** 2 / (ratio**2).sum() / ratio.numel()),
    }


def _weights(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, level: Level) -> Tensor:
    log_ratio = (log_probs - sampler_log_probs).detach()
    if level == "sequence":
        log_ratio = masked_sum(log_ratio, mask, dim=1)[:, None].expand_as(log_ratio)
    return torch.where(
        mask.bool(), log_ratio.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT).exp(), torch.zeros_like(log_ratio)
    )


def _log_ratio(log_probs: Tensor, sampler_log_probs: Tensor) -> Tensor:
    return (log_probs - sampler_log_probs).detach().clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
