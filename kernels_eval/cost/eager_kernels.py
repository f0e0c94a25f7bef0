"""Eager kernels: operators that PyTorch runs as several kernels on a GPU, or far below the bandwidth of its memory.

Elsewhere an operator is one launch that moves its inputs and outputs once. The kernels are those of PyTorch 2.11's
CUDA sources (ATen/native/cuda and the composite operators of ATen/native); slow ones were measured on an H100
(docs/estimates.md).
"""

import math
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernels_eval.cost.host_waits import waiting
from kernels_eval.cost.launch import Launch

_REDUCED, _MAPPED, _SMALL = (1.0, 0.0), (1.0, 1.0), (0.0, 0.0)
_KERNELS: dict[str, tuple[tuple[float, float], ...]] = {
    # amax, three on its result against infinity, subtraction, exp, sum, log, sum with the maximum
    "logsumexp": (_REDUCED, _SMALL, _SMALL, _SMALL, _MAPPED, _MAPPED, _REDUCED, _SMALL, _SMALL),
    "native_layer_norm": (_REDUCED, _MAPPED),  # moments of rows, then the normalised values
    "native_group_norm": (_REDUCED, _SMALL, _MAPPED),
    "mse_loss": (_MAPPED, _REDUCED),
    "smooth_l1_loss": (_MAPPED, _REDUCED),
    "huber_loss": (_MAPPED, _REDUCED),
    "sort": (_MAPPED,) * 3,
    "topk": (_REDUCED,) * 3,
}
"""Kernels of an operator: passes over its largest input that each reads, and that it writes."""
_BATCH_NORM_IN_TRAINING = (_REDUCED, _SMALL, _SMALL, _MAPPED)
_SLOWDOWN = {"cumsum": 3.6, "cumprod": 3.6, "logcumsumexp": 3.6}
"""Time of a large scan over the time of a copy."""
_SOFTMAX = frozenset({"_softmax", "_safe_softmax", "_log_softmax"})
_SOFTMAX_READS, _SOFTMAX_HELD_BYTES = 3, 48 << 10
"""A block of PyTorch's softmax reads its row for the maximum, for the sum and for the results, unless the row fits
into shared memory."""
_COUNTING = frozenset({"nonzero", "masked_select", "_unique2", "unique_consecutive", "bincount", "repeat_interleave"})
_PUTTING = frozenset({"index_put", "index_put_", "_index_put_impl_"})
_COPIES = frozenset({"clone", "copy_", "_to_copy"})
_SLOWDOWN_OF_TRANSPOSITION = 2.8
"""Time of a large copy whose elements lie apart in its source, over the time of a copy."""


def kernels_of(
    launch: Launch, func: Any, args: tuple[Any, ...], largest_bytes: float, has_length: bool = False
) -> list[Launch]:
    """Return the launches of one operator.

    `launch`: the operator as one that moves its inputs and outputs once. `largest_bytes`: size of its largest tensor.
    `has_length`: the call names the length of its result.
    """
    name: str = func.overloadpacket.__name__
    deciding = None if has_length else _decides_the_length(name, args)
    if deciding is not None:
        return [*_counted(launch, deciding), launch]
    passes = _KERNELS.get(name, ())
    if name == "native_batch_norm" and len(args) > 5 and args[5]:
        passes = _BATCH_NORM_IN_TRAINING
    if passes:
        return [_pass(launch, place, kernel, largest_bytes) for place, kernel in enumerate(passes)]
    if name in _SOFTMAX:
        launch = _reading_again(launch, *args[:2])
    factor = _SLOWDOWN.get(name, 1.0)
    if name in _COPIES and _is_apart(args):
        factor = _SLOWDOWN_OF_TRANSPOSITION
    return [launch.model_copy(update={"dram_bytes": factor * launch.dram_bytes, "l2_bytes": factor * launch.l2_bytes})]


def _decides_the_length(name: str, args: tuple[Any, ...]) -> torch.Tensor | None:
    """Return the tensor whose values decide how long an operator's result is, or how many elements it writes."""
    if name in _COUNTING:
        return args[1] if name == "masked_select" else args[0]
    if name == "index" or (name in _PUTTING and args[2].numel() > 1):  # of a single value it is a masked fill
        return next((index for index in args[1] if index is not None and index.dtype is torch.bool), None)
    return None


def _counted(launch: Launch, deciding: torch.Tensor) -> list[Launch]:
    """Return what comes before: values are counted, host code waits for the count, and places are listed."""
    nbytes = float(deciding.numel() * deciding.element_size())
    count = launch.model_copy(
        update={"dram_bytes": nbytes, "l2_bytes": nbytes, "written_bytes": 0.0, "again_bytes": 0.0, "operations": {}}
    )
    return [count, waiting("read"), count]


def _pass(launch: Launch, place: int, kernel: tuple[float, float], largest_bytes: float) -> Launch:
    """Return one of an operator's kernels. The first computes, later ones read what was read or written before."""
    reads, writes = (part * largest_bytes for part in kernel)
    return launch.model_copy(
        update={
            "dram_bytes": reads + writes,
            "l2_bytes": reads + writes,
            "written_bytes": writes,
            "again_bytes": reads if place else min(launch.again_bytes, reads),
            "operations": {} if place else launch.operations,
            "programs": launch.programs if reads else 1.0,
        }
    )


def _reading_again(launch: Launch, given: torch.Tensor, dimension: int) -> Launch:
    """Return the launch of a softmax with what its blocks read again, where a row's elements lie side by side."""
    length, inner = _row_of(given, dimension)
    row_bytes = length * given.element_size()
    if inner != 1 or row_bytes <= _SOFTMAX_HELD_BYTES:
        return launch
    again = float((_SOFTMAX_READS - 1) * given.numel() * given.element_size())
    rows = given.numel() // length
    return launch.model_copy(
        update={
            "l2_bytes": launch.l2_bytes + again,
            "reread_bytes": again,
            "reread_reach": float(row_bytes),
            "programs": min(launch.programs, float(rows)),
        }
    )


def _row_of(given: torch.Tensor, dimension: int) -> tuple[int, int]:
    """Return the elements along a dimension, and those of the dimensions after it."""
    if given.dim() == 0:
        return 1, 1
    place = dimension % given.dim()
    return given.shape[place], math.prod(given.shape[place + 1 :])


def _is_apart(args: tuple[Any, ...]) -> bool:
    """Return whether neighbours in what is copied do not lie side by side in its source.

    `copy_` goes through both by the order of the tensor that it writes: where that is a transposed one, neighbours are
    those of its memory. Other copies write neighbours of the last dimension side by side.
    """
    tensors = [value for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
    if not tensors or tensors[-1].dim() < 2:
        return False
    source, written = tensors[-1], tensors[0] if len(tensors) > 1 else None
    last = source.dim() - 1
    if written is not None and written.shape == source.shape:
        wide = [place for place, size in enumerate(written.shape) if size > 1]
        last = min(reversed(wide), key=lambda place: written.stride(place), default=last)
    return source.shape[last] > 1 and source.stride(last) > 1
