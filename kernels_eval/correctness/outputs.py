"""Results of a forward call: tensors, alone or in nested tuples, lists and dictionaries, and those that the reference returns."""

from dataclasses import dataclass
from typing import Any

import torch

ONE = "one object"
"""The structure of a result that is no collection."""
_MAX_RESULTS = 256


def flat(result: Any) -> tuple[list[Any], str]:
    """Return what a result holds, in order, and its structure in words that can be compared.

    Tuples and lists are the same structure, since whoever calls the model unpacks both alike. Dictionaries are in the order of their keys.
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
    """The problem's own code raised or returned what the judge cannot compare: a fault of the problem, not of the kernel."""


@dataclass(frozen=True)
class Expected:
    """What the reference makes of one input set."""

    native: list[torch.Tensor]
    """Outputs in the reference's own precision: they decide type and shape."""
    oracle: list[torch.Tensor]
    """Outputs in float64, or again the native ones where the reference cannot run in double."""
    changed_inputs: frozenset[int]
    """Inputs that the reference itself changes."""
    structure: str
    """What the outputs are in (kernels_eval.correctness.outputs)."""
    expanded: tuple[bool, ...] = ()
    """For each output: does the reference itself show elements of its memory more than once?"""
    aliased: tuple[bool, ...] = ()
    """For each output: does it lie in the memory of an input or a weight?"""
    shared: bool = False
    """Do some outputs lie in the same memory?"""

    @property
    def is_finite(self) -> bool:
        """True where no output has an infinity or NaN."""
        return all(bool(tensor.isfinite().all()) for tensor in self.native if not tensor.dtype.is_complex)
