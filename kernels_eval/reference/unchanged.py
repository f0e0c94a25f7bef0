"""Worker process: contents of a reference's model, put back after a call, which must find it as it was built.

Contents are attributes, buffers, tensors, lists, dictionaries, sets and objects of the problem's own classes, at any
depth; also attributes of these classes, and global variables of the problem.
"""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy
import torch

from kernels_eval.reference.inputs import address_of, same_bytes

PROBLEM = "problem"
"""Name of the module that a problem's source is executed in."""
_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
_COMMON = frozenset(vars(torch.nn.Module())) - {"training", *_TABLES}
"""Attributes that every module has: hooks, and what loading needs."""
_NORMALISATION = ("torch.nn.modules.batchnorm", "torch.nn.modules.instancenorm")
_COLLECTIONS = (dict, list, set, deque)
_OPAQUE = (Iterator, numpy.ndarray, torch.Generator)
_MISSING = object()


def running_statistics(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the buffers of PyTorch's own batch and instance normalisations.

    A call in training mode changes them, and its result does not depend on them.
    """
    own = [module for module in model.modules() if type(module).__module__ in _NORMALISATION]
    return [value for module in own for value in module.buffers(recurse=False)]


class Kept:
    """Contents of a model at one moment; values of parameters only if asked for."""

    def __init__(self, model: torch.nn.Module, with_parameters: bool = False) -> None:
        found = list(_contents(model))
        self.has_opaque = any(isinstance(value, _OPAQUE) for _, value, _ in found)
        """True if it holds something whose state is not copied, e.g. an iterator."""
        self._holders = [(*each, _items(each[1])) for each in found if each[2] or isinstance(each[1], _COLLECTIONS)]
        """Name, holder, whether its items have names of their own, items."""
        # An expanded tensor cannot be written to.
        left_out = () if with_parameters else torch.nn.Parameter
        tensors = [
            (name, value)
            for name, value, _ in found
            if isinstance(value, torch.Tensor) and not isinstance(value, left_out)
        ]
        self._values = [(name, value, value.detach().clone()) for name, value in tensors if 0 not in value.stride()]
        """Name of the attribute, tensor, values."""
        self._statistics = {id(value) for value in running_statistics(model)}

    def changed(self, with_statistics: bool = False) -> frozenset[str]:
        """Return the names of what was assigned, written to, added or removed since."""
        names = [name for holder in self._holders for name in _changes(*holder)]
        exempt = () if with_statistics else self._statistics
        written = [
            name for name, value, before in self._values if id(value) not in exempt and not same_bytes(value, before)
        ]
        return frozenset([*names, *written])

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor shares memory with a buffer or plain tensor that has been written to since."""
        address = address_of(tensor)
        return any(address_of(value) == address and not same_bytes(value, before) for _, value, before in self._values)

    def put_back(self) -> None:
        """Make the model hold the same again."""
        with torch.no_grad():
            for _, value, before in self._values:
                value.copy_(before)
        for name, holder, is_namespace, before in self._holders:
            if any(_changes(name, holder, is_namespace, before)):
                _put_back(holder, before)


@contextmanager
def unchanged(model: torch.nn.Module, with_parameters: bool = False) -> Generator[Kept]:
    """Put back at the end what a model holds at the beginning."""
    kept = Kept(model, with_parameters)
    try:
        yield kept
    finally:
        kept.put_back()


def _contents(model: torch.nn.Module) -> Iterator[tuple[str, Any, bool]]:
    """Yield each tensor and each holder of others once: its name, itself, and whether it is a namespace.

    A namespace is a dictionary of attributes or a class. Its name stands before those of its items.
    """
    seen: set[tuple[int, bool]] = set()
    waiting: list[tuple[str, Any, bool]] = [("", model, False)]
    while waiting:
        name, value, is_namespace = waiting.pop()
        if (id(value), is_namespace) in seen:
            continue
        seen.add((id(value), is_namespace))
        if is_namespace:
            yield name, value, True
            waiting += _attributes(name, value)
        elif isinstance(value, torch.nn.Module) or (_is_own(type(value)) and hasattr(value, "__dict__")):
            waiting.append((f"{name}." if name else "", vars(value), True))
            waiting += _namespaces(type(value))
        elif isinstance(value, _COLLECTIONS):
            yield name, value, False
            waiting += [(name, part, False) for part in (value.values() if isinstance(value, dict) else value)]
        elif isinstance(value, tuple):
            waiting += [(name, part, False) for part in value]
        elif isinstance(value, _OPAQUE) or (isinstance(value, torch.Tensor) and _is_ordinary(value)):
            yield name, value, False


def _attributes(name: str, namespace: Any) -> Iterator[tuple[str, Any, bool]]:
    for key, value in _items(namespace).items():
        if key in _TABLES:
            yield name, value, True
        elif key not in _COMMON and not key.startswith("__"):
            yield f"{name}{key}", value, False


def _namespaces(of: type) -> Iterator[tuple[str, Any, bool]]:
    """Yield the classes of the problem among a class and its bases, and the problem's global variables."""
    for own in filter(_is_own, of.__mro__):
        yield f"{own.__name__}.", own, True
        for value in vars(own).values():
            if isinstance(value, FunctionType) and value.__module__ == PROBLEM:
                yield "", value.__globals__, True


def _is_own(of: type) -> bool:
    return of.__module__ == PROBLEM


def _is_ordinary(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta


def _items(holder: Any) -> Any:
    """Return a shallow copy of what a namespace or a collection holds."""
    if isinstance(holder, type):
        return dict(vars(holder))
    return dict(holder) if isinstance(holder, dict) else set(holder) if isinstance(holder, set) else list(holder)


def _changes(name: str, holder: Any, is_namespace: bool, before: Any) -> Iterator[str]:
    now = _items(holder)
    if is_namespace:
        for key in {**before, **now}:
            if now.get(key, _MISSING) is not before.get(key, _MISSING):
                yield f"{name}{key}"
    elif isinstance(now, dict):
        if list(now) != list(before) or any(now[key] is not value for key, value in before.items()):
            yield name
    elif isinstance(now, set):
        if now != before:
            yield name
    elif len(now) != len(before) or any(one is not other for one, other in zip(now, before, strict=True)):
        yield name


def _put_back(holder: Any, before: Any) -> None:
    """Put back the items of a holder, which stays the same: code compiled for a model goes by identity."""
    if isinstance(holder, type):
        for key in _items(holder).keys() - before.keys():
            delattr(holder, key)
        for key, value in before.items():
            if vars(holder).get(key, _MISSING) is not value:
                setattr(holder, key, value)
    elif isinstance(holder, dict | set):
        holder.clear()
        holder.update(before)
    else:
        holder.clear()
        holder.extend(before)
