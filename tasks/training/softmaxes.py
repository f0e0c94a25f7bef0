"""Softmaxes over a vocabulary that is walked slice by slice, by PyTorch's operations or by Triton kernels."""

from typing import NamedTuple

from torch import Tensor


class Statistics(NamedTuple):
    """Statistics of N softmaxes over the slices of the vocabulary so far; each [N] in float32."""

    highest: Tensor
    """m, the largest logit."""
    total: Tensor
    """Σ exp(x − m)."""
    weighted: Tensor
    """Σ exp(x − m) · (x − m)."""
    target_logits: Tensor


class Softmaxes(NamedTuple):
    """N softmaxes over the whole vocabulary, and the gradients of their scores; each [N] in float32."""

    highest: Tensor
    """m, the largest logit."""
    log_total: Tensor
    """log Σ exp(x − m)."""
    entropies: Tensor
    of_log_probs: Tensor
    of_entropies: Tensor
