"""Host code without values: inputs of a problem's forms, and operators whose results have forms alone.

For a candidate's host code that is followed on a machine without a GPU to find the kernels that it compiles. Nothing
is computed: a product at the full size would take longer than the compiler.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from kernels_eval.correctness.allowed_operators import COPIES, CREATIONS, METADATA, MOVES, SETTERS, UNINITIALISED
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.sandbox.nested_inputs import nested

_RUN = UNINITIALISED | CREATIONS | COPIES | MOVES | SETTERS | METADATA | {"_local_scalar_dense"}


def inputs_without_values(problem_source: str) -> list[Any]:
    """Return tensors on the CPU as `get_inputs` returns them, not filled. Raises ReferenceFailedError if it fails."""
    code = ProblemCode(problem_source)
    with FakeTensorMode():
        drawn = code.inputs()
    inputs: list[Any] = tree_map_only(torch.Tensor, _unfilled, drawn)
    return inputs if code.nesting is None else nested(code.nesting, inputs)


class WithoutValues(TorchDispatchMode):
    """Allocates, views and copies as always; any other operator returns unfilled tensors of the right forms."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator, or find the forms of its results."""
        kwargs = kwargs or {}
        if func.is_view or func.overloadpacket.__name__ in _RUN:
            return func(*args, **kwargs)
        if func._schema.is_mutable:  # what it writes is not looked at
            return kwargs.get("out", args[0])
        on_meta: tuple[Any, dict[str, Any]] = tree_map_only(torch.Tensor, _form, (args, kwargs))
        return tree_map_only(torch.Tensor, _unfilled, func(*on_meta[0], **on_meta[1]))


def _form(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _unfilled(form: torch.Tensor) -> torch.Tensor:
    """Return a tensor of this form. Integers are zero: host code may take them for sizes or indices."""
    made = torch.empty_strided(form.shape, form.stride(), dtype=form.dtype)
    return made if form.dtype.is_floating_point or form.dtype.is_complex else made.zero_()
