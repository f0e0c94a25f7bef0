"""Interpreter process: shadow memory: which program and lane of the current launch touched each element of a storage.

Programs are known by segments, which kernels_eval.interpreter.data_races numbers and compares.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

Places = np.ndarray[Any, np.dtype[np.int64]]
Segments = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
_BLOCK_BITS = 24
"""Bits of a lane's number that hold its place in its block; the others hold the size of the block."""
_all_lanes: dict[int, Segments] = {}


class Shadow:
    """Accesses to one storage, by element. An array is None until the first access of its kind."""

    def __init__(self, nbytes: int, itemsize: int) -> None:
        self._nbytes = nbytes
        self.itemsize = itemsize
        """Size in bytes of the smallest element accessed so far, which is that of the arrays' elements."""
        self.writers: Segments | None = None
        self.readers: Segments | None = None
        self.atomics: Segments | None = None
        self.lanes: Segments | None = None
        """Lanes of the last plain stores."""
        self.loads: Segments | None = None
        """Segments of the last plain loads, and below their lanes."""
        self.loaders: Segments | None = None
        self.updates: Segments | None = None
        """Segments of the last atomics of blocks, and below their lanes."""
        self.updaters: Segments | None = None

    def elements(self) -> Segments:
        """Return a new array for every element, zero: memory that is never touched takes no space."""
        return np.zeros(self._nbytes // self.itemsize + 1, np.int32)

    def refine(self, itemsize: int) -> None:
        """Divide elements into smaller ones."""
        times, self.itemsize = self.itemsize // itemsize, itemsize
        for name in ("writers", "readers", "atomics", "lanes", "loads", "loaders", "updates", "updaters"):
            array = getattr(self, name)
            if array is not None:
                setattr(self, name, np.repeat(array, times))


@dataclass(slots=True)
class Access:
    """Elements of one storage that one access touches."""

    name: str
    """Argument of the kernel that refers to the storage."""
    start: int
    """Offset in bytes of that argument's first element."""
    offsets: Places
    """Offsets in bytes, one for each lane."""
    itemsize: int
    lanes: Segments
    """Number of each lane (`lane_numbers`)."""
    memory: Any
    """Bytes of the storage: a one-dimensional array of uint8."""
    values: np.ndarray[Any, Any] | None = None
    """Values to be stored, one for each lane."""


def lane_numbers(shape: tuple[int, ...], mask: Any) -> Segments:
    """Return a number for each lane that is not masked off: its place in the block, and the size of the block."""
    size = 1
    for length in shape:
        size *= length
    numbers = _all_lanes.get(size)
    if numbers is None:
        numbers = _all_lanes[size] = np.arange(size, dtype=np.int32) + np.int32(size.bit_length() << _BLOCK_BITS)
    return numbers if mask is None else numbers[mask.ravel()]


def places_of(shadow: Shadow, access: Access) -> tuple[Places, Segments]:
    """Return the shadow's elements that an access touches, and the lane of each."""
    if access.itemsize < shadow.itemsize:
        shadow.refine(access.itemsize)
    places, times = access.offsets // shadow.itemsize, access.itemsize // shadow.itemsize
    if times == 1:
        return places, access.lanes
    return (places[:, None] + np.arange(times)).ravel(), np.repeat(access.lanes, times)


def changed(selected: Flags, access: Access) -> Places:
    """Return the indices of selected places, without those of a store that leaves its element's bits as they are."""
    found = np.flatnonzero(selected)
    if not found.size or access.values is None or access.values.itemsize != access.itemsize:
        return found
    lanes = found * access.offsets.size // selected.size
    old = access.memory[access.offsets[lanes][:, None] + np.arange(access.itemsize)]
    return found[(old != bits_of(access.values[lanes])).any(axis=1)]


def element(access: Access, place: int, places: int) -> str:
    """Describe the element of an access that lies at one of its places in the shadow."""
    offset = int(access.offsets[place * access.offsets.size // places])
    return f"element {(offset - access.start) // access.itemsize} of `{access.name}`"


def bits_of(values: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of values, a row for each."""
    plain = np.ascontiguousarray(values)
    return plain.view(np.uint8).reshape(plain.size, plain.itemsize)
