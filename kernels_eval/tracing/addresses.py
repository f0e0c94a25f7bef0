"""Tracing process: the addresses that `data_ptr()` gives, and the storages that kernels reach by them.

Host code puts addresses into a table, `torch.tensor([x.data_ptr() for x in xs])`, or passes one as a number. Kernels
load an address there and convert it to a pointer. A launch then names each storage whose address was put anywhere.
"""

from collections.abc import Set
from typing import Any

import numpy as np

from kernels_eval.trace.schema import ADDRESS_SPACE, FIRST_OWN


class Addresses:
    """Places of storages in the address space: inputs and weights by number, others at the first free place."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        """Places by the number of the storage, of those whose address was asked for."""
        self._views: dict[int, dict[str, Any]] = {}
        """One view into each of them, by place."""
        self._put: set[int] = set()
        """Places whose addresses host code has put into tensors or passed as numbers."""
        self._holders: set[int] = set()
        """Storages that may hold an address: tensors of host code, and what work with an address could write to."""

    def place_of(self, view: dict[str, Any]) -> int:
        """Return the place of a view's storage. It is the same in each call that asks in the same order."""
        number = view["storage"]
        place = self._places.get(number)
        if place is None:
            place = number
            if number >= FIRST_OWN:
                place = next(free for free in range(FIRST_OWN, number + 1) if free not in self._views)
            self._places[number] = place
            self._views[place] = view
        return place

    def free(self, number: int) -> None:
        """Forget a storage that host code can no longer reach."""
        self._holders.discard(number)
        place = self._places.pop(number, None)
        if place is not None:
            del self._views[place]
            self._put.discard(place)

    def put_bytes(self, content: memoryview, number: int) -> None:
        """Note the addresses among the words of a tensor that host code made, the storage of this number."""
        if self._views and content.nbytes % 8 == 0:
            words = np.frombuffer(content, dtype=np.int64)
            for place in np.unique(words[words >= ADDRESS_SPACE] // ADDRESS_SPACE - 1):
                self._put_place(int(place))
                self._holders.add(number)

    def put_number(self, value: Any) -> None:
        """Note a number of host code, if it is an address."""
        if isinstance(value, int) and value >= ADDRESS_SPACE:
            self._put_place(value // ADDRESS_SPACE - 1)

    def may_use(self, command: dict[str, Any], taken: Set[int], made: Set[int]) -> bool:
        """Return whether a launch or operation gets an address, as a number or in a storage that it takes."""
        is_given = bool(self._holders & taken) or _has_address([command.get("arguments"), command.get("named")])
        if is_given:
            self._holders |= taken | made
        return is_given

    def _put_place(self, place: int) -> None:
        if place in self._views:
            self._put.add(place)

    def reached(self) -> list[dict[str, Any]]:
        """Return the storages that a launch may reach by address, as encoded in a program."""
        return [{"place": place, "view": self._views[place]} for place in sorted(self._put)]


def _has_address(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("kind") != "view" and any(map(_has_address, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_address, value))
    return isinstance(value, int) and value >= ADDRESS_SPACE
