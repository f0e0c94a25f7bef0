"""Tracing process: numbers that host code counts up from call to call, advanced as if many calls had passed.

Host code may keep a number of calls anywhere that Python keeps values (kernels_eval.tracing.kept_values): as a number,
as digits, as the length of a container or of a text, in a tensor or an array that stays on the host, or in an iterator.
`Counters` looks at all of that after each call. A number that has grown, or fallen, in every call is a counter;
`advance` sets it to about what it is after many more calls, and draws as many items from each iterator. Not found: what
C code and other packages keep, and uneven steps in a tensor.
"""

import array
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from kernels_eval.interpreter.tensor_counters import TensorCounters
from kernels_eval.interpreter.tensor_store import as_counted
from kernels_eval.tracing.kept_values import Kept, Setter, kept_values, length_setter
from kernels_eval.tracing.traced_tensor import TracedTensor

_FEWEST_SEEN = 6
"""Calls, each with a change in the same direction, that make a number a counter. An index into a ring turns round."""
_QUIET = 3
"""Calls without any change after which nobody looks any more."""
_MOST_BYTES = 1 << 24
"""Bytes of all tensors and arrays together that are looked at."""
_MOST_DIGITS = 30
_NUMBERS = (int, float, Fraction, Decimal)
_ITERATORS = ("builtins", "itertools")
"""Modules whose iterators are advanced. Those of the candidate's classes keep their state in attributes."""
_Place = int | tuple[int, str]


@dataclass
class _Course:
    """A number over the calls so far."""

    value: Any
    step: Any = 0
    """Its last change."""
    changes: int = 0
    """Changes in a row, all in the direction of the last one."""


class Counters:
    """Counters of one candidate. `roots`: its module and its models."""

    def __init__(self, roots: list[Any]) -> None:
        self._roots = roots
        self._courses: dict[_Place, _Course] = {}
        self._tensors = TensorCounters(self._kept_numbers)
        self._quiet = 0

    def observe(self) -> None:
        """Note all numbers after a call."""
        if self._quiet >= _QUIET:
            return
        before, self._courses = self._courses, {}
        for places, value, _ in self._numbers():
            for place in places:
                self._courses[place] = _continued(before.get(place), value)
        self._tensors.observe()
        moving = self._tensors.are_moving or any(course.changes for course in self._courses.values())
        self._quiet = 0 if moving else self._quiet + 1

    def advance(self, calls: int) -> None:
        """Set every counter to its value after so many more calls."""
        self._tensors.advance(calls)
        counting = {place: course for place, course in self._courses.items() if course.changes >= _FEWEST_SEEN}
        for places, value, assign in list(self._numbers()) if counting else ():
            course = next((counting[place] for place in places if place in counting), None)
            if course is not None:
                with contextlib.suppress(Exception):  # the candidate's own __setattr__
                    assign(value + course.step * calls)
        for kept in list(kept_values(self._roots)):
            if _is_iterator(kept.value):
                with contextlib.suppress(Exception):  # at its end, or the candidate's own
                    for _ in range(calls):
                        next(kept.value)

    def _numbers(self) -> Iterator[tuple[tuple[_Place, ...], Any, Setter]]:
        """Yield every number that is reachable, with its places and a function that sets it."""
        for kept in kept_values(self._roots):
            value = _as_number(kept.value)
            if value is not None:
                yield (kept.place, kept.path), value, kept.assign
                continue
            value = kept.value
            assign = length_setter(value, kept.assign)
            if assign is not None:
                yield (hash((kept.place, "length")), hash((kept.path, "length"))), len(value), assign
            if type(value) is str and value.isdecimal() and len(value) <= _MOST_DIGITS:
                yield (kept.place, kept.path), int(value), _as_digits(kept)

    def _kept_numbers(self, most_bytes: int) -> dict[_Place, torch.Tensor]:
        """Return the numbers in each tensor and array on the host that is reachable and not larger, sharing memory."""
        found: dict[_Place, torch.Tensor] = {}
        left = _MOST_BYTES
        for kept in kept_values(self._roots):
            numbers = _on_host(kept.value)
            numbers = None if numbers is None else as_counted(numbers)
            if numbers is not None and numbers.nbytes <= min(most_bytes, left):
                found[kept.place] = numbers
                left -= numbers.nbytes
        return found


def _as_number(value: Any) -> Any:
    """Return a number as one of a class whose operators are not the candidate's, or None for anything else."""
    if type(value) in _NUMBERS or (isinstance(value, np.number) and type(value).__module__ == "numpy"):
        return value
    if isinstance(value, int | float) and type(value) is not bool:
        return int.__add__(value, 0) if isinstance(value, int) else float.__add__(value, 0.0)
    return None


def _is_iterator(value: Any) -> bool:
    """True for what gives other items after each call of `next`, and is no object of a class of Python code."""
    return type(value).__module__ in _ITERATORS and hasattr(type(value), "__next__")


def _as_digits(kept: Kept) -> Setter:
    return lambda number: kept.assign(str(int(number)))


def _on_host(value: Any) -> torch.Tensor | None:
    """Return all that the memory of a tensor or an array holds as a vector, or None if none of it is on the host."""
    if type(value) in (array.array, bytearray):
        try:
            value = np.frombuffer(value, getattr(value, "typecode", "B"))
        except (TypeError, ValueError):  # letters, or empty
            return None
    if isinstance(value, np.ndarray):
        is_shared = value.dtype.kind in "iuf" and value.flags.writeable and value.flags.c_contiguous
        try:
            return torch.from_numpy(value).reshape(-1) if is_shared else None
        except (TypeError, ValueError):  # a type that PyTorch has not, or another order of bytes
            return None
    if type(value) is TracedTensor:
        content = value.kernels_eval_memory.content
        storage = None if content is None else content.untyped_storage()
    else:
        is_here = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
        storage = value.untyped_storage() if is_here and value.device.type == "cpu" else None
    if storage is None or storage.nbytes() % value.element_size():
        return None
    return torch.empty(0, dtype=value.dtype).set_(storage)


def _continued(course: _Course | None, value: Any) -> _Course:
    if course is None or value == course.value:
        return _Course(value)
    step = value - course.value
    return _Course(value, step, course.changes + 1 if step * course.step > 0 else 1)
