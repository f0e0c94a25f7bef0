"""Worker process: contents of a reference's model, put back after a call, which must find it as it was built."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from kernels_eval.reference.inputs import address_of, same_bytes
from kernels_eval.sandbox.module_state import plain_attributes

_TABLES = ("_parameters", "_buffers", "_modules")
_MISSING = object()


class Kept:
    """Contents of a model at one moment: its attributes, and the values of its buffers and plain tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._attributes = [(module, _attributes(module)) for module in model.modules()]
        held = [("", value) for value in model.buffers()]
        held += [(found.attribute, found.value) for found in plain_attributes(model)]
        # An expanded tensor cannot be written to.
        self._values = [(name, value, value.clone()) for name, value in held if 0 not in value.stride()]
        """Name of the attribute (of a buffer: empty), tensor, values."""

    def changed(self) -> frozenset[str]:
        """Return the names of plain attributes that have been assigned since, or written to."""
        assigned = [
            name
            for module, attributes in self._attributes
            for name, value in module.__dict__.items()
            if name not in _TABLES and attributes.get(name, _MISSING) is not value
        ]
        written = [name for name, value, before in self._values if name and not same_bytes(value, before)]
        return frozenset([*assigned, *written])

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor shares memory with a buffer or plain tensor that has been written to since."""
        address = address_of(tensor)
        return any(address_of(value) == address and not same_bytes(value, before) for _, value, before in self._values)

    def put_back(self) -> None:
        """Make the model hold the same again."""
        with torch.no_grad():
            for _, value, before in self._values:
                value.copy_(before)
        for module, attributes in self._attributes:
            _put_back(module, attributes)


@contextmanager
def unchanged(model: torch.nn.Module) -> Generator[Kept]:
    """Put back at the end what a model holds at the beginning."""
    kept = Kept(model)
    try:
        yield kept
    finally:
        kept.put_back()


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    return {name: dict(value) if name in _TABLES else value for name, value in module.__dict__.items()}


def _put_back(module: torch.nn.Module, attributes: dict[str, Any]) -> None:
    """Put back what differs alone: code compiled for a model goes by the identity of its dictionaries."""
    held = module.__dict__
    for name in held.keys() - attributes.keys():
        del held[name]
    for name, before in attributes.items():
        if name not in _TABLES:
            if held.get(name, _MISSING) is not before:
                held[name] = before
        elif not _same(held[name], before):
            held[name].clear()
            held[name].update(before)


def _same(table: dict[str, Any], before: dict[str, Any]) -> bool:
    return table.keys() == before.keys() and all(table[name] is value for name, value in before.items())
