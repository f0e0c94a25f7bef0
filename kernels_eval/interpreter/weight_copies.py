"""Interpreter process: other values in weights, and in what PyTorch has copied from them and host code keeps.

A weight that host code transposes, pads or converts once, by PyTorch's own copies, stays what it is: the copy follows
the weight. What a kernel, or an operator that computes, has made of weights does not: it is a result of an earlier
call.
"""

from collections.abc import Mapping

import torch

from kernels_eval.correctness.allowed_operators import COPIES, CREATIONS, MOVES, UNINITIALISED
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT, Operate, storages_in

_COPYING = COPIES | MOVES
_MAKING = UNINITIALISED | CREATIONS
_WRITING = frozenset({"copy_", "fill_", "zero_"})
"""Operators whose first argument is written to: not read."""


class WeightCopies:
    """The copies of one candidate's weights."""

    def __init__(self, store: TensorStore) -> None:
        self._store = store
        self._noted: list[Operate] = []

    def note(self, command: Operate) -> None:
        """Note an operator that was carried out. Call it for all, in their order."""
        if command.name in _COPYING | _MAKING | _WRITING:
            self._noted.append(command)

    def renew(self, weights: Mapping[int, torch.Tensor]) -> None:
        """Set weights, by number, in place; then make again what was copied from them, in memory that is still used."""
        store = self._store
        for number, values in weights.items():
            store.set_values(number, values)
        used = store.numbers
        following = {number for number in used if FIRST_WEIGHT <= number < FIRST_OWN}
        copied, fresh = set[int](), set[int]()
        for command in self._noted:
            results = {view.storage for view in command.results if view is not None}
            if command.name in _MAKING:
                if results - store.numbers and command.storages <= store.numbers:
                    store.operate(command)
                    fresh |= results
                continue
            given = command.storages
            is_written = command.name in _WRITING
            sources = storages_in(command.arguments[1:]) if is_written else given
            follows = bool(sources & following) and given <= store.numbers
            partly = fresh if command.name == "copy_" else fresh | copied
            if follows and not is_written:
                store.free(tuple(results))
            if follows or (is_written and results & partly and given <= store.numbers):
                store.operate(command)
            if follows:
                copied |= results
                following |= results
        store.free(tuple(store.numbers - used))
