"""Candidate's process on a GPU: copies of weights that PyTorch makes in calls, and host code keeps.

A weight that host code transposes, pads or converts once, by PyTorch's own copies, stays a weight: when the judge
changes weights in place, the copy is made again. Results of kernels, and of operators that compute, belong to an
earlier call, and stay. The interpreter does the same on a CPU (kernels_eval.interpreter.weight_copies).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map_only

from kernels_eval.correctness.allowed_operators import COPIES, MOVES
from kernels_eval.correctness.made_of_weights import key_of
from kernels_eval.sandbox.module_state import has_storage

_COPYING = COPIES | MOVES
_FILLS = frozenset({"fill_", "zero_"})
_FEW = 64
"""Steps, before those are looked for in a call whose copies nobody keeps any more."""


@dataclass(frozen=True)
class _Step:
    """One copy, with its arguments and its place. The reference to its storage keeps no memory, only its key."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    storage: StorageWeakRef
    key: int
    dtype: torch.dtype
    place: tuple[Any, ...]
    """Offset, shape and strides."""

    def target(self) -> torch.Tensor | None:
        """Return where the copy lies, or None if nobody keeps it."""
        storage: Any = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)  # pyright: ignore
        if storage is None:
            return None
        return torch.empty(0, dtype=self.dtype, device=storage.device).set_(storage, *self.place)


class KeptCopies:
    """Copies of some weights, as far as they are in use."""

    def __init__(self) -> None:
        self._weights: set[int] = set()
        self._steps: list[_Step] = []
        self._keys: set[int] = set()
        """Of the steps' storages."""
        self._most = _FEW

    def watch(self, weights: Iterable[torch.Tensor]) -> None:
        """Note the copies of these tensors from now on."""
        self._weights = {key_of(weight) for weight in weights}

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note an operator that was carried out, if it copied a weight or a copy of one, or filled a copy's part."""
        name = func.overloadpacket.__name__
        if not self._weights or name not in _COPYING | _FILLS or not has_storage(result):
            return
        value = args[1] if name in {"copy_", "fill_"} else 0.0
        if name in _FILLS:
            if key_of(result) not in self._keys or isinstance(value, torch.Tensor):
                return
            func, args, kwargs = torch.ops.aten.scalar_tensor.default, (value,), {"dtype": result.dtype}
        else:
            if name == "copy_":
                func, args, kwargs = torch.ops.aten.alias.default, (value,), {}
            given = {key_of(each) for each in tree_leaves((args, kwargs)) if has_storage(each)}
            if key_of(result) in given or not given & (self._weights | self._keys):
                return
        args, kwargs = tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
        place = result.storage_offset(), result.shape, result.stride()
        storage = StorageWeakRef(result.untyped_storage())
        self._steps.append(_Step(func, args, kwargs, storage, key_of(result), result.dtype, place))
        self._keys.add(key_of(result))
        if len(self._steps) > self._most:
            self.forget_unused()

    def forget_unused(self) -> None:
        """Forget the copies that nobody keeps. The tensors that they read are in use until then."""
        self._steps = [step for step in self._steps if not step.storage.expired()]
        self._keys = {step.key for step in self._steps}
        self._most = 2 * len(self._steps) + _FEW

    def renew(self) -> None:
        """Make the copies again that are kept, in their order: the weights have other values."""
        for step in self._steps:
            target = step.target()
            if target is not None:
                target.copy_(step.func(*step.args, **step.kwargs))
