"""Interpreter process: pointers that a kernel makes of numbers, as those of a table that host code filled.

`data_ptr()` gives host code addresses in a space of their own (kernels_eval.tracing.addresses). Here they become
addresses of this process, if the launch names their storage. Any other number stays what it is, and out of bounds.
"""

from typing import Any

import numpy as np

from kernels_eval.interpreter.triton_patches.names import upstream
from kernels_eval.trace.schema import ADDRESS_SPACE

_SPACE = np.uint64(ADDRESS_SPACE)


class MadePointers:
    """Storages that the current launch reaches by address."""

    def __init__(self) -> None:
        self._bases: dict[int, int] = {}

    def start(self, bases: dict[int, int]) -> None:
        """Begin a launch. `bases`: addresses in this process by the storages' places in the space."""
        self._bases = bases

    def resolved(self, numbers: Any) -> Any:
        """Return the addresses that numbers mean, as an array of uint64 of equal shape."""
        addresses = np.asarray(numbers).astype(np.uint64)
        places = addresses // _SPACE
        resolved = addresses.copy()
        for place, base in self._bases.items():
            is_there = places == np.uint64(place + 1)
            resolved[is_there] = addresses[is_there] % _SPACE + np.uint64(base)
        return resolved


MADE_POINTERS = MadePointers()


def install() -> None:
    """Patch Triton's interpreter in this process."""
    upstream.InterpreterBuilder.create_int_to_ptr = _int_to_ptr


def _int_to_ptr(_: Any, source: Any, wanted: Any) -> Any:
    return upstream.TensorHandle(MADE_POINTERS.resolved(source.data), wanted.scalar)
