"""Tracing process: finds the values that host code keeps from call to call, wherever Python does, and sets them.

`kept_values` walks through what is reachable from the candidate's module and models: attributes, slots, containers,
closures, defaults, partial and bound functions. It does not enter what other packages define.
"""

import contextlib
import functools
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from triton import KernelInterface

_MOST_VALUES = 8000
_MOST_ADDED = 1 << 12
"""Items added to a container at most, and letters to a text."""
_NO_HOLDERS = frozenset({int, float, str, bytes, bool, type(None), torch.dtype, torch.device})
_OF_PYTHON = ("builtins", "collections")
"""Modules of the containers whose length is set: their methods are not the candidate's."""
_MADE_AT_RUN_TIME = 1 << 9
"""CPython's flag Py_TPFLAGS_HEAPTYPE: the type `function`, whose objects hold whole modules, does not have it."""
Setter = Callable[[Any], None]


class Kept(NamedTuple):
    """One value."""

    place: tuple[int, str]
    """Identity of the holder, and the name of the value in it; of a tuple, which is made anew, the place of its own."""
    path: int
    """Digest of the names on the way from a root. It stays the same where the holder is made anew in each call."""
    value: Any
    assign: Setter


def kept_values(roots: list[Any]) -> Iterator[Kept]:
    """Yield every value that is reachable."""
    waiting: list[tuple[Any, int, Setter]] = [(root, index, ignore) for index, root in enumerate(roots)]
    known, left = set[int](), _MOST_VALUES
    names = roots[0].__dict__ if roots and isinstance(roots[0], types.ModuleType) else None
    while waiting and left > 0:
        holder, path, assign_holder = waiting.pop()
        if id(holder) in known:
            continue
        known.add(id(holder))
        owner = path if isinstance(holder, tuple) else id(holder)
        for name, value, assign in _items(holder, assign_holder, names):
            left -= 1
            below = hash((path, name))
            yield Kept((owner, name), below, value, assign)
            if type(value) not in _NO_HOLDERS:
                waiting.append((value, below, assign))


def length_setter(value: Any, assign: Setter) -> Setter | None:
    """Return a function that makes a container or a text longer, up to a length; None for anything else."""
    kind: Any = type(value)
    if kind.__module__ not in _OF_PYTHON:
        return None
    if kind is frozenset:
        return lambda length: assign(value.union(object() for _ in range(_added(value, length))))
    if kind is range:
        return lambda length: assign(range(value.start, value.stop + value.step * _added(value, length), value.step))
    if issubclass(kind, str | bytes):
        return lambda length: assign(value + value[-1:] * _added(value, length))
    if issubclass(kind, list | deque | bytearray):
        return lambda length: value.extend(list(value)[-1:] * _added(value, length))
    if issubclass(kind, set):
        return lambda length: value.update(object() for _ in range(_added(value, length)))
    if issubclass(kind, dict):
        return lambda length: value.update({object(): None for _ in range(_added(value, length))})
    return None


def ignore(value: Any) -> None:
    """Leave a value that cannot be set."""


def _added(value: Any, length: Any) -> int:
    return min(int(length) - len(value), _MOST_ADDED)


def _items(holder: Any, assign: Setter, names: Any) -> Iterator[tuple[str, Any, Setter]]:
    """Yield the values that an object holds; of functions, classes and objects only if the candidate defined them."""
    if isinstance(holder, dict):
        for index, key in enumerate(list(dict.keys(holder))):
            yield key if type(key) is str else f"item {index}", dict.get(holder, key), _item_setter(holder, key)
    elif isinstance(holder, list | deque):
        base: Any = list if isinstance(holder, list) else deque
        for index, value in enumerate(base.__iter__(holder)):
            yield f"item {index}", value, _item_setter(holder, index)
    elif isinstance(holder, tuple):
        yield from _of_tuple(holder, assign)
    elif isinstance(holder, types.MethodType | types.BuiltinMethodType | types.MethodWrapperType):
        if not isinstance(holder.__self__, types.ModuleType):
            yield "self", holder.__self__, ignore
        yield "function", getattr(holder, "__func__", None), ignore
    elif isinstance(holder, types.FunctionType):
        if holder.__module__ == "candidate" or holder.__globals__ is names:
            yield from _of_function(holder)
    elif isinstance(holder, functools.partial):
        yield from (("function", holder.func, ignore), ("named", holder.keywords, ignore))
        yield "arguments", holder.args, _arguments_setter(holder)
    elif isinstance(holder, ContextVar):
        yield "value", holder.get(None), lambda value: ignore(holder.set(value))
    if _is_own(holder):
        yield from _of_object(holder)
    elif isinstance(holder, KernelInterface | torch.Tensor):
        yield from _of_others_object(holder)


def _of_tuple(holder: tuple[Any, ...], assign: Setter) -> Iterator[tuple[str, Any, Setter]]:
    """Yield the items of a tuple; to set one, a new tuple takes its place."""
    current = list(tuple.__iter__(holder))

    def setter(index: int) -> Setter:
        def assign_item(value: Any) -> None:
            current[index] = value
            assign(tuple.__new__(type(holder), current))

        return assign_item

    for index, value in enumerate(tuple(current)):
        yield f"item {index}", value, setter(index)


def _of_function(holder: types.FunctionType) -> Iterator[tuple[str, Any, Setter]]:
    yield "attributes", holder.__dict__, ignore
    yield "defaults", holder.__defaults__, _attribute_setter(holder, "__defaults__")
    yield "named defaults", holder.__kwdefaults__, ignore
    for index, cell in enumerate(holder.__closure__ or ()):
        with contextlib.suppress(ValueError):  # empty
            yield f"cell {index}", cell.cell_contents, _attribute_setter(cell, "cell_contents")


def _of_object(holder: Any) -> Iterator[tuple[str, Any, Setter]]:
    attributes: Any = getattr(holder, "__dict__", {})
    for name, value in list(attributes.items()):
        if name != "__builtins__":
            yield str(name), value, _attribute_setter(holder, name)
    if isinstance(holder, type | types.ModuleType):
        return
    for owner in type(holder).__mro__:
        for name, slot in list(vars(owner).items()):
            if isinstance(slot, types.MemberDescriptorType) and not issubclass(owner, torch.Tensor):
                with contextlib.suppress(AttributeError):  # empty
                    yield name, slot.__get__(holder), functools.partial(slot.__set__, holder)
    yield "class", type(holder), ignore


def _of_others_object(holder: Any) -> Iterator[tuple[str, Any, Setter]]:
    """Yield the attributes of a kernel or a tensor: host code may add its own, and to the lists among Triton's."""
    for name, value in list(vars(holder).items()):
        if value is not None and name != "__globals__" and not name.startswith("kernels_eval"):
            yield name, value, _attribute_setter(holder, name)


def _is_own(value: Any) -> bool:
    """True for the candidate's module, its classes, objects of these, and modules of PyTorch, which may have more."""
    if isinstance(value, types.ModuleType):
        return value.__name__ == "candidate"
    if type(value) is types.SimpleNamespace or isinstance(value, torch.nn.Module | threading.local):
        return True
    owner = value if isinstance(value, type) else type(value)
    return owner.__module__ == "candidate" or _has_another_home(owner)


@functools.cache
def _has_another_home(owner: type) -> bool:
    """True for a class that Python code made and that is not in the module that it names."""
    is_of_python = owner.__flags__ & _MADE_AT_RUN_TIME and "__module__" in vars(owner) and "__dict__" in vars(owner)
    home: Any = sys.modules.get(owner.__module__) if is_of_python else None
    for name in owner.__qualname__.split(".") if home is not None else ():
        home = None if name == "<locals>" else vars(home).get(name) if hasattr(home, "__dict__") else None
        if home is None:
            return owner.__module__.partition(".")[0] != "torch" or "<locals>" not in owner.__qualname__
    return home is not None and home is not owner


def _arguments_setter(holder: Any) -> Setter:
    return lambda arguments: holder.__setstate__((holder.func, arguments, holder.keywords, {}))


def _item_setter(holder: Any, key: Any) -> Setter:
    def assign(value: Any) -> None:
        holder[key] = value

    return assign


def _attribute_setter(holder: Any, name: str) -> Setter:
    return lambda value: setattr(holder, name, value)
