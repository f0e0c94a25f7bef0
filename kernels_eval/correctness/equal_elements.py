"""Worker process: whole numbers that differ from the reference's, and are places of equal elements of an input.

Which of them comes first is not defined (`topk`, `sort`, `argmax`). Draws of float32 have 2^24 values: in some hundred
calls the largest elements of a few hundred rows meet an equal one.
"""

from collections.abc import Iterable
from typing import Any

import torch

_PLACES = frozenset({torch.int32, torch.int64})
_ORDERED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_DISTINCT = 0.5
"""Share of the elements of an input that differ from the one before them in their order."""


def are_places_of_equal_elements(actual: torch.Tensor, native: torch.Tensor, inputs: Iterable[Any]) -> bool:
    """Return True if two results are places along a dimension of one of the inputs whose elements are equal.

    No place may come twice where the reference has different ones. NaN is equal to nothing. Inputs of which more than
    half of the elements along the dimension are equal to others do not count: of a mask any places would do.
    """
    if actual.dtype not in _PLACES or not actual.numel():
        return False
    tensors = (value for value in inputs if isinstance(value, torch.Tensor) and value.dtype in _ORDERED)
    return any(_are_of(actual, native, value, dim) for value in tensors for dim in _dimensions(value, native))


def _dimensions(value: torch.Tensor, native: torch.Tensor) -> Iterable[int | None]:
    """Yield the dimensions of an input along which a result may have places; None: of all elements in their order."""
    if native.dim() == 0:
        yield None
    for dim in range(value.dim()):
        others = (*value.shape[:dim], *value.shape[dim + 1 :])
        kept = (*native.shape[:dim], *native.shape[dim + 1 :])
        if tuple(native.shape) == others or (native.dim() == value.dim() and kept == others):
            yield dim


def _are_of(actual: torch.Tensor, native: torch.Tensor, value: torch.Tensor, dim: int | None) -> bool:
    if dim is None:
        value, dim = value.reshape(-1), 0
    if native.dim() < value.dim():
        actual, native = actual.unsqueeze(dim), native.unsqueeze(dim)
    size = value.shape[dim]
    if not size or float(value.sort(dim=dim).values.diff(dim=dim).ne(0).sum()) < _DISTINCT * value.numel():
        return False
    for places in (actual, native):
        low, high = (int(extreme) for extreme in torch.aminmax(places))
        if low < 0 or high >= size:
            return False
    found, right = (value.gather(dim, places.long()) for places in (actual, native))
    return bool((found == right).all()) and (_are_different(actual, dim) or not _are_different(native, dim))


def _are_different(places: torch.Tensor, dim: int) -> bool:
    """Return True if no number comes twice along a dimension."""
    return bool((places.sort(dim=dim).values.diff(dim=dim) != 0).all())
