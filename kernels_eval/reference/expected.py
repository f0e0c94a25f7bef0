"""What a problem's reference makes of one input set."""

from dataclasses import dataclass

import torch


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
    """What the outputs are in (kernels_eval.correctness.output_structure)."""
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
