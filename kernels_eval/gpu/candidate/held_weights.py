"""Candidate's process on a GPU: the tensors of a model that the judge sets, and what its constructor made of them.

The constructor runs on the host. What it transposed, flattened or padded is made again on the device, once the judge's
weights are there.
"""

from collections.abc import Mapping
from typing import Any

import torch

from kernels_eval.correctness.made_of_weights import MadeOfWeights, attributes, carried_out, is_whole, key_of
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.sandbox.module_state import plain_state, registered_state


class HeldWeights:
    """Weights of one model, from its constructor's end to the last time that they are set.

    Made before the model is moved.
    """

    def __init__(self, model: Any, made: MadeOfWeights) -> None:
        self._model = model
        self._made = made
        self._attributes = [(holder, name, tensor.detach()) for holder, name, tensor in attributes(model)]
        self._registered = {name: tensor.detach() for name, tensor in registered_state(model).items()}
        self.drawn = {name: tensor.detach() for name, tensor in made.drawn_for(model).items()}
        """Tensors on the host that stand for parameters and buffers which lie otherwise than they were drawn."""
        self.computed = made.computed(model)
        """Names of tensors that the constructor computed of weights: they do not follow the judge's."""
        self._weights: dict[int, torch.Tensor] = {}
        self._set: dict[str, torch.Tensor] = {}
        """Tensors that the judge sets, as the model holds them."""
        self._targets: dict[str, torch.Tensor] | None = None
        """The same in the memory that they had at first: host code may give a parameter another one (`.data = …`)."""
        self._made_of_them: list[tuple[torch.Tensor, torch.Tensor]] = []
        """On the device, and on the host."""

    def targets(self, as_registered: Mapping[str, bool]) -> dict[str, torch.Tensor]:
        """Return the tensors on the device, by name, that the judge's weights are copied to.

        `as_registered`: whether each is set as it is registered, or as it was drawn. Called before anything is copied:
        the constructor's own values show what was not noted. Later calls return the same tensors.
        """
        if self._targets is not None:
            return self._targets
        registered = registered_state(self._model)
        targets: dict[str, torch.Tensor] = {}
        for name, is_registered in as_registered.items():
            is_own = is_registered or name not in self.drawn
            host = self._registered[name] if is_own else self.drawn[name]
            targets[name] = registered[name] if is_own else torch.empty_like(host, device=cuda_driver.DEVICE)
            if is_whole(host):
                self._weights[key_of(host)] = targets[name].detach()
        given = {id(target) for target in targets.values()}
        self._made_of_them = [
            (holder[name].detach(), host)
            for holder, name, host in self._attributes
            if id(holder[name]) not in given and self._made.is_as_noted(host)
        ]
        self._attributes, self._registered, self.drawn = [], {}, {}  # the host's memory is needed to compile
        self._set, self._targets = targets, {name: target.detach() for name, target in targets.items()}
        return self._targets

    @property
    def made_of_weights(self) -> list[torch.Tensor]:
        """Tensors on the device that `remake` makes again."""
        return [tensor for tensor, _ in self._made_of_them]

    def remake(self) -> None:
        """Make again, in place, what the constructor made of the tensors that the judge has set.

        What was made of none is let go, on the host, and so are all steps if nothing was made of any. A parameter that
        lies in other memory by now (`flatten_parameters`) is set there too.
        """
        for name, first in (self._targets or {}).items():
            held = self._set[name].detach()
            is_alike = (held.dtype, held.shape) == (first.dtype, first.shape)
            if is_alike and key_of(held) != key_of(first):
                held.copy_(first)
        remade: list[tuple[torch.Tensor, torch.Tensor]] = []
        for tensor, host in self._made_of_them:
            again = self._made.remake(host, self._weights, _on_device, _carried_out_there)
            if again is not None:
                tensor.copy_(again)
                remade.append((tensor, host))
        self._made_of_them = remade
        if not remade:
            self._made = MadeOfWeights()

    def forget_computed(self, given: Mapping[str, bool]) -> None:
        """Fill what the constructor computed of its own weights with NaN: it is wrong after a step of training.

        `given`: names of the tensors that the judge has set. Once: what a call puts there is the candidate's.
        """
        state = {**plain_state(self._model), **registered_state(self._model)}
        for name in self.computed:
            if name not in given and name in state and state[name].dtype.is_floating_point:
                state[name].fill_(torch.nan)
        self.computed = []


def _on_device(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(cuda_driver.DEVICE)


def _carried_out_there(whole: Any, func: Any, args: Any, kwargs: Any) -> Any:
    there = {"device": torch.device(cuda_driver.DEVICE), "pin_memory": False}
    return carried_out(whole, func, args, {name: there.get(name, value) for name, value in kwargs.items()})
