"""Operator counts: the eager reference as launches, one for each operator that computes, over its inputs and outputs.

Run under FakeTensorMode at the true shape, so that nothing is allocated or computed. Traffic of an operator: the
distinct storages that it reads, once each, plus what it writes. Views and allocations are free. Matrix products count
their operations by PyTorch's own formulas.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kernels_eval.cost.launch import Launch

_FREE = frozenset(
    {
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_reshape_alias",
        "lift_fresh", "detach", "sym_size", "sym_stride", "sym_numel", "is_same_size", "set_", "resize_",
    }
)  # fmt: skip
_OVERWRITES = frozenset({"copy_", "fill_", "zero_"})
"""Their first argument is written, not read."""
_BYTES_PER_PROGRAM = 4096
"""PyTorch's element-wise kernels: blocks of 128 threads with 8 fp32 elements each."""
_MOST_PROGRAMS = 1024
"""About the number of blocks that an H100 runs at a time. Further blocks of PyTorch's kernels cost nothing: measured
on an H200 over 20 problems (docs/judging-on-a-gpu.md)."""


class EagerCounter(TorchDispatchMode):
    """Collects one Launch for each operator that runs inside."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator and count it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        launch = count_operator(func, args, kwargs, result)
        if launch is not None:
            self.launches.append(launch)
        return result


def count_operator(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Launch | None:
    """Return the counts of one operator as a launch named `aten.…`; None for views and allocations."""
    name: str = func.overloadpacket.__name__
    if func.is_view or name in _FREE:
        return None
    reads: dict[int, int] = {}
    for value in tree_leaves((args[1:] if name in _OVERWRITES else args, kwargs)):
        if isinstance(value, torch.Tensor):
            size = min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
            storage: Any = value.untyped_storage()
            address = storage._cdata  # fake tensors have no address
            reads[address] = max(reads.get(address, 0), size)
    outputs = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
    if not outputs:  # a property of a tensor, e.g. its device
        return None
    written = sum(value.numel() * value.element_size() for value in outputs)
    moved = float(sum(reads.values()) + written)
    formula = flop_registry.get(func.overloadpacket)
    return Launch(
        kernel=f"aten.{name}"[:200],
        programs=min(_MOST_PROGRAMS, max(1.0, max([0, *reads.values(), written]) / _BYTES_PER_PROGRAM)),
        dram_bytes=moved,
        l2_bytes=moved,
        flops=float(formula(*args, **kwargs, out_val=result)) if formula is not None else 0.0,
    )
