"""Values that end a CUDA context: checked before an operator runs, where the judge draws other ones than the problem.

On the host PyTorch raises for an index or a probability that is out of range. On a GPU its kernel has an assertion: the
context is lost, the worker with it, and the fault looks like the candidate's.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_ALONG = frozenset(
    {
        "gather", "scatter", "scatter_add", "scatter_reduce", "index_select", "index_add", "index_copy", "index_reduce",
        "index_fill",
    }
)  # fmt: skip
"""Operators that take a tensor, a dimension, and indices along it; `index_fill` those from the end, too."""
_FLAT = frozenset({"take", "put"})
"""Operators that take a tensor, and indices of it as if it had one dimension."""
_TABLES = frozenset({"embedding", "_embedding_bag", "_embedding_bag_forward_only"})
_BY_INDEX = frozenset({"index", "_unsafe_index", "index_put", "_index_put_impl", "_unsafe_index_put"})
_LOSSES = frozenset({"nll_loss_forward", "nll_loss2d_forward"})


class CheckedRanges(TorchDispatchMode):
    """Raises IndexError or ValueError for what a kernel of PyTorch would assert."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Check an operator's indices and probabilities, and run it."""
        name = func.overloadpacket.__name__.rstrip("_")
        if name == "binary_cross_entropy":
            _check(args[0], 0, 1, ValueError)
        elif name in _TABLES:
            _check(args[1], 0, args[0].shape[0] - 1)
        elif name in _ALONG and isinstance(args[1], int):
            size = args[0].shape[args[1]] if args[0].dim() else 1
            _check(args[2], -size if name == "index_fill" else 0, size - 1)
        elif name in _FLAT:
            _check(args[1], -args[0].numel(), args[0].numel() - 1)
        elif name in _BY_INDEX:
            _check_indices(args[0], args[1])
        elif name in _LOSSES:
            wanted, ignored = args[1], args[4]
            classes = args[0].shape[0 if args[0].dim() == 1 else 1]
            _check(wanted[wanted != ignored], 0, classes - 1)
        return func(*args, **(kwargs or {}))


def _check_indices(value: torch.Tensor, indices: Any) -> None:
    """Check the indices of a subscript, each of one dimension; a mask has as many as its own dimensions."""
    place = 0
    for index in indices:
        if index is None:
            place += 1
        elif index.dtype in (torch.bool, torch.uint8):
            place += index.dim()
        else:
            _check(index, -value.shape[place], value.shape[place] - 1)
            place += 1


def _check(values: torch.Tensor, low: int, high: int, error: type[Exception] = IndexError) -> None:
    if not values.numel():
        return
    least, most = torch.stack(torch.aminmax(values)).tolist()
    if not (low <= least and most <= high):  # a NaN is out of range, too
        raise error(f"values from {least} to {most}, expected from {low} to {high}")
