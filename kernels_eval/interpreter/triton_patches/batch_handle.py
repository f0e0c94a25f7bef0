"""Interpreter process: the values of one tensor of a kernel in all programs of a batch (`batched_builder`)."""

from typing import Any

import numpy as np

from kernels_eval.interpreter.batched_accesses import UnbatchableError
from kernels_eval.interpreter.triton_patches.names import upstream

_MOST_LANES = 1 << 22


class BatchHandle(upstream.TensorHandle):
    """Values that differ from program to program; `lanes` has an axis of programs before those of the tensor.

    `data` is what a handle has for a single program. Code that knows nothing of batches and asks for it gets a scalar
    if all programs agree on it, else UnbatchableError, which ends the batch: no such code computes anything wrong.
    """

    def __init__(self, lanes: np.ndarray[Any, Any], dtype: Any) -> None:
        if lanes.size > _MOST_LANES:
            raise UnbatchableError("blocks are too large to be interpreted together")
        self.lanes = lanes
        self.dtype = dtype
        self.attr = {}

    @property
    def data(self) -> np.ndarray[Any, Any]:
        """Return a scalar that has the same value in all programs; raises UnbatchableError for all others."""
        lanes = self.lanes
        if lanes.shape[1:] != (1,) or (lanes != lanes[:1]).any():
            raise UnbatchableError("the programs of a batch differ in a value")
        return lanes[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor in one program."""
        return self.lanes.shape[1:]


def spread(handle: BatchHandle, sizes: tuple[int, ...]) -> BatchHandle:
    """Return a view of values as if they had been broadcast to `sizes` in each program."""
    lanes = handle.lanes
    shape = (lanes.shape[0], *(1,) * (len(sizes) - lanes.ndim + 1), *lanes.shape[1:])
    return BatchHandle(np.broadcast_to(lanes.reshape(shape), (lanes.shape[0], *sizes)), handle.dtype.scalar)
