"""State of a module of PyTorch by name: parameters, buffers, and tensors that are plain attributes (`self.h0 = …`).

A tensor in a plain attribute is no part of `state_dict`. Many problems keep one all the same: the first state of a
recurrent network, a table. For the candidate's processes and for the worker's reference.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernels_eval.sandbox.tensor_bytes import NAMES


@dataclass(frozen=True)
class PlainAttribute:
    """Tensor in a plain attribute of a module or of one inside."""

    holder: torch.nn.Module
    attribute: str
    path: str
    """Its name from the outermost module on, as a buffer's: `rnn.h0`."""
    value: torch.Tensor


def registered_state(model: Any) -> dict[str, torch.Tensor]:
    """Return a model's parameters and buffers by name, without sparse and lazy ones; none if it is no module."""
    if not isinstance(model, torch.nn.Module):
        return {}
    found = [*model.named_parameters(), *model.named_buffers()]
    return {name: value for name, value in found if has_storage(value)}


def has_storage(value: Any) -> bool:
    """True for a tensor of one shape in one storage; a sparse one has several, and a lazy parameter has no shape."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_nested
        and not torch.nn.parameter.is_lazy(value)
    )


def plain_attributes(model: Any) -> Iterator[PlainAttribute]:
    """Yield the plain attributes of a model that are ordinary tensors in memory; none if it is no module of PyTorch."""
    modules = model.named_modules() if isinstance(model, torch.nn.Module) else ()
    for prefix, module in modules:
        for name, value in list(vars(module).items()):
            if type(value) is torch.Tensor and _is_plain(value):
                yield PlainAttribute(module, name, f"{prefix}.{name}" if prefix else name, value)


def _is_plain(value: torch.Tensor) -> bool:
    return has_storage(value) and value.dtype in NAMES and not value.is_meta


def plain_state(model: Any) -> dict[str, torch.Tensor]:
    """Return, by name, the plain attributes that are tensors of several elements.

    A single number is a constant of host code, which may read it.
    """
    registered = registered_state(model)
    return {
        found.path: found.value
        for found in plain_attributes(model)
        if found.value.numel() > 1 and found.path not in registered
    }
