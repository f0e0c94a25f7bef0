"""Worker process: places of equal elements other than the reference's, where PyTorch leaves open which come first.

The reference is called once more, and its own operators tell in which elements it looked for which places. Nothing is
guessed from inputs: a mask has equal elements everywhere, and a second key may decide between those of the first.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels_eval.correctness.outputs import Expected
from kernels_eval.correctness.tolerance import Comparison, compare

_PLACES = frozenset({torch.int32, torch.int64})
_aten = torch.ops.aten
_OPEN = frozenset(
    {
        _aten.topk.default,
        _aten.sort.default,
        _aten.sort.stable,
        _aten.kthvalue.default,
        _aten.median.dim,
        _aten.nanmedian.dim,
        _aten.mode.default,
    }
)
"""Operators that promise no order of equal elements, unless they are called with `stable=True`."""
_FIRST = frozenset({_aten.argmax.default, _aten.argmin.default, _aten.max.dim, _aten.min.dim})
"""Operators that promise the first of equal elements."""
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Types of which PyTorch gathers elements, by those that it sorts but does not gather."""
_BY_CHANCE, _FEW = 1 / 8, 2
"""Further elements that are equal to a found one, by found element and at least, up to which they are so by chance."""


def compare_output(
    actual: torch.Tensor, expected: Expected, index: int, inputs: Sequence[Any], label: str, least: float = 0.0
) -> Comparison:
    """Compare one output of a call with the reference's. Other places of equal elements agree, and have no error.

    `inputs`: of that call. `least`: of the scale.
    """
    comparison = compare(actual, expected.oracle[index], expected.native[index], label, least)
    if not comparison.agrees and are_places_of_equal_elements(actual, expected, index, inputs):
        return Comparison(True)
    return comparison


def are_places_of_equal_elements(actual: torch.Tensor, expected: Expected, index: int, inputs: Sequence[Any]) -> bool:
    """Return True if an output has places of elements that are equal to those at the reference's places.

    These are what an operator of the reference returned, in this order. No place may come twice. Of `topk`, `sort` and
    their like any of equal elements are right. PyTorch promises the first one of `argmax`, `argmin`, `max` and `min`:
    another one is right only where few elements are equal, as by chance among floats. `inputs`: of that call.
    """
    native = expected.native[index]
    if native.dtype not in _PLACES or not actual.numel() or expected.call_again is None:
        return False
    with _Orders(actual, native) as orders:
        expected.call_again([value.clone() if isinstance(value, torch.Tensor) else value for value in inputs])
    return orders.are_equal


class _Orders(TorchDispatchMode):
    """Compares two results as places where an operator finds one of them."""

    def __init__(self, actual: torch.Tensor, native: torch.Tensor) -> None:
        super().__init__()
        self._actual, self._native = (places.reshape(-1).long() for places in (actual, native))
        self.are_equal = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call an operator, and compare if it returns the native result."""
        result = func(*args, **(kwargs or {}))
        if func in _OPEN or func in _FIRST:
            given: dict[str, Any] = {each.name: each.default_value for each in func._schema.arguments}
            given |= dict(zip(given, args, strict=False)) | (kwargs or {})
            places = result if isinstance(result, torch.Tensor) else result[1]
            is_here = places.device == self._native.device
            if is_here and not given.get("stable") and torch.equal(places.reshape(-1), self._native):
                self.are_equal |= self._are_of(given["self"], given["dim"], places, func in _FIRST)
        return result

    def _are_of(self, values: torch.Tensor, dim: int | None, native: torch.Tensor, is_first: bool) -> bool:
        """Return whether both are places of equal elements along a dimension; None: of all in their order."""
        if dim is None or not values.dim():
            values, native, dim = values.reshape(-1), native.reshape(-1), 0
        if native.dim() < values.dim():
            native = native.unsqueeze(dim)
        actual = self._actual.reshape(native.shape)
        low, high = (int(extreme) for extreme in torch.aminmax(actual))
        if low < 0 or high >= values.shape[dim]:
            return False
        values = values.view(_SIGNED.get(values.dtype, values.dtype))
        found, right = (values.gather(dim, places) for places in (actual, native))
        if not bool(((found == right) | (actual == native)).all()):
            return False
        if is_first:
            return int((values == right).sum()) - right.numel() <= max(_FEW, _BY_CHANCE * right.numel())
        return bool((actual.sort(dim=dim).values.diff(dim=dim) != 0).all())
