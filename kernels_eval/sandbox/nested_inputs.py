"""Inputs of a forward call that stand in lists, tuples and dictionaries: everything else here sees a flat list.

Drawing, changing and comparing inputs works on the leaves. Only a model is given the collections, new ones in each
call, by a hook before its `forward`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Place:
    """Stands for one leaf, by its place in the flat list."""

    index: int


def unnested(values: list[Any]) -> tuple[list[Any], list[Any] | None]:
    """Return the leaves of inputs, and the inputs with a `Place` for each leaf; None if no tensor is in a collection.

    A collection without tensors is a leaf.
    """
    if not any(_holds_tensors(value) for value in values):
        return values, None
    leaves: list[Any] = []
    return leaves, [_placed(value, leaves) for value in values]


def nested(nesting: Any, leaves: Sequence[Any]) -> Any:
    """Return the inputs as they were, with other leaves."""
    if isinstance(nesting, Place):
        return leaves[nesting.index]
    if isinstance(nesting, dict):
        return {key: nested(value, leaves) for key, value in nesting.items()}
    return type(nesting)(nested(value, leaves) for value in nesting)


def nest_inputs_of(model: Any, nesting: list[Any] | None) -> None:
    """Let a model take flat inputs from now on. With `nesting` None, or if it is no module, it stays as it is."""
    if nesting is not None and isinstance(model, torch.nn.Module):
        model.register_forward_pre_hook(lambda _, inputs: tuple(nested(nesting, inputs)))


def _holds_tensors(value: Any) -> bool:
    parts = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return any(isinstance(part, torch.Tensor) or _holds_tensors(part) for part in parts)


def _placed(value: Any, leaves: list[Any]) -> Any:
    if not _holds_tensors(value):
        leaves.append(value)
        return Place(len(leaves) - 1)
    if type(value) is dict:
        return {key: _placed(part, leaves) for key, part in value.items()}
    return type(value)(_placed(part, leaves) for part in value)
