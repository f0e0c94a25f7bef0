"""Tracing process and judge: the PyTorch operators that host code may use in a forward call.

`strict` allows operators that allocate, view, reshape or copy, and refuses every computing operator by name. `mixed`
allows every operator that the judge can execute in another process. Checked twice: in the tracing process, which knows
the line of the candidate's source, and by the judge on the resulting program (kernels_eval.trace.schema). The second
check is the one that counts.
"""

from typing import Any

UNINITIALISED = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
CREATIONS = frozenset(
    {
        "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full",
        "scalar_tensor", "arange", "lift_fresh", "lift_fresh_copy", "_efficientzerotensor",
    }
)  # fmt: skip
COPIES = frozenset({"clone", "copy_", "_to_copy", "contiguous"})
MOVES = frozenset({"cat", "stack", "constant_pad_nd", "repeat"})
"""Copies into a new layout. Elements keep the origin that they had before the copy."""
SETTERS = frozenset(
    {"fill_", "zero_", "set_", "resize_", "detach_", "requires_grad_", "_unsafe_view", "_reshape_alias"}
)
METADATA = frozenset(
    {
        "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "is_same_size", "is_contiguous",
        "promote_types", "result_type", "can_cast",
    }
)  # fmt: skip
_UNTRACEABLE = frozenset({"set_", "resize_", "resize_as_", "from_file", "_nested_tensor_from_mask", "record_stream"})
"""Operators that replace the storage of a traced tensor, or use resources outside the process."""
STRICT = (UNINITIALISED | CREATIONS | COPIES | MOVES | SETTERS | METADATA | {"detach", "alias"}) - _UNTRACEABLE


MAX_HOST_READS = 16
"""Maximum number of values that host code may read in one forward call (`.item()`): enough for scales."""
MAX_HOST_INTEGERS = 1024
"""The same for whole numbers, also by `.tolist()`: the lengths of a batch's sequences, the sizes of a product's groups.
At most half as many as the inputs have elements (`half_of_inputs`): a result's parts are not to be computed of them."""


def half_of_inputs(floats: int, elements: int) -> int:
    """Return how many values host code may read in a call whose inputs have so many elements, and floats among them."""
    return max(1, floats // 2) if floats else max(MAX_HOST_READS, elements // 2)


class ForbiddenOperatorError(Exception):
    """The candidate used PyTorch for work that its own kernels must do."""


def refusal(func: Any, name: str, strict: bool) -> str | None:
    """Return the reason why a forward call cannot use an operator, or None if it can."""
    if func.namespace == "profiler":  # names a part of host code
        return None
    if func.namespace != "aten" or name in _UNTRACEABLE:
        return f"{func.namespace}.{name}: host code cannot use this operator here"
    if strict and not (func.is_view or name in STRICT):
        return f"aten.{name}: the kernels have to compute this; PyTorch may only allocate, view and copy"
    return None


def is_recordable(name: str, strict: bool) -> bool:
    """True if the judge executes this operator when a program names it (views are never recorded)."""
    return name in STRICT if strict else name not in _UNTRACEABLE
