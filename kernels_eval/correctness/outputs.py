"""Worker and candidate processes: structure of a forward call's results, and the reference's expected results.

Results are tensors, alone or in nested tuples, lists and dictionaries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

ONE = "a tensor"
"""Structure of a result that is not a collection."""
_MAX_RESULTS = 256


def flat(result: Any) -> tuple[list[Any], str]:
    """Return the leaves of a result in order, and its structure as a string that can be compared.

    Tuples and lists count as the same structure, because callers unpack both alike. Dictionaries are sorted by key.
    """
    leaves: list[Any] = []
    return leaves, _gathered(result, leaves)


def _gathered(value: Any, leaves: list[Any]) -> str:
    if len(leaves) > _MAX_RESULTS:
        raise ValueError(f"more than {_MAX_RESULTS} results")
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: repr(item[0]))
        return f"a dictionary of {{{', '.join(f'{key!r}: {_gathered(item, leaves)}' for key, item in items)}}}"
    if isinstance(value, tuple | list):
        return f"a tuple or list of ({', '.join(_gathered(item, leaves) for item in value)})"
    leaves.append(value)
    return ONE


class ReferenceFailedError(Exception):
    """The problem's own code raised, or returned something that cannot be compared: a fault of the problem."""


class RandomReferenceError(ReferenceFailedError):
    """The reference's outputs differ between two runs on the same inputs: no kernel can agree with it."""


@dataclass(frozen=True)
class Expected:
    """Results of the reference on one input set."""

    native: list[torch.Tensor]
    """Outputs in the reference's own precision. They define the expected dtype and shape."""
    oracle: list[torch.Tensor]
    """Outputs in float64, or the native ones if the reference cannot run in float64. Empty until they are needed."""
    changed_inputs: frozenset[int]
    """Inputs that the reference itself changes."""
    structure: str
    """Structure of the outputs, as `flat` returns it."""
    expanded: tuple[bool, ...] = ()
    """For each output: True if the reference's own view repeats elements of its memory (a stride of 0)."""
    aliased: tuple[bool, ...] = ()
    """For each output: True if it lies in the memory of an input or a weight."""
    shared: bool = False
    """True if two outputs lie in the same memory."""
    inputs_after: Mapping[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    """Values that the inputs have afterwards that the reference changes."""
    call_again: Callable[[list[Any]], object] | None = None
    """Calls the same model on inputs, which it may change."""

    @property
    def has_oracle(self) -> bool:
        """True if the outputs in float64 are there."""
        return len(self.oracle) == len(self.native)

    @property
    def is_finite(self) -> bool:
        """True if no output has an infinity or NaN."""
        return all(is_finite(tensor) for tensor in self.native if not tensor.dtype.is_complex)


def is_finite(tensor: torch.Tensor) -> bool:
    """Return if a real tensor has no infinity or NaN: by its extrema, in one pass over what may be gigabytes."""
    if not tensor.dtype.is_floating_point:
        return True
    if tensor.dtype.itemsize == 1 or not tensor.numel():  # types of eight bits have no extrema
        return not unbounded(tensor)
    return bool(torch.stack(torch.aminmax(tensor)).isfinite().all())


def unbounded(tensor: torch.Tensor) -> int:
    """Return how many elements of a tensor have no finite value."""
    values = tensor.float() if tensor.dtype.itemsize == 1 else tensor  # PyTorch asks no type of eight bits
    return tensor.numel() - int(values.isfinite().sum())
