"""Responses that the sampler cut off, or nearly so: how long is too long, and what it costs. Pure functions of lengths."""

from torch import Tensor


def soft_overlong_penalty(lengths: Tensor, limit: int, buffer: int) -> Tensor:
    """Penalty of each response, 0 to 1: none up to `limit - buffer` tokens, then linear, 1 from `limit` on. lengths [B] -> [B].

    It is taken off the response's return. Source: Yu et al. 2025 (DAPO), eq. 13, where it is called soft overlong punishment.
    """
    return ((lengths - (limit - buffer)) / buffer).clamp(0.0, 1.0)
