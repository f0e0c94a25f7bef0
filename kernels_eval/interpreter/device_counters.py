"""Interpreter process: numbers that kernels count up in memory that outlives a call, advanced as by many more calls.

A number that grows by the same step in every call, whatever the inputs are, is a counter: after `k` more calls it has
grown by `k` steps. Kernels that behave otherwise after some calls do so then. Not found: counters that do not grow
evenly, and those in storages above `_LARGEST` bytes.
"""

from dataclasses import dataclass

import torch

from kernels_eval.interpreter.tensor_store import TensorStore

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


class DeviceCounters:
    """Counters in the tensors of one candidate."""

    def __init__(self, memory: TensorStore) -> None:
        self._memory = memory
        self._courses: dict[int, _Course] = {}

    def observe(self) -> None:
        """Note all numbers that kernels wrote in earlier calls. Call it at the beginning of a call."""
        before, self._courses = self._courses, {}
        for number, values in self._memory.kept_values(_LARGEST).items():
            self._courses[number] = _continued(before.get(number), values.clone())

    def advance(self, calls: int) -> None:
        """Set every counter to its value after so many more calls."""
        for number, values in self._memory.kept_values(_LARGEST).items():
            course = self._courses.get(number)
            if course is not None and course.steps.dtype == values.dtype and len(course.steps) == len(values):
                values += torch.where(course.equal >= _FEWEST_STEPS, course.steps * calls, 0).to(values.dtype)


def _continued(course: _Course | None, values: torch.Tensor) -> _Course:
    if course is None or course.values.dtype != values.dtype or len(course.values) != len(values):
        return _Course(values, torch.zeros_like(values), torch.zeros(len(values), dtype=torch.int32))
    steps = values - course.values
    equal = torch.where(steps == course.steps, course.equal + 1, 1)
    return _Course(values, steps, torch.where(steps == 0, 0, equal))
