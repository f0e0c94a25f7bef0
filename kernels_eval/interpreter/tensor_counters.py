"""Candidate's processes: numbers counted up in tensors that outlive a call, advanced as by many more calls.

In the interpreter process kernels count them, in the tracing process host code does (kernels_eval.tracing.counters).

A number that grows by the same step in every call, whatever the inputs are, is a counter: after `k` more calls it has
grown by `k` steps. Kernels that behave otherwise after some calls do so then. Not found: counters that do not grow
evenly, and those in storages above `_LARGEST` bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

_FEWEST_STEPS = 5
"""Equal steps in a row that make a number a counter. An index into a ring turns round."""
_LARGEST = 1 << 20


@dataclass
class _Course:
    values: torch.Tensor
    steps: torch.Tensor
    """Their last change."""
    equal: torch.Tensor
    """How many changes in a row were equal to the last one, which is not 0."""


class TensorCounters:
    """Counters in the tensors of one candidate."""

    def __init__(self, kept_values: Callable[[int], Mapping[Any, torch.Tensor]]) -> None:
        """`kept_values`: returns by place, in tensors that share memory, the numbers that are kept in tensors.

        Its argument: bytes of a tensor beyond which it is left out.
        """
        self._kept_values = kept_values
        self._courses: dict[Any, _Course] = {}

    def observe(self) -> None:
        """Note all numbers that earlier calls left. Call it between two calls."""
        before, self._courses = self._courses, {}
        for place, values in self._kept_values(_LARGEST).items():
            self._courses[place] = _continued(before.get(place), values.clone())

    @property
    def are_moving(self) -> bool:
        """True if a number has changed in the last call."""
        return any(bool(course.steps.any()) for course in self._courses.values())

    def advance(self, calls: int) -> None:
        """Set every counter to its value after so many more calls."""
        for place, values in self._kept_values(_LARGEST).items():
            course = self._courses.get(place)
            if course is not None and course.steps.dtype == values.dtype and len(course.steps) == len(values):
                values += torch.where(course.equal >= _FEWEST_STEPS, course.steps * calls, 0).to(values.dtype)


def _continued(course: _Course | None, values: torch.Tensor) -> _Course:
    if course is None or course.values.dtype != values.dtype or len(course.values) != len(values):
        return _Course(values, torch.zeros_like(values), torch.zeros(len(values), dtype=torch.int32))
    steps = values - course.values
    equal = torch.where(steps == course.steps, course.equal + 1, 1)
    return _Course(values, steps, torch.where(steps == 0, 0, equal))
