"""Inputs in secret parts, each with a mean and a scale of its own: what a kernel leaves out then shows in a result.

Where all elements of an input have one distribution, the mean of a part is the mean of the whole, also behind a bounded
function, in which large elements drown. Parts differ, and one element alone is the largest, another one the smallest.
Most calls have a period besides: rows, or a few elements, in turn. A sample by even steps meets runs evenly, not these.
"""

import contextlib
import itertools
import random
from collections.abc import Callable, Generator, Sequence
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
_USUAL_OFFSET, _LEAST_NARROWED = 1.75, 0.6
"""Mean in standard deviations, of draws in [0, 1), beyond which parts are less narrow, but for this scale at most.

A variance by sums of squares loses digits by the square of that."""
_STRETCH = 3.0
_FEW_ON_HOST = 1 << 14
"""Middles of parts, at most, that are drawn on the host."""
_PERIODS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
_LONGEST_UNIT = 10
"""Exponent of two of the elements that follow each other in one turn of a period, where these are no rows."""
_RUNS_SHARE = 0.6
"""By which runs keep their distance from the mean beside a period; turns have up to `_FARTHEST` of their own."""
_WIDE_RANGE = 48
"""Difference of largest and smallest whole number from which whole numbers have parts of their own ranges."""
_EXACT_IN_FLOAT32 = 1 << 24
AT_ONCE = 1 << 26
"""Elements of two draws that are mixed at once."""
_FRACTION_FROM, _FRACTION_TO = 230, 252
"""Of 256: factors of whole numbers, about halfway between two numbers of eight bits."""
_FEW_VALUES = 7
"""Range up to which whole numbers are flags, signs or masks, on which kernels may rely."""


class Spread(NamedTuple):
    """Standard deviation, mean, least and largest element of an input."""

    deviation: float
    mean: float
    low: float
    high: float


def spread_of(value: torch.Tensor) -> Spread:
    """Return the spread of an input. All draws of one distribution have much the same."""
    exact = value if value.dtype is torch.float64 else value.float()
    return Spread(*torch.stack([*torch.std_mean(exact), *torch.aminmax(exact)]).tolist())


@contextlib.contextmanager
def dense(value: torch.Tensor) -> Generator[torch.Tensor]:
    """Give a tensor as a contiguous one, in the order in which it lies in memory, or as a copy that is written back."""
    order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), d))
    if value.permute(order).is_contiguous():
        yield value.permute(order)
        return
    copy = value.contiguous()
    yield copy
    value.copy_(copy)


@contextlib.contextmanager
def as_floats(value: torch.Tensor) -> Generator[torch.Tensor]:
    """Give values of eight bits as float32, with which PyTorch computes, and write them back, within their range."""
    if value.dtype.itemsize > 1:
        yield value
        return
    wide = value.float()
    yield wide
    limits = torch.finfo(value.dtype) if value.dtype.is_floating_point else torch.iinfo(value.dtype)
    value.copy_((wide if value.dtype.is_floating_point else wide.round_()).clamp_(limits.min, limits.max))


class Period(NamedTuple):
    """Turns of an input, each with a middle of its own: `turns` of them, and what one is."""

    turns: int
    dims: int
    """Last dimensions that make one turn together; 0: it has `elements`."""
    elements: int

    def within(self, value: torch.Tensor, most: int) -> tuple[int, int]:
        """Return turns and elements of one turn in a contiguous tensor, `most` at most together; else (1, 1)."""
        rows = value.shape[-self.dims :].numel() if 0 < self.dims < value.dim() else most
        unit = rows if self.turns * rows <= most else self.elements
        return (self.turns, unit) if self.turns * unit <= most else (1, 1)


def drawn_period(places: random.Random) -> Period | None:
    """Draw a period, for all inputs of a call: so that what two inputs make together differs too. None: runs alone."""
    period = Period(places.choice(_PERIODS), places.choice((0, 0, 1, 1, 2)), 1 << places.randint(0, _LONGEST_UNIT))
    return period if places.random() < 0.75 else None


class _Parts(NamedTuple):
    """Places of the parts of an input: runs of equal length between `start` and `end`, each with all turns."""

    start: int
    end: int
    runs: int
    turns: int
    unit: int

    @classmethod
    def drawn(cls, value: torch.Tensor, places: random.Random, period: Period | None) -> "_Parts | None":
        """Draw them; None for an input that is too small."""
        count = value.numel()
        if count < _FEWEST_PARTS * _LEAST_PART or not value.is_contiguous():
            return None
        length = int(_LEAST_PART * (count / (_FEWEST_PARTS * _LEAST_PART)) ** places.random())
        turns, unit = (1, 1) if period is None else period.within(value, count // _FEWEST_PARTS)
        length = -(-length // (turns * unit)) * turns * unit
        start = places.randrange(length) // unit * unit
        runs = (count - start) // length
        return cls(start, start + runs * length, runs, turns, unit)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Return elements, (tensors, elements), as (tensors, runs, times, turns, elements), without copying."""
        return flat[:, self.start : self.end].view(len(flat), self.runs, -1, self.turns, self.unit)


class Group(NamedTuple):
    """Calls whose parts have the same places: `places` draws them, and `period` is theirs."""

    places: random.Random
    period: Period | None


def drawn_group(seed: int) -> Group:
    """Draw a group of calls from a secret number."""
    places = random.Random(seed)
    return Group(places, drawn_period(places))


def vary_parts(
    value: torch.Tensor,
    places: random.Random,
    stretched: bool = False,
    spread: Spread | None = None,
    period: Period | None = None,
) -> None:
    """Change a floating-point input in place: its elements stay between its smallest and its largest one.

    Length and place of the parts are drawn from `places`: parts are shorter than what a program reads, or longer than
    what many do. `stretched`: for bounded functions the parts are three times as far from each other, beyond the
    elements of the input. Small inputs, and such that are not contiguous, stay as they are. `spread`: of an earlier
    draw, which saves reading the input twice. `period`: of the parts, beside runs.
    """
    vary_parts_of_calls(value[None], [True], [Group(places, period)], stretched, spread)


def vary_parts_of_calls(
    values: torch.Tensor,
    changes: Sequence[bool],
    groups: Sequence[Group],
    stretched: bool = False,
    spread: Spread | None = None,
) -> None:
    """Do what `vary_parts` does to an input of several calls, (calls, …), which belong to the groups in turn.

    Parts have the same places in each call of a group, and scales and means of their own. `changes`: calls that are
    changed. To begin an operation on a GPU takes longer than the operation here, so groups share what they can.
    """
    found = [_Parts.drawn(values[0], *group) for group in groups[: len(values)]]
    if None in found:
        return
    spread = spread or spread_of(values[0])
    offset = max(1.0, abs(spread.mean) / (_USUAL_OFFSET * spread.deviation)) if spread.deviation > 0 else 1.0
    near = torch.ones(len(values))
    flat = values.view(len(values), -1)
    made: list[_Change] = []
    for first, (parts, group) in enumerate(zip(filter(None, found), groups, strict=False)):
        which = slice(first, None, len(groups))
        if not any(changes[which]):
            continue
        drawn = _drawn(parts, len(changes[which]), group.places, values.device, offset)
        kept = torch.tensor([not each for each in changes[which]])
        if not stretched:  # all of a call comes nearer to the mean: how far the largest element is, nobody knows
            near[which] = torch.tensor([1 - _SHRINKS / offset * group.places.random() for _ in kept])
            made += _rest(flat[which], parts, spread, near[which], kept)
        made.append(_change_of(parts.of(flat[which]), *drawn, spread, near[which], kept, stretched))
    _apply(made)
    if not stretched:
        _place_extremes(flat, changes, groups[0].places, near, spread)


class _Change(NamedTuple):
    """Elements of some calls, a factor and what is added, which may still be on the host."""

    elements: torch.Tensor
    factor: torch.Tensor
    offset: torch.Tensor


def _change_of(
    elements: torch.Tensor,
    scale: torch.Tensor,
    middle: torch.Tensor,
    spread: Spread,
    near: torch.Tensor,
    kept: torch.Tensor,
    stretched: bool,
) -> _Change:
    """Return the change of the elements in parts, (calls, runs, times, turns, elements), but of calls that are kept.

    `middle`: distance of a part's middle from the mean, in deviations; `near`: how near all of a call comes to it.
    """
    deviation, mean, low, high = spread
    unchanged = kept.to(scale.device).view(-1, 1, 1, 1, 1)
    if stretched:
        offset = mean + middle * _STRETCH * deviation
        return _Change(elements, scale.masked_fill(unchanged, 1.0), offset.masked_fill(unchanged, 0.0))
    margin = _MARGIN * (high - low)
    middle = (mean + middle * deviation).clamp(low + margin, high - margin)
    here = near.to(scale.device).view(-1, 1, 1, 1, 1)
    factor, offset = here * scale, here * (1 - scale) * middle + (1 - here) * mean
    return _Change(elements, factor.masked_fill(unchanged, 1.0), offset.masked_fill(unchanged, 0.0))


def _rest(flat: torch.Tensor, parts: "_Parts", spread: Spread, near: torch.Tensor, kept: torch.Tensor) -> list[_Change]:
    """Return the changes of what lies before and after the parts of some calls, (calls, elements)."""
    nearest = _MARGIN * (1 - _WIDEST)  # of the range: what an element keeps from either end
    offset = near * nearest * (spread.low + spread.high) + (1 - near) * spread.mean
    factor = (near * (1 - 2 * nearest)).masked_fill(kept, 1.0)[:, None]
    offset = offset.masked_fill(kept, 0.0)[:, None]
    rests = flat[:, : parts.start], flat[:, parts.end :]
    return [_Change(rest, factor, offset) for rest in rests if rest.numel()]


def _apply(changes: Sequence[_Change]) -> None:
    """Multiply elements and add to them. What is on the host comes by one copy."""
    on_host = [each.reshape(-1) for change in changes for each in change[1:] if each.device.type == "cpu"]
    if on_host:
        elements = changes[0].elements
        packed = torch.cat(on_host).to(elements.dtype).to(elements.device, non_blocking=True)
        brought = iter(packed.split([len(each) for each in on_host]))
    else:
        brought = iter(())
    for elements, *both in changes:
        factor, offset = (
            next(brought).view(each.shape) if each.device.type == "cpu" else each.to(elements.dtype) for each in both
        )
        elements.mul_(factor).add_(offset)


def _place_extremes(
    flat: torch.Tensor, changes: Sequence[bool], places: random.Random, near: torch.Tensor, spread: Spread
) -> None:
    """Have one element of each changed call be the largest by far, and one the smallest."""
    _, mean, low, high = spread
    own = _MARGIN * (1 - _WIDEST) / 2 * (high - low)
    factors = near.tolist()
    rows: list[int] = []
    columns: list[int] = []
    extremes: list[float] = []
    for call in itertools.compress(range(len(flat)), changes):
        for column, extreme in zip(
            places.sample(range(flat.shape[1]), 2),
            (low + own * places.random(), high - own * places.random()),
            strict=True,
        ):
            rows.append(call)
            columns.append(column)
            extremes.append(factors[call] * extreme + (1 - factors[call]) * mean)
    if rows:
        index = torch.tensor([rows, columns]).to(flat.device, non_blocking=True)
        flat[index[0], index[1]] = torch.tensor(extremes).to(flat.dtype).to(flat.device, non_blocking=True)


def mix_parts(
    value: torch.Tensor,
    again: Callable[[], torch.Tensor],
    places: random.Random,
    is_even: bool = False,
    period: Period | None = None,
) -> None:
    """Take the larger one of two draws in half of the parts, secretly, and the smaller one in the others, in place.

    Means of parts differ then by a half of the deviation to either side, and all elements together have the problem's
    own distribution: as many are above a threshold. Each element is one that the problem has drawn in its place.
    `again`: draws once more. `is_even`: each place may have each whole number of a range. Of a wide one parts then have
    other ranges, mostly: else each part has the largest number of all.
    """
    if is_even and places.random() < 0.75 and _vary_whole_numbers(value, places, period):
        return
    with dense(value) as first:
        parts = _Parts.drawn(first, places, period)
        if parts is None:
            return
        generator = torch.Generator(value.device).manual_seed(places.getrandbits(62))
        order = torch.randperm(parts.runs, generator=generator, device=value.device)
        sides = torch.randint(2, (1, 1, parts.turns, 1), generator=generator, device=value.device).bool()
        is_larger = (order < parts.runs // 2).view(-1, 1, 1, 1) ^ sides
        with dense(again()) as second:
            step = max(1, AT_ONCE * parts.runs // first.numel())
            draws = (parts.of(draw.view(1, -1))[0] for draw in (first, second))
            some = (each.split(step) for each in (*draws, is_larger))
            for draw, other, larger in zip(*some, strict=True):
                draw.copy_(torch.where(larger, torch.maximum(draw, other), torch.minimum(draw, other)))


def _vary_whole_numbers(value: torch.Tensor, places: random.Random, period: Period | None) -> bool:
    """Have whole numbers in parts, as `vary_parts` has floats; returns False if their range is too small or large."""
    if value.dtype is torch.bool or value.numel() < _FEWEST_PARTS * _LEAST_PART:
        return False
    low, high = (int(extreme) for extreme in torch.aminmax(value))
    if high - low < _WIDE_RANGE or max(-low, high) >= _EXACT_IN_FLOAT32:
        return False
    with dense(value) as whole:
        wide = whole.float()
        vary_parts(wide, places, period=period)
        whole.copy_(wide.round_().clamp_(low, high))
    return True


def whole_range(value: torch.Tensor) -> tuple[float, float] | None:
    """Return the smallest and the largest element of floats that are whole numbers of a range; None of others.

    Few values are flags, signs or a mask.
    """
    if not value.dtype.is_floating_point or value.numel() < _FEWEST_PARTS * _LEAST_PART:
        return None
    wide = value.float() if value.dtype.itemsize == 1 else value
    low, high = (float(extreme) for extreme in torch.aminmax(wide))
    is_whole = _FEW_VALUES < high - low < float("inf") and bool((wide == wide.floor()).all())
    return (low, high) if is_whole else None


def drawn_fraction(places: random.Random) -> float:
    """Draw a factor below 1 of which few multiples have eight bits."""
    return (places.randrange(_FRACTION_FROM, _FRACTION_TO) + places.uniform(0.35, 0.65)) / 256


def with_fraction(value: torch.Tensor, extremes: tuple[float, float], fraction: float) -> torch.Tensor:
    """Return whole numbers times a fraction, within their range: zeros, equal ones and their order stay so.

    Cut to whole numbers again they are still in range.
    """
    low, high = extremes
    fixed = min(max(0.0, low), high)
    wide = value.float() if value.dtype.itemsize == 1 else value
    changed = wide * fraction
    return (changed.add_(fixed * (1 - fraction)).clamp_(low, high) if fixed else changed).to(value.dtype)


def _drawn(
    parts: _Parts, calls: int, places: random.Random, device: torch.device, offset: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scale of each run, and the distance of the middle of each turn in it from the mean.

    (calls, runs, 1, 1, 1) and (calls, runs, 1, turns, 1). Few are drawn on the host: to begin an operation on a GPU
    takes longer. `offset`: of the input's mean, beyond the usual one: parts are then less narrow.
    """
    narrowest = min(_NARROWEST * offset, _LEAST_NARROWED)
    where = torch.device("cpu") if calls * parts.runs * parts.turns <= _FEW_ON_HOST else device
    generator = torch.Generator(where).manual_seed(places.getrandbits(62))
    scale, distance, side = torch.rand(3, calls, parts.runs, 1, 1, 1, generator=generator, device=where).unbind()
    scale = narrowest + (_WIDEST - narrowest) * scale
    distance = _NEAREST + (_FARTHEST - _NEAREST) * distance
    distance = torch.where(side < 0.5, -distance, distance)
    if parts.turns == 1:
        return scale, distance
    own = torch.rand(calls, 1, 1, parts.turns, 1, generator=generator, device=where)
    return scale, _RUNS_SHARE * distance + _FARTHEST * (2 * own - 1)
