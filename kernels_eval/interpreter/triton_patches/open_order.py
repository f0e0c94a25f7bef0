"""Interpreter process: properties of a block that Triton leaves open: an order of elements, values from outside.

Upstream keeps the order that Python gives. Triton's compiler does not where a kernel says that it need not
(`tl.cat(…, can_reorder=True)`, `tl.view`, `tl.reshape(…, can_reorder=True)`): each thread's elements stay with it. Here
the elements change places too, always in the same way for blocks of the same shapes: pointers and values that are
treated alike still belong together.

`tl.gather` with an index beyond the block reads whatever lies there, where NumPy counts negative ones from the end.
"""

from typing import Any

import numpy as np

from kernels_eval.interpreter.triton_patches.names import upstream

_PATTERN = 0x55
"""Each byte of a value from outside, of a type without NaN."""
_Shape = tuple[int, ...]


def install() -> None:
    """Patch Triton's interpreter in this process. Call it before operations are counted."""
    builder = upstream.InterpreterBuilder
    builder.create_cat = _cat
    builder.create_reshape = _reshape
    builder.create_gather = _gather


def reshaped(lanes: Any, old: _Shape, new: _Shape, is_reordered: bool) -> Any:
    """Return lanes whose last dimensions have another shape; in reverse order if it `is_reordered`.

    The order stays where dimensions of one element alone come or go.
    """
    before = lanes.shape[: lanes.ndim - len(old)]
    if is_reordered and [size for size in old if size != 1] != [size for size in new if size != 1]:
        lanes = lanes.reshape((*before, -1))[..., ::-1]
    return lanes.reshape((*before, *new))


def _cat(self: Any, left: Any, right: Any) -> Any:
    """Concatenate as each thread does: elements of the same place in both blocks become neighbours."""
    both = np.concatenate([left.data, right.data])
    places = np.concatenate([np.arange(len(left.data)), np.arange(len(right.data))])
    return upstream.TensorHandle(both[np.argsort(places, kind="stable")], left.dtype.scalar)


def _reshape(self: Any, value: Any, shape: Any, allow_reorder: bool) -> Any:
    found = reshaped(value.data, value.data.shape, tuple(int(size) for size in shape), bool(allow_reorder))
    return upstream.TensorHandle(found, value.dtype.scalar)


def _gather(self: Any, source: Any, indices: Any, axis: int) -> Any:
    size = source.data.shape[axis]
    inside = (indices.data >= 0) & (indices.data < size)
    found = np.take_along_axis(source.data, np.where(inside, indices.data, 0), axis=axis)
    if not inside.all():
        found = np.where(inside, found, _from_outside(found.dtype))
    return upstream.TensorHandle(found, source.dtype.scalar)


def _from_outside(dtype: Any) -> Any:
    if dtype.kind == "f":
        return dtype.type(np.nan)
    return np.frombuffer(bytes([_PATTERN] * dtype.itemsize), np.uint8 if dtype.kind == "b" else dtype)[0].astype(dtype)
