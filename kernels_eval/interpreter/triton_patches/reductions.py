"""`tl.reduce` and `tl.associative_scan` with a function of the kernel's own, as the interpreter runs them.

Upstream calls the function once for each element, on scalars. It is associative, or the compiled kernel would not be right either: so it is called
on whole blocks, neighbours with neighbours, as often as a tree is high.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter as _upstream

upstream: Any = _upstream
_Blocks = list[np.ndarray[Any, Any]]


def install() -> None:
    """Patch Triton's interpreter in this process."""
    upstream.ReduceOps.generic_reduce = _by_blocks(_reduced, upstream.ReduceOps.generic_reduce)
    upstream.ScanOps.generic_scan = _by_blocks(_scanned, upstream.ScanOps.generic_scan)


def _by_blocks(by_blocks: Callable[..., Any], one_by_one: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, inputs: Any) -> Any:
        try:
            return by_blocks(self, inputs)
        except (ValueError, TypeError):  # the function asks `if` of its operands, which has no answer for a block
            return one_by_one(self, inputs)

    return run


def _reduced(self: Any, inputs: Any) -> list[Any]:
    blocks: _Blocks = [value.handle.data for value in inputs]
    shape = blocks[0].shape
    blocks = [block.ravel() if self.axis is None else np.moveaxis(block, self.axis, -1) for block in blocks]
    while blocks[0].shape[-1] > 1:
        blocks = _combined(self, inputs, [block[..., 0::2] for block in blocks], [block[..., 1::2] for block in blocks])
    blocks = [block[..., 0] for block in blocks]
    if self.keep_dims:
        kept = [1] * len(shape) if self.axis is None else [*shape]
        if self.axis is not None:
            kept[self.axis] = 1
        blocks = [block.reshape(kept) for block in blocks]
    elif blocks[0].ndim == 0:
        return [self.to_tensor(block.item(), value.dtype) for block, value in zip(blocks, inputs, strict=True)]
    return [self.to_tensor(block, value.dtype) for block, value in zip(blocks, inputs, strict=True)]


def _scanned(self: Any, inputs: Any) -> list[Any]:
    blocks: _Blocks = [np.moveaxis(value.handle.data, self.axis, -1) for value in inputs]
    places = np.arange(blocks[0].shape[-1])
    distance = 1
    while distance < places.size:
        before = [np.roll(block, distance, axis=-1) for block in blocks]
        both = _combined(self, inputs, before, blocks)
        blocks = [np.where(places < distance, old, new) for old, new in zip(blocks, both, strict=True)]
        distance *= 2
    return [
        self.to_tensor(np.moveaxis(block, -1, self.axis), value.dtype)
        for block, value in zip(blocks, inputs, strict=True)
    ]


def _combined(self: Any, inputs: Any, left: _Blocks, right: _Blocks) -> _Blocks:
    """Call the kernel's function on two sets of blocks."""
    operands = [
        self.to_tensor(block, value.dtype)
        for blocks in (left, right)
        for block, value in zip(blocks, inputs, strict=True)
    ]
    found = self.combine_fn.fn(*operands)
    results = found if isinstance(found, tuple) else (found,)
    if any(result.handle.data.shape != left[0].shape for result in results):
        raise ValueError("a constant among the results")
    return [result.handle.data.astype(block.dtype, copy=False) for result, block in zip(results, left, strict=True)]
