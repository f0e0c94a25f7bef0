"""Tracing process: numbers that host code counts up from call to call, advanced as if many calls had passed.

Host code may keep a number of calls anywhere that Python keeps values: in the module, the model, a class, a closure, a
container, as the length of a list, or in a tensor or array that stays on the host. `Counters` looks at what is
reachable from the candidate's module and models after each call. A number that has grown, or fallen, in every call is a
counter; `advance` sets it to about what it is after many more calls. Not found: what generators, iterators, C code and
other packages keep, and uneven steps in a tensor.
"""

import contextlib
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernels_eval.interpreter.tensor_counters import TensorCounters
from kernels_eval.interpreter.tensor_store import COUNTED
from kernels_eval.tracing.traced_tensor import TracedTensor

_FEWEST_SEEN = 6
"""Calls, each with a change in the same direction, that make a number a counter. An index into a ring turns round."""
_QUIET = 3
"""Calls without any change after which nobody looks any more."""
_MOST_VALUES = 4000
_MOST_ADDED = 1 << 12
"""Items added to a list at most."""
_MOST_BYTES = 1 << 24
"""Bytes of all tensors and arrays together that are looked at."""
_NO_HOLDERS = frozenset({int, float, str, bytes, bool, type(None), torch.dtype, torch.device})
_Place = tuple[int, str]
"""Identity of the holder, and the name of the value in it."""
_Setter = Callable[[Any], None]


@dataclass
class _Course:
    """A number over the calls so far."""

    value: int | float
    step: int | float = 0
    """Its last change."""
    changes: int = 0
    """Changes in a row, all in the direction of the last one."""


class Counters:
    """Counters of one candidate. `roots`: its module and its models."""

    def __init__(self, roots: list[Any]) -> None:
        self._roots = roots
        self._courses: dict[_Place, _Course] = {}
        self._tensors = TensorCounters(self._kept_values)
        self._quiet = 0

    def observe(self) -> None:
        """Note all numbers after a call."""
        if self._quiet >= _QUIET:
            return
        before, self._courses = self._courses, {}
        for place, value, _ in self._numbers():
            self._courses[place] = _continued(before.get(place), value)
        self._tensors.observe()
        moving = self._tensors.are_moving or any(course.changes for course in self._courses.values())
        self._quiet = 0 if moving else self._quiet + 1

    def advance(self, calls: int) -> None:
        """Set every counter to its value after so many more calls."""
        self._tensors.advance(calls)
        counting = {place: course for place, course in self._courses.items() if course.changes >= _FEWEST_SEEN}
        for place, value, assign in list(self._numbers()) if counting else ():
            course = counting.get(place)
            if course is not None:
                with contextlib.suppress(Exception):  # the candidate's own __setattr__
                    assign(value + course.step * calls)

    def _numbers(self) -> Iterator[tuple[_Place, Any, _Setter]]:
        """Yield every number that is reachable, with its place and a function that sets it."""
        for place, value, assign in self._values():
            if type(value) in (int, float) or isinstance(value, np.number):
                yield place, value, assign

    def _kept_values(self, most_bytes: int) -> dict[_Place, torch.Tensor]:
        """Return the numbers in each tensor and array on the host that is reachable and not larger, sharing memory."""
        found: dict[_Place, torch.Tensor] = {}
        left = _MOST_BYTES
        for place, value, _ in self._values():
            numbers = _on_host(value)
            if numbers is not None and numbers.dtype in COUNTED and numbers.nbytes <= min(most_bytes, left):
                found[place] = numbers
                left -= numbers.nbytes
        return found

    def _values(self) -> Iterator[tuple[_Place, Any, _Setter]]:
        """Yield every value that is reachable, with its place and a function that sets it."""
        waiting, known, left = list(self._roots), set[int](), _MOST_VALUES
        while waiting and left > 0:
            holder = waiting.pop()
            if id(holder) in known:
                continue
            known.add(id(holder))
            if type(holder) is list:
                yield (id(holder), "length"), len(holder), _lengthened(holder)
            for name, value, assign in _items(holder):
                left -= 1
                yield (id(holder), name), value, assign
                if type(value) not in _NO_HOLDERS:
                    waiting.append(value)


def _on_host(value: Any) -> torch.Tensor | None:
    """Return all that the memory of a tensor or an array holds as a vector, or None if none of it is on the host."""
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


def _continued(course: _Course | None, value: int | float) -> _Course:
    if course is None or value == course.value:
        return _Course(value)
    step = value - course.value
    return _Course(value, step, course.changes + 1 if step * course.step > 0 else 1)


def _lengthened(items: list[Any]) -> _Setter:
    def assign(length: Any) -> None:
        items.extend(items[-1:] * min(int(length) - len(items), _MOST_ADDED))

    return assign


def _items(holder: Any) -> Iterator[tuple[str, Any, _Setter]]:
    """Yield the values that an object holds; of functions, classes and objects only if the candidate defined them."""
    if isinstance(holder, dict):
        for index, key in enumerate(list(dict.keys(holder))):
            yield key if type(key) is str else f"item {index}", dict.get(holder, key), _item_setter(holder, key)
    elif type(holder) in (list, tuple, deque):
        for index, value in enumerate(holder):
            yield f"item {index}", value, _item_setter(holder, index)
    elif isinstance(holder, types.MethodType):
        yield "self", holder.__self__, _ignore
        yield "function", holder.__func__, _ignore
    elif isinstance(holder, types.FunctionType):
        if holder.__module__ == "candidate":
            yield from _of_function(holder)
    elif _is_own(holder):
        yield from _of_object(holder)


def _of_function(holder: types.FunctionType) -> Iterator[tuple[str, Any, _Setter]]:
    yield "attributes", holder.__dict__, _ignore
    yield "defaults", holder.__defaults__, _ignore
    for index, cell in enumerate(holder.__closure__ or ()):
        with contextlib.suppress(ValueError):  # empty
            yield f"cell {index}", cell.cell_contents, _attribute_setter(cell, "cell_contents")


def _of_object(holder: Any) -> Iterator[tuple[str, Any, _Setter]]:
    attributes: Any = getattr(holder, "__dict__", {})
    for name, value in list(attributes.items()):
        if name != "__builtins__":
            yield str(name), value, _attribute_setter(holder, name)
    if not isinstance(holder, type):
        yield "class", type(holder), _ignore


def _is_own(value: Any) -> bool:
    """True for the candidate's module, its classes, objects of these, and modules of PyTorch, which may have more."""
    if isinstance(value, types.ModuleType):
        return value.__name__ == "candidate"
    owner = value if isinstance(value, type) else type(value)
    return owner.__module__ == "candidate" or isinstance(value, torch.nn.Module)


def _item_setter(holder: Any, key: Any) -> _Setter:
    def assign(value: Any) -> None:
        holder[key] = value

    return assign


def _attribute_setter(holder: Any, name: str) -> _Setter:
    return lambda value: setattr(holder, name, value)


def _ignore(value: Any) -> None:
    """Leave a value that cannot be set."""
