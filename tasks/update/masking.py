"""Sums and means over the tokens that count. Shapes: B sequences, T token positions; a mask is 1 where a token counts."""

import torch
from torch import Tensor


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of values [B, T] where mask [B, T] is set. What lies outside the mask may be anything, NaN included."""
    kept = torch.where(mask.bool(), values, torch.zeros_like(values))
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of values [B, T] where mask [B, T] is set; 0 where it is set nowhere."""
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(values, mask, dim) / count.clamp(min=1)


def masked_whiten(values: Tensor, mask: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Shift and scale all of values [B, T] by the mean and the unbiased variance of those where mask is set."""
    mean = masked_mean(values, mask)
    count = mask.sum()
    variance = masked_sum((values - mean) ** 2, mask) / (count - 1).clamp(min=1)
    return (values - mean) * torch.rsqrt(variance + epsilon)
