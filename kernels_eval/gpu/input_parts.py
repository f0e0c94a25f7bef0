"""Inputs in secret parts, each with a mean and a scale of its own: what a kernel leaves out then shows in a result.

Where all elements of an input have one distribution, the mean of a part is the mean of the whole, also behind a bounded
function, in which large elements drown. Parts differ, and one element alone is the largest, another one the smallest.
"""

import random
from typing import NamedTuple

import torch

_LEAST_PART = 64
_FEWEST_PARTS = 16
_NARROWEST, _WIDEST = 0.3, 0.7
"""Scales of a part, relative to the input's own. Narrower rows would cost honest kernels digits of a variance."""
_NEAREST, _FARTHEST = 0.4, 1.2
"""Distances of a part's middle from the input's mean, in its standard deviations: none is near the mean."""
_MARGIN = 0.1
"""Of the range, at either end: no part's middle lies there."""
_SHRINKS = 0.3
"""By which all elements come nearer to the mean at most: largest and smallest ones are then no constants."""
_STRETCH = 3.0


class Spread(NamedTuple):
    """Standard deviation, mean, least and largest element of an input, each a tensor of one element."""

    deviation: torch.Tensor
    mean: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor


def spread_of(value: torch.Tensor) -> Spread:
    """Return the spread of an input. All draws of one distribution have much the same."""
    exact = value if value.dtype is torch.float64 else value.float()
    return Spread(*torch.std_mean(exact), *torch.aminmax(exact))


def in_memory(value: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor in the order in which it lies in memory, contiguous; any other one as it is."""
    order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), d))
    return value.permute(order) if value.permute(order).is_contiguous() else value


def vary_parts(
    value: torch.Tensor,
    generator: torch.Generator,
    places: random.Random,
    stretched: bool = False,
    spread: Spread | None = None,
) -> None:
    """Change a floating-point input in place: its elements stay between its smallest and its largest one.

    Length and place of the parts are drawn from `places`: parts are shorter than what a program reads, or longer than
    what many do. `stretched`: for bounded functions the parts are three times as far from each other, beyond the
    elements of the input. Small inputs, and such that are not contiguous, stay as they are. `spread`: of an earlier
    draw, which saves reading the input twice.
    """
    count = value.numel()
    if count < _FEWEST_PARTS * _LEAST_PART or not value.is_contiguous():
        return
    length = int(_LEAST_PART * (count / (_FEWEST_PARTS * _LEAST_PART)) ** places.random())
    start = places.randrange(length)
    end = start + (count - start) // length * length
    parts = value.view(-1)[start:end].view(-1, length)
    deviation, mean, low, high = spread or spread_of(value)
    scale, middle = _drawn(len(parts), generator, value.device)
    if stretched:
        parts.mul_(scale.to(value.dtype)).add_((mean + middle * _STRETCH * deviation).to(value.dtype))
        return
    margin = _MARGIN * (high - low).to(scale.dtype)
    middle = (mean + middle * deviation).clamp(low + margin, high - margin)
    # All of it then comes nearer to the mean: how far the largest element is from it, nobody knows.
    near, *own = torch.rand(3, generator=generator, device=value.device)
    near = 1 - _SHRINKS * near
    parts.mul_((near * scale).to(value.dtype)).add_((near * (1 - scale) * middle + (1 - near) * mean).to(value.dtype))
    nearest = _MARGIN * (1 - _WIDEST)  # of the range: what an element of a part keeps from either end
    for rest in (value.view(-1)[:start], value.view(-1)[end:]):
        rest.mul_(near * (1 - 2 * nearest)).add_(near * nearest * (low + high) + (1 - near) * mean)
    first, second = places.sample(range(count), 2)
    least, most = low + nearest / 2 * (high - low) * own[0], high - nearest / 2 * (high - low) * own[1]
    value.view(-1)[first], value.view(-1)[second] = (near * extreme + (1 - near) * mean for extreme in (least, most))


def mix_parts(value: torch.Tensor, other: torch.Tensor, places: random.Random) -> None:
    """Take the larger one of two draws in half of the parts, secretly, and the smaller one in the others, in place.

    Means of parts differ then by a half of the deviation to either side, and all elements together have the problem's
    own distribution: as many are above a threshold. Each element is one that the problem has drawn in its place.
    """
    count = value.numel()
    if count < _FEWEST_PARTS * _LEAST_PART or not value.is_contiguous():
        return
    length = int(_LEAST_PART * (count / (_FEWEST_PARTS * _LEAST_PART)) ** places.random())
    end = count - count % length
    generator = torch.Generator(value.device).manual_seed(places.getrandbits(62))
    order = torch.randperm(end // length, generator=generator, device=value.device)
    is_larger = (order < len(order) // 2)[:, None]
    first, second = (draw.view(-1)[:end].view(-1, length) for draw in (value, other))
    first.copy_(torch.where(is_larger, torch.maximum(first, second), torch.minimum(first, second)))


def _drawn(parts: int, generator: torch.Generator, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scale of each part, and the distance of its middle from the mean: (parts, 1) each."""
    scale, distance, side = torch.rand(3, parts, 1, generator=generator, device=device).unbind()
    scale = _NARROWEST + (_WIDEST - _NARROWEST) * scale
    distance = _NEAREST + (_FARTHEST - _NEAREST) * distance
    return scale, torch.where(side < 0.5, -distance, distance)
