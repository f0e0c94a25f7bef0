"""Policy losses per token (PPO, GSPO, CISPO, DPPO), the value loss, and their aggregation to a scalar. Pure functions.

Shapes: log_probs (of the policy being trained), old_log_probs (of the policy that the step starts from), advantages,
mask: [B, T]. Each loss returns (loss per token [B, T], detached per-token figures for metrics). `aggregate` turns the
first into a scalar whose sum over micro-batches and ranks is the optimizer step's loss.

A token with an input that is not finite has the loss NaN and no gradient. Outside the mask it counts nowhere; within
it, it shows in the scalar.
"""

from collections.abc import Collection
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from kernels_eval.errors import InputError
from tasks.update.config import Aggregation

Divergence = Literal["tv", "kl"]
LossPerToken = tuple[Tensor, dict[str, Tensor]]

LOG_RATIO_LIMIT = 20.0
_SEQUENCE_LOG_RATIO_LIMIT = 10.0
_TINY = 1e-8


def ppo_clip(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float | None = 3.0,
) -> LossPerToken:
    """PPO's clipped surrogate, with a bound on the loss of negative advantages. Figures: `clipped`, `clipped_dual`.

    Sources: Schulman et al. 2017, eq. 7; asymmetric range: Yu et al. 2025 (DAPO); dual clip: Ye et al. 2020, eq. 5.
    """
    _check_shapes(log_probs, old_log_probs, advantages)
    usable, (log_probs, old_log_probs, advantages) = _usable(log_probs, old_log_probs, advantages)
    ratio = _ratio(log_probs, old_log_probs)
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(unclipped, clipped)
    figures = {"clipped": (clipped > unclipped).detach()}
    if dual_clip is not None:
        bound = -advantages * dual_clip
        figures["clipped_dual"] = ((loss > bound) & (advantages < 0)).detach()
        loss = torch.where(advantages < 0, torch.minimum(loss, bound), loss)
    return _shown(loss, usable), figures


def gspo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> LossPerToken:
    """GSPO: PPO's surrogate on the sequence's geometric mean ratio, the same for each of its tokens. Figure: `clipped`.

    Gradients reach each token through its own log-probability (the paper's GSPO-token form, equal to GSPO where
    advantages are constant in a sequence). Source: Zheng et al. 2025, eqs. 5 and 14.
    """
    _check_shapes(log_probs, old_log_probs, advantages, mask)
    mean_log_ratio = masked_mean(log_probs.detach() - old_log_probs, mask, dim=1)[:, None]
    usable, (log_probs, advantages) = _usable(log_probs, advantages)
    straight_through = log_probs - log_probs.detach()
    ratio = (mean_log_ratio + straight_through).clamp(max=_SEQUENCE_LOG_RATIO_LIMIT).exp()
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    return _shown(torch.maximum(unclipped, clipped), usable), {"clipped": (clipped > unclipped).detach()}


def cispo(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip_low: float = 1.0, clip_high: float = 4.0
) -> LossPerToken:
    """CISPO: REINFORCE weighted by the clipped, detached ratio: no token loses its gradient. Figure: `clipped`.

    Source: MiniMax 2025 (MiniMax-M1), eq. 4.
    """
    _check_shapes(log_probs, old_log_probs, advantages)
    usable, (log_probs, old_log_probs, advantages) = _usable(log_probs, old_log_probs, advantages)
    ratio = _ratio(log_probs, old_log_probs).detach()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    return _shown(-weight * advantages * log_probs, usable), {"clipped": weight != ratio}


def dppo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    ratio_cap: float = 20.0,
    divergence: Divergence = "tv",
) -> LossPerToken:
    """DPPO with a binary divergence: leaves out tokens whose probability moved too far. Figure: `clipped`.

    The others are REINFORCE weighted by the detached ratio, at most `ratio_cap`. `divergence="tv"`: a token is left
    out where p - p_old > clip_high with a positive advantage, or p_old - p > clip_low with a negative one.
    `divergence="kl"`: the same with the Kullback-Leibler divergence of (p_old, 1 - p_old) from (p, 1 - p), where p
    has moved the way that the advantage pushes. Source: Qi et al. 2026, "Rethinking the Trust Region in LLM
    Reinforcement Learning" (Divergence PPO), sections 4 and 5.4; as verl 0.9.
    """
    _check_shapes(log_probs, old_log_probs, advantages)
    check_choice("divergence", divergence, get_args(Divergence))
    usable, (log_probs, old_log_probs, advantages) = _usable(log_probs, old_log_probs, advantages)
    probability, old_probability = log_probs.detach().exp(), old_log_probs.exp()
    if divergence == "tv":
        rose = fell = probability - old_probability
    else:
        kept, old_kept = 1 - probability + _TINY, 1 - old_probability + _TINY
        moved = old_probability * (old_log_probs - log_probs.detach()) + (1 - old_probability) * (old_kept / kept).log()
        rose, fell = moved * (probability > old_probability), -moved * (probability < old_probability)
    left_out = torch.where(advantages > 0, rose > clip_high, fell < -clip_low)
    loss = -advantages * _ratio(log_probs, old_log_probs).detach().clamp(max=ratio_cap) * log_probs
    return _shown(torch.where(left_out, torch.zeros_like(loss), loss), usable), {"clipped": left_out}


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, value_clip: float | None = 0.5) -> LossPerToken:
    """PPO's value loss per token [B, T]: half the larger squared error, clipped or not. Figure: `clipped`.

    values (of the critic being trained), old_values (of the critic before the update), returns: [B, T]. `value_clip`
    bounds how far a value may move from the old one; None: not at all. Source: Schulman et al. 2017 as in OpenAI's
    baselines; as verl 0.9.
    """
    usable, (values, old_values, returns) = _usable(values, old_values, returns)
    error = (values - returns) ** 2
    if value_clip is None:
        return _shown(0.5 * error, usable), {"clipped": torch.zeros_like(error, dtype=torch.bool)}
    clipped = (torch.clamp(values, old_values - value_clip, old_values + value_clip) - returns) ** 2
    return _shown(0.5 * torch.maximum(error, clipped), usable), {"clipped": (clipped > error).detach()}


def aggregate(loss: Tensor, mask: Tensor, how: Aggregation = "token_mean", normaliser: float | None = None) -> Tensor:
    """Turn a loss per token [B, T] into a scalar.

    `normaliser` is what to divide by, fixed for the whole optimizer step over all micro-batches and ranks (see
    `normaliser_of`); None takes it from this mask, as for a step of one micro-batch. Sequences without a token count
    nowhere. `seq_mean_token_sum_norm` also divides by T, the width of the mask, unless a normaliser that includes it
    is given.
    """
    check_choice("how", how, get_args(Aggregation))
    if loss.shape != mask.shape:
        raise InputError(f"mask: found the shape {tuple(mask.shape)}, expected that of the loss, {tuple(loss.shape)}")
    per_token = masked_sum(loss, mask, dim=1)
    if how == "seq_mean_token_mean":
        per_token = per_token / mask.sum(dim=1).clamp(min=1)
    divisor = normaliser_of(mask, how) if normaliser is None else normaliser
    return per_token.sum() / divisor


def normaliser_of(mask: Tensor, how: Aggregation, length: int | None = None) -> float:
    """Return the divisor of `aggregate` for a batch: tokens, sequences, or sequences × `length` (the mask's width)."""
    check_choice("how", how, get_args(Aggregation))
    if how == "token_mean":
        return max(float(mask.sum()), 1.0)
    sequences = max(float((mask.sum(dim=1) > 0).sum()), 1.0)
    if how == "seq_mean_token_sum_norm":
        return sequences * (mask.shape[1] if length is None else length)
    return sequences


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of values [B, T] where mask [B, T] is set. What lies outside the mask may be anything, NaN included."""
    kept = torch.where(mask.bool(), values, torch.zeros_like(values))
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of values [B, T] where mask [B, T] is set; 0 if it is set nowhere."""
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(values, mask, dim) / count.clamp(min=1)


def given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None; a function's own defaults stand for the others."""
    return {name: value for name, value in options.items() if value is not None}


def per_token(found: Any, like: Tensor, where: str) -> Tensor:
    """Return what a named function gave for each token. Raises InputError if its shape is not that of `like`."""
    shape = tuple(getattr(found, "shape", ()))
    if not isinstance(found, Tensor) or shape != tuple(like.shape):
        what = f"the shape {shape}" if isinstance(found, Tensor) else type(found).__name__
        raise InputError(f"{where} returned {what}, expected a number for each token, {tuple(like.shape)}")
    return found


def check_choice(argument: str, found: str, known: Collection[str]) -> None:
    """Raise InputError if `found` is none of the names."""
    if found not in known:
        raise InputError(f"{argument}: found {found!r}, expected one of {', '.join(known)}")


def _ratio(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    return (log_probs - old_log_probs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def _usable(*inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return where all inputs are finite, and the inputs with 0 where they are not.

    A gradient of 0 (the token is outside the mask) times an infinite factor would be NaN.
    """
    usable = torch.stack(torch.broadcast_tensors(*(values.isfinite() for values in inputs))).all(dim=0)
    return usable, [torch.where(values.isfinite(), values, torch.zeros_like(values)) for values in inputs]


def _shown(loss: Tensor, usable: Tensor) -> Tensor:
    return torch.where(usable, loss, torch.full_like(loss, torch.nan))


def _check_shapes(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor | None = None) -> None:
    """Raise InputError if shapes differ: broadcasting would silently mix tokens with sequences."""
    shape = log_probs.shape
    given = {"old_log_probs": old_log_probs, "advantages": advantages} | ({} if mask is None else {"mask": mask})
    for name, tensor in given.items():
        of_sequences = name == "advantages" and tensor.shape == (*shape[:-1], 1)
        if tensor.shape != shape and not of_sequences:
            raise InputError(
                f"{name}: found the shape {tuple(tensor.shape)}, expected that of log_probs, {tuple(shape)}"
            )
