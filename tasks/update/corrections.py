"""Corrections for a sampler that is not quite the policy that trains: importance weights and rejection masks.

Shapes: log_probs, sampler_log_probs, mask [B, T]. `log_probs` are the training engine's at the start of the
iteration, detached. The log ratio is log π_train − log π_sampler. Weights multiply the policy loss per token; masks
multiply the loss mask. Entries outside the mask are 0 in both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from tasks.update.config import CorrectionConfig
from tasks.update.doors import CORRECTION
from tasks.update.losses import LOG_RATIO_LIMIT, check_choice, given, masked_mean, masked_sum, per_token

Level = Literal["token", "sequence"]
Estimator = Literal["k1", "k3"]
RejectionLevel = Literal["token", "seq_mean", "seq_sum"]

_REJECTION_LEVELS: dict[str, RejectionLevel] = {"token": "token", "sequence": "seq_sum", "geometric": "seq_mean"}


@dataclass(frozen=True)
class Correction:
    """Factors of the policy loss; both [B, T], 0 outside the mask."""

    weights: Tensor
    """Importance weights, 0 for a token that is left out."""
    kept: Tensor
    """1 for a token that is kept."""


def truncated_weights(
    log_probs: Tensor,
    sampler_log_probs: Tensor,
    mask: Tensor,
    upper: float = 2.0,
    lower: float = 0.0,
    level: Level = "token",
) -> Tensor:
    """Truncated importance sampling (TIS): the ratio clamped to [lower, upper], detached. Returns [B, T].

    `level="sequence"` gives every token the product of its sequence's ratios. Source: Yao et al. 2025, "Your
    efficient RL framework secretly brings you off-policy RL training"; Espeholt et al. 2018 (V-trace) for the
    truncation.
    """
    return _weights(log_probs, sampler_log_probs, mask, level).clamp(lower, upper) * mask


def icepop_weights(
    log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, lower: float = 0.5, upper: float = 5.0
) -> Tensor:
    """IcePop: the token ratio if it lies in [lower, upper], 0 elsewhere (the token is left out). Returns [B, T].

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

    With log w = log_probs − sampler_log_probs, limited to ±20, both estimate the divergence of the policy that trains
    from the sampler: `estimator="k1"` is −log w; per token, its mean (geometric) or its sum over the sequence must
    lie in [log lower, log upper], lower being 1 / upper by default. `estimator="k3"` is w − 1 − log w; per token, its
    mean or its sum must be at most `upper`. Source: verl 0.9 (rollout correction); Liu & Li 2025, "When speed kills
    stability".
    """
    check_choice("level", level, get_args(RejectionLevel))
    check_choice("estimator", estimator, get_args(Estimator))
    log_ratio = _log_ratio(log_probs, sampler_log_probs)
    per_token = -log_ratio if estimator == "k1" else torch.expm1(log_ratio) - log_ratio
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

    The trainer would next to never have sampled such a token: the sampler was broken there. Source: verl 0.9.
    """
    log_ratio = log_probs - sampler_log_probs
    vetoed = ((log_ratio < torch.tensor(smallest_ratio).log()) & mask.bool()).any(dim=1, keepdim=True)
    return (~vetoed).to(mask.dtype) * mask


def off_policy_sequence_mask(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, delta: float = 1e-4
) -> Tensor:
    """OPSM: 0 for sequences with a negative advantage whose mean log ratio old − new exceeds `delta`, else 1. [B, T].

    The returned mask is constant along T and says nothing of which tokens count. Source: DeepSeek-V3.2 2025, section
    3.1; as slime.
    """
    divergence = masked_mean(old_log_probs - log_probs, mask, dim=1)[:, None]
    dropped = (advantages < 0) & (divergence > delta)
    return (~dropped).to(mask.dtype)


def token_tis(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, settings: CorrectionConfig) -> Tensor:
    """TIS by the token's own ratio, within the settings' bounds."""
    return truncated_weights(log_probs, sampler_log_probs, mask, level="token", **_bounds(settings))


def sequence_tis(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, settings: CorrectionConfig) -> Tensor:
    """TIS by the ratio of the token's sequence, within the settings' bounds."""
    return truncated_weights(log_probs, sampler_log_probs, mask, level="sequence", **_bounds(settings))


def icepop(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, settings: CorrectionConfig) -> Tensor:
    """IcePop within the settings' bounds."""
    return icepop_weights(log_probs, sampler_log_probs, mask, **_bounds(settings))


def uncorrected(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, settings: CorrectionConfig) -> Tensor:
    """Weight 1 for every token."""
    return mask


def _bounds(settings: CorrectionConfig) -> dict[str, float]:
    return given(lower=settings.lower, upper=settings.upper)


def correction(
    log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, settings: CorrectionConfig | None = None
) -> Correction:
    """Weights and kept tokens as configured; by default token TIS with C = 2, and the veto at 1e-4. Shapes as above.

    Rejected tokens still count in the loss's normaliser: a step that rejects much moves less.
    """
    settings = CorrectionConfig() if settings is None else settings
    found = CORRECTION.load(settings.weights)(log_probs, sampler_log_probs, mask, settings)
    weights = per_token(found, mask, f"update.correction.weights: {settings.weights}")
    kept = mask
    if settings.rejection != "none":
        kept = kept * rejection_mask(
            log_probs,
            sampler_log_probs,
            mask,
            settings.rejection_upper,
            settings.rejection_lower,
            _REJECTION_LEVELS[settings.rejection],
            settings.rejection_estimator,
        )
    if settings.veto is not None:
        kept = kept * veto_mask(log_probs, sampler_log_probs, mask, settings.veto)
    return Correction(weights=weights * kept, kept=kept)


def mismatch_sums(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Return the parts of `mismatch` in float64: sums, which add up over micro-batches and ranks, and maxima [2]."""
    kept = mask.bool()
    log_ratio = (log_probs - sampler_log_probs).detach()[kept].double()
    ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    sums = {
        "difference": log_ratio.abs().sum(),
        "k3": (torch.expm1(log_ratio) - log_ratio).sum(),
        "ratio": ratio.sum(),
        "squared_ratio": (ratio**2).sum(),
        "compared": kept.sum(),
    }
    if not ratio.numel():
        return sums, torch.zeros(2, dtype=ratio.dtype, device=ratio.device)
    return sums, torch.stack([log_ratio.abs().max(), ratio.max()])


def mismatch_of_sums(sums: Mapping[str, float], maxima: Tensor) -> dict[str, float]:
    """Return the figures of `mismatch` from sums and maxima over any number of micro-batches; 0 without a token."""
    count = max(sums["compared"], 1.0)
    largest_difference, largest_ratio = maxima.tolist()
    return {
        "mismatch_mean_abs": sums["difference"] / count,
        "mismatch_max_abs": largest_difference,
        "mismatch_k3": sums["k3"] / count,
        "mismatch_max_ratio": largest_ratio,
        "mismatch_ess": sums["ratio"] ** 2 / (sums["squared_ratio"] or 1.0) / count,
    }


def mismatch(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor) -> dict[str, float]:
    """Return the difference of sampler and trainer: |Δ log-prob|, k3, ratio, effective sample size."""
    sums, maxima = mismatch_sums(log_probs, sampler_log_probs, mask)
    return mismatch_of_sums({name: float(value) for name, value in sums.items()}, maxima)


def _weights(log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor, level: Level) -> Tensor:
    check_choice("level", level, get_args(Level))
    log_ratio = (log_probs - sampler_log_probs).detach()
    if level == "sequence":
        log_ratio = masked_sum(log_ratio, mask, dim=1)[:, None].expand_as(log_ratio)
    return torch.where(
        mask.bool(), log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp(), torch.zeros_like(log_ratio)
    )


def _log_ratio(log_probs: Tensor, sampler_log_probs: Tensor) -> Tensor:
    return (log_probs - sampler_log_probs).detach().clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
