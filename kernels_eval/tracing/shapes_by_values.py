"""Tracing process: operators whose result's shape depends on values, where host code may compute (policy `mixed`).

Each is done by operators of fixed shapes, and a value that host code reads: the length, as PyTorch reads it on a GPU.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def _nonzero(given: torch.Tensor) -> torch.Tensor:
    return torch.nonzero_static(given, size=int(torch.count_nonzero(given)))


def _masked_select(given: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    given, mask = torch.broadcast_tensors(given, mask)
    return given[mask]


def _index(given: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Return `given[indices]`, with masks of n dimensions replaced by the n indices of their true elements."""
    places: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and _is_mask(index):
            places += _nonzero(index).unbind(1)
        else:
            places.append(index)
    return torch.ops.aten.index.Tensor(given, places)


def _bincount(given: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    largest = int(given.amax()) if given.numel() else -1
    ones = torch.ones_like(given, dtype=torch.int64)
    each = ones if weights is None else weights if weights.dtype is torch.float32 else weights.double()
    counts = each.new_zeros(max(largest + 1, minlength))
    return counts.scatter_add(0, given.long(), each)


def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    length = int(repeats.sum()) if output_size is None else output_size
    return torch.ops.aten.repeat_interleave.Tensor(repeats, output_size=length)


def _unique(
    given: torch.Tensor, is_sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    values, order = given.reshape(-1).sort()
    unique, inverse, counts = _runs(values)
    inverse = torch.empty_like(inverse).scatter(0, order, inverse).view(given.shape)
    return _asked(unique, inverse, counts, return_inverse, return_counts)


def _unique_consecutive(
    given: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[torch.Tensor, ...]:
    if dim is not None and given.dim() != 1:
        raise NotImplementedError("unique_consecutive with a dimension")
    unique, inverse, counts = _runs(given.reshape(-1))
    return _asked(unique, inverse.view(given.shape), counts, return_inverse, return_counts)


def _runs(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return one value of each run of equal ones, the run of each element, and the lengths of the runs."""
    is_first = torch.ones_like(values, dtype=torch.bool)
    is_first[1:] = values[1:] != values[:-1]
    places = _nonzero(is_first)[:, 0]
    ends = torch.cat([places[1:], places.new_full((min(places.numel(), 1),), values.numel())])
    return values[places], is_first.long().cumsum(0) - 1, ends - places


def _asked(
    unique: torch.Tensor, inverse: torch.Tensor, counts: torch.Tensor, return_inverse: bool, return_counts: bool
) -> tuple[torch.Tensor, ...]:
    nothing = counts.new_empty(0)
    return unique, inverse if return_inverse else nothing, counts if return_counts else nothing


_BY_VALUES: Mapping[str, Callable[..., Any]] = {
    "nonzero": _nonzero, "masked_select": _masked_select, "index": _index, "bincount": _bincount,
    "repeat_interleave": _repeat_interleave, "_unique2": _unique, "unique_consecutive": _unique_consecutive,
}  # fmt: skip


def sized_by_values(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return what does an operator's work, to be called within the tracer; None if its result's shape is known."""
    if name == "index" and not any(_is_mask(index) for index in args[1]):
        return None
    if name == "repeat_interleave" and kwargs.get("output_size") is not None:
        return None
    return _BY_VALUES.get(name)


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)
