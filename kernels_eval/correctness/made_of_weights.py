"""Note copies and views that a constructor makes of weights: transposed, flattened, padded.

A constructor runs before the judge gives the weights their values. `self.w = self.linear.weight.t().contiguous()` would
keep the values that the constructor drew. Such a copy is noted here, and made again of the judge's weights. For the
candidate's processes, and for the worker, which asks the same of a reference's constructor.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from kernels_eval.correctness.allowed_operators import COPIES, CREATIONS, MOVES, UNINITIALISED
from kernels_eval.sandbox.module_state import has_storage, plain_attributes, plain_state, registered_state

_OF_A_SHAPE = UNINITIALISED | CREATIONS | {"rand_like", "randn_like", "randint_like"}
"""Operators whose results have nothing of the values that they are given."""
_MAKING = UNINITIALISED | CREATIONS | (COPIES - {"copy_"}) | MOVES

_LOOKED_AFTER = 16
"""New storages after which those are looked for that are no longer in use."""


@dataclass
class _Storage:
    """A storage that the constructor made; `steps` are the operators that filled it, if they are copies alone."""

    alive: StorageWeakRef
    """Keeps its key from another storage, and not its memory: a constructor may make and give up a lot of it."""
    dtype: torch.dtype
    place: tuple[Any, ...]
    """Offset, shape and strides of the tensor that came with it."""
    number: int
    """In order of making."""
    steps: list[tuple[Any, Any, Any]] = field(default_factory=list)
    sources: set[int] = field(default_factory=set)
    """Keys of the storages that the steps read."""
    computed_of: set[int] = field(default_factory=set)
    """Keys of the storages that other operators read that wrote to it."""
    is_registered: bool = False
    """A parameter or buffer lay in it, of the model or of a layer that the constructor dropped."""

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor that came with the storage, given another one that lies in it."""
        return torch.empty(0, dtype=self.dtype, device=tensor.device).set_(tensor.untyped_storage(), *self.place)


_Kept = Callable[[torch.Tensor], Any]
"""Stand-in for a tensor that is made of no other one."""
_Whole = Callable[[], torch.Tensor]
"""Returns the whole tensor of a step's storage."""
_CarryOut = Callable[[_Whole, Any, Any, Any], Any]
"""Runs a step, given that, the operator and its arguments."""


def carried_out(whole: _Whole, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a step as it was run in the constructor."""
    return func(*args, **kwargs)


class MadeOfWeights(TorchDispatchMode):
    """Context manager around a constructor that notes what is copied of what."""

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, _Storage] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        """Note operators, and what is registered with modules."""
        hooked = register_module_parameter_registration_hook, register_module_buffer_registration_hook
        # No bound method: while the constructor runs, PyTorch's table shows the hooks, and they would show this object.
        self._hooks = [register(lambda *given: self._note_registered(*given)) for register in hooked]
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        """Note nothing more."""
        for hook in self._hooks:
            hook.remove()
        super().__exit__(*raised)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and note it."""
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = [value for value in tree_leaves((args, kwargs)) if has_storage(value)]
        if name == "copy_" and has_storage(args[0]):
            self._forget_copies_of(key_of(args[0]))
            self._note_copy(func, args, kwargs or {})
        elif func._schema.is_mutable:
            for value in filter(has_storage, _written(func, args, kwargs or {})):
                self._forget_copies_of(key_of(value))
                self._forget(key_of(value), {key_of(each) for each in given})
        elif has_storage(result) and key_of(result) not in {key_of(value) for value in given}:
            known = self._note(result)
            if name in _MAKING:
                known.steps.append(_as_given(func, args, kwargs or {}))
                known.sources.update(key_of(value) for value in given if name not in _OF_A_SHAPE)
            elif name not in _OF_A_SHAPE:
                known.computed_of.update(key_of(value) for value in given)
        return result

    def drawn_for(self, model: Any) -> dict[str, torch.Tensor]:
        """Return what was drawn for those of a model's parameters and buffers that lie otherwise than that, by name.

        A weight that is drawn as `nn.Linear` draws it, and registered transposed, is set in the form that it was drawn
        in: the registered one is made again of it. What is registered as it was drawn is not taken for another one.
        """
        state = registered_state(model)
        roots = {name: self._root_of(tensor) for name, tensor in state.items()}
        taken = {key_of(state[name]) for name, root in roots.items() if root is None}
        drawn: dict[str, torch.Tensor] = {}
        for name, root in roots.items():
            if root is not None and key_of(root) not in taken:
                taken.add(key_of(root))
                drawn[name] = root
        return drawn

    def computed(self, model: Any) -> list[str]:
        """Return the names of a model's tensors that its constructor computed of parameters and buffers.

        Of the model's own, and of those of layers that it dropped.
        """
        state = registered_state(model)
        weights = {key_of(tensor) for tensor in state.values()}
        weights |= {key for key, known in self._storages.items() if known.is_registered}
        return [
            name
            for name, tensor in {**plain_state(model), **state}.items()
            if self._computes(key_of(tensor), weights - {key_of(tensor)})
        ]

    def _computes(self, key: int, weights: set[int]) -> bool:
        copied = self._reached({key}, lambda known: known.sources)
        computed_of = {each for other in copied & self._storages.keys() for each in self._storages[other].computed_of}
        return bool(self._reached(computed_of, lambda known: known.sources | known.computed_of) & weights)

    def _reached(self, keys: set[int], sources_of: Callable[[_Storage], set[int]]) -> set[int]:
        """Return the keys of storages that some were made of, and theirs: each is looked at once."""
        reached, coming = set(keys), list(keys)
        while coming:
            known = self._storages.get(coming.pop())
            fresh = sources_of(known) - reached if known is not None else set[int]()
            reached |= fresh
            coming += fresh
        return reached

    def _root_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the one whole tensor that was drawn and that a tensor is made of, or None if it is as that one is."""
        roots = self._roots_of(tensor)
        if len(roots) != 1:
            return None
        (root,) = roots
        is_moved = root.shape != tensor.shape or not self._is_in_place(tensor)
        return root if is_moved and is_whole(root) and self.is_as_noted(tensor) else None

    def _is_in_place(self, tensor: torch.Tensor) -> bool:
        """True if each element has the place that it was drawn in; False if that cannot be told from the last copy."""
        while (known := self._storages.get(key_of(tensor))) is not None:
            if _place(tensor) != known.place or not known.steps:
                return _place(tensor) == known.place
            func, args, _ = known.steps[-1]
            name = func.overloadpacket.__name__
            if name not in COPIES or (name == "copy_" and _place(args[0]) != known.place):
                return False
            source = args[name == "copy_"]
            if source.shape != tensor.shape:
                return False
            tensor = source
        return is_whole(tensor)

    def remake(
        self, tensor: torch.Tensor, weights: dict[int, Any], kept: _Kept, carry_out: _CarryOut = carried_out
    ) -> Any:
        """Return a tensor made again of weights, which are given by the keys of their storages; None if of none."""
        if not self._reached({key_of(tensor)}, lambda known: known.sources) & weights.keys():
            return None
        try:
            return self._again(tensor, weights, kept, carry_out)
        except ValueError:  # bits that are read as another type: as they are on the host
            return None

    def is_as_noted(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has the values of what it is copied of: what NumPy writes to it is not noted."""
        known = self._storages.get(key_of(tensor))
        if known is None or not known.sources:
            return True
        try:
            with torch.no_grad():
                again = self._again(tensor, {}, _itself, _where_it_was)
            return torch.equal(_bytes(again), _bytes(tensor))
        except ValueError:  # another type: it is not made again
            return True

    def _note(self, made: torch.Tensor) -> _Storage:
        """Note a new storage, and now and then forget how those were filled that the constructor has given up."""
        if len(self._storages) % _LOOKED_AFTER == 0:
            for known in self._storages.values():
                if known.steps and known.alive.expired():
                    known.steps.clear()  # they hold what was copied
        self._storages[key_of(made)] = _Storage(
            StorageWeakRef(made.untyped_storage()), made.dtype, _place(made), len(self._storages)
        )
        return self._storages[key_of(made)]

    def _note_registered(self, _module: Any, _name: str, tensor: Any) -> None:
        known = self._storages.get(key_of(tensor)) if has_storage(tensor) else None
        if known is not None:
            known.is_registered = True

    def _note_copy(self, func: Any, args: Any, kwargs: Any) -> None:
        target, source = args[0], args[1]
        known = self._storages.get(key_of(target))
        if known is None or not known.steps:
            return
        if not has_storage(source) or key_of(source) == key_of(target):
            self._forget(key_of(target), set())
            return
        known.steps.append(_as_given(func, args, kwargs))
        known.sources.add(key_of(source))

    def _forget(self, key: int, read: set[int]) -> None:
        """Forget how a storage was copied, since an operator that computes has read others and written to it."""
        known = self._storages.get(key)
        if known is not None:
            known.computed_of |= (known.sources | read) - {key}
            known.steps.clear()
            known.sources.clear()

    def _forget_copies_of(self, key: int) -> None:
        """Forget how those were made that were copied from a storage before it got other values."""
        for known in self._storages.values():
            if key in known.sources:
                known.steps.clear()
                known.sources.clear()

    def _roots_of(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors, whole, that were drawn and that a tensor is copied of."""
        behind = [(each, self._storages.get(key_of(each))) for each in self._behind(tensor, set())]
        return [
            each if known is None else known.whole(each)
            for each, known in behind
            if known is None or not (known.sources or known.steps)  # drawn, where a constant's steps make it
        ]

    def _behind(self, tensor: torch.Tensor, given: set[int]) -> list[torch.Tensor]:
        """Return a tensor, what it was copied of, and so on up to given storages: one of each, in order of making."""
        found, coming = {key_of(tensor): tensor}, [tensor]
        while coming:
            known = self._storages.get(key_of(coming.pop()))
            steps = known.steps if known is not None and known.sources else []
            for each in filter(has_storage, tree_leaves([(args, kwargs) for _, args, kwargs in steps])):
                if key_of(each) not in found and key_of(each) not in given:
                    found[key_of(each)] = each
                    coming.append(each)

        def number(each: torch.Tensor) -> int:
            known = self._storages.get(key_of(each))
            return -1 if known is None else known.number

        return sorted(found.values(), key=number)

    def _again(self, tensor: torch.Tensor, given: dict[int, Any], kept: _Kept, carry_out: _CarryOut) -> Any:
        """Return a tensor made again. Raises ValueError if bits are read as another type."""
        made = dict(given)
        for each in self._behind(tensor, set(given)):  # one by one: a long chain would be too deep
            if (known := self._storages.get(key_of(each))) is not None and known.sources:
                self._whole(each, made, kept, carry_out)
        return _view(self._whole(tensor, made, kept, carry_out), tensor)

    def _whole(self, tensor: torch.Tensor, made: dict[int, Any], kept: _Kept, carry_out: _CarryOut) -> Any:
        """Return a tensor in the storage of what a tensor lies in, made again if it was made of others."""
        key = key_of(tensor)
        if key in made:
            return made[key]
        known = self._storages.get(key)
        if known is None or not known.steps:
            return kept(tensor.detach())

        def again(value: torch.Tensor) -> torch.Tensor:
            return _view(self._whole(value, made, kept, carry_out), value)

        for func, args, kwargs in known.steps:
            args, kwargs = tree_map_only(torch.Tensor, again, (args, kwargs))
            result = carry_out(functools.partial(known.whole, tensor), func, args, kwargs)
            made.setdefault(key, result)
        return made[key]


def attributes(model: Any) -> list[tuple[dict[str, Any], str, torch.Tensor]]:
    """Return where a model keeps tensors (the holder's names and the name), and those: registered and plain ones."""
    if not isinstance(model, torch.nn.Module):
        return []
    found: list[Any] = []
    for module in model.modules():
        for group in (vars(module)["_parameters"], vars(module)["_buffers"]):
            found += [(group, name, value) for name, value in group.items() if has_storage(value)]
    return found + [(vars(each.holder), each.attribute, each.value) for each in plain_attributes(model)]


def _as_given(func: Any, args: Any, kwargs: Any) -> Any:
    """Return a step whose tensors stay where they lie: `module.half()` puts a parameter into its own result."""
    return func, *tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))


def is_whole(tensor: torch.Tensor) -> bool:
    """True for a tensor that is all of its storage, in its order."""
    return (
        has_storage(tensor)
        and tensor.is_contiguous()
        and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    )


def key_of(tensor: torch.Tensor) -> int:
    """Return what tells a tensor's storage from all others that are in use."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that an operator writes to."""
    given = zip(func._schema.arguments, args, strict=False)
    named = ((argument, kwargs.get(argument.name)) for argument in func._schema.arguments)
    written = [value for argument, value in (*given, *named) if argument.alias_info and argument.alias_info.is_write]
    return [value for value in tree_leaves(written) if isinstance(value, torch.Tensor)]


def _where_it_was(whole: _Whole, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a step on the constructor's own values: what nothing was written to stays as it is."""
    own = whole()
    if func.overloadpacket.__name__ in UNINITIALISED:
        return own.clone()
    device = own.device  # not the one that was asked for: without a GPU the virtual one is the host
    return func(*args, **{name: device if name == "device" else value for name, value in kwargs.items()})


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.storage_offset(), tensor.shape, tensor.stride()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _view(whole: Any, tensor: torch.Tensor) -> Any:
    """Return a tensor that lies in a storage as a tensor lies in its own. Raises ValueError for another type."""
    if whole.dtype != tensor.dtype:
        raise ValueError(tensor.dtype)
    if _place(whole) == _place(tensor):
        return whole
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
