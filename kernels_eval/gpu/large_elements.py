"""Inputs of which few elements are large: spikes beside the problem's own elements, or own ones beside faint others."""

import torch

from kernels_eval.gpu.input_parts import AT_ONCE, Spread

SPIKES = 64
"""Large elements of an input."""
_RARE = 1 / 64
_FAINT = 1 / 64
"""Share of the elements of a sparse input that stay, and the size of the others: few terms of a sum are then large."""
_MOST_OFFSET = 8.0
"""Distance of the others from zero, in their standard deviations, at most: inputs farther from it stay as drawn."""


def make_sparse(value: torch.Tensor, generator: torch.Generator, spread: Spread) -> None:
    """Have few elements as they are, and all others near zero or, where that is out of range, near the smallest one.

    Errors of many terms of a sum cancel, those of few do not. All elements are in the range of the problem's own.
    """
    fixed = min(max(0.0, spread.low), spread.high)
    faint = max(_FAINT, abs(fixed) / (_MOST_OFFSET * spread.deviation)) if fixed and spread.deviation > 0 else _FAINT
    if faint >= 1:
        return
    for part in value.view(-1).split(AT_ONCE):
        rest = torch.rand(part.shape, generator=generator, device=value.device) >= _RARE
        part.copy_(torch.where(rest, part * faint + fixed * (1 - faint), part))


def add_spikes(value: torch.Tensor, factor: float, generator: torch.Generator) -> None:
    """Put one element of `factor` times the mean magnitude, or up to a quarter more, into each of 64 equal parts.

    At secret places, in place. Inputs that are small or not contiguous stay as they are.
    """
    part = value.numel() // SPIKES
    if part < 2 or not value.is_contiguous():
        return
    within = torch.randint(part, (SPIKES,), generator=generator, device=value.device)
    places = within + part * torch.arange(SPIKES, device=value.device)
    wide = torch.float64 if value.dtype is torch.float64 else torch.float32
    size = torch.linalg.vector_norm(value, 1, dtype=wide) / value.numel() * factor
    # All of them differ: which one of two that are equal comes first is not defined (topk, sort).
    sizes = size * (1 + 0.25 * torch.rand(SPIKES, generator=generator, device=value.device, dtype=wide))
    value.view(-1)[places] = sizes.clamp(max=torch.finfo(value.dtype).max / 4).to(value.dtype)
