"""Interpreter process: memory accesses of programs that are interpreted together, in batches.

Counts what `memory_accesses` counts. Programs of a batch run in step: no program may depend on another. An access that
could (an element that one program writes and another one touches, or two lanes of one program do), that leaves its
tensor, or that meets elements of two sizes, raises UnbatchableError. What the launch has written is then taken back,
and its programs run one after the other, where each such access is judged and named.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernels_eval.cost.launch import SECTOR_BYTES
from kernels_eval.interpreter.data_races import RACES
from kernels_eval.interpreter.memory_accesses import (
    ACCESS_LOG,
    Addresses,
    Flags,
    Origin,
    Origins,
    Region,
    Storage,
    lone_sectors,
    sectors_touched,
)
from kernels_eval.interpreter.rereads import REREADS

_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_SIZE_BITS, _PROGRAM_BITS = 20, 26
"""A lane's number: from bit 0 its place in the block, then the size of the block, then the program."""
_SHIFT = np.uint64(SECTOR_BYTES.bit_length() - 1)
_SOME_SEGMENT = 2**31 - 1
_MANY = -1
"""In `readers`: several programs. In `loaders`: several lanes."""


class UnbatchableError(Exception):
    """Raised if programs cannot be interpreted together: they branch apart, or use what only one at a time can."""


class UnevenError(UnbatchableError):
    """Raised if a loop takes another number of turns in some programs of a batch than in its first ones."""

    def __init__(self, programs: int) -> None:
        super().__init__(f"a loop takes as many turns as in the first one in {programs} programs only")
        self.programs = programs
        """Leading programs of the batch with equally many turns."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Elements that one access touches in a region, in the order of its lanes, as indices of arrays."""

    is_run: bool
    """True for neighbours in ascending order. Indices are slices then, which take a tenth of an array's time."""
    elements: Any
    starts: Any
    """Bytes at which the elements start."""
    sectors: Any


@dataclass
class _Touched:
    """Accesses to one region, by element; 0: none."""

    shift: int
    """Logarithm of the size of an element."""
    is_given: bool
    """True for memory that no kernel has ever written. Its readers are not recorded, and a store ends the batch."""
    writers: _Numbers | None = None
    """Lane that wrote it."""
    readers: _Numbers | None = None
    """Program that read it."""
    loaders: _Numbers | None = None
    """Lane that loaded it, where that can matter."""


class BatchedAccesses:
    """Accesses of one launch."""

    def __init__(self) -> None:
        self.l2_bytes: _Numbers = np.zeros(0, np.int64)
        """Traffic of each program of the current batch."""
        self.lone_sectors = 0
        """Those of all of them that are touched alone (kernels_eval.interpreter.memory_accesses)."""
        self._first = 1
        self._touched: dict[int, _Touched] = {}
        self._saved: dict[int, tuple[Storage, torch.Tensor, Origins | None]] = {}
        self._lanes: dict[int, _Numbers] = {}

    def begin(self, count: int) -> None:
        """Begin a batch of programs."""
        self._first += self.l2_bytes.size
        self.l2_bytes, self.lone_sectors = np.zeros(count, np.int64), 0
        self._lanes = {}
        REREADS.begin(count)

    def undo(self) -> None:
        """Restore what the launch has written."""
        for storage, memory, origins in self._saved.values():
            storage.memory.copy_(memory)
            storage.origins = origins

    def load_shared(self, addresses: Addresses, mask: Flags | None, rest: Any) -> Any:
        """Load from the same addresses in all programs of the batch. `rest`: values of lanes that are masked off."""
        itemsize = rest.itemsize
        flat, mask = _taking_part(addresses, mask)
        RACES.own_store = 0
        self._count_lanes(addresses.size * self.l2_bytes.size, flat.size * self.l2_bytes.size, itemsize)
        if not flat.size:
            return rest
        region, touched, place = self._found(flat, itemsize)
        if not touched.is_given:
            if touched.writers is not None and touched.writers[place.elements].any():
                raise UnbatchableError("programs read what one of them wrote")
            self._readers(region, touched)[place.elements] = _MANY
        _flags(region, "read")[place.sectors] = True
        sectors = sectors_touched(addresses, flat, mask)
        self.lone_sectors += lone_sectors(flat.reshape(1, -1), None, sectors, itemsize) * self.l2_bytes.size
        REREADS.read_by_all(sectors)
        self.l2_bytes += SECTOR_BYTES * sectors
        return _loaded(region, place, mask, rest)

    def load(self, addresses: Addresses, mask: Flags | None, rest: Any) -> Any:
        """Load; all arrays have an axis of programs before the others. `rest`: values of lanes that are masked off."""
        flat, mask = _taking_part(addresses, mask)
        RACES.own_store = 0
        self._count_lanes(addresses.size, flat.size, rest.itemsize)
        if not flat.size:
            return rest
        region, touched, place = self._found(flat, rest.itemsize)
        if not touched.is_given:
            self._note_readers(region, touched, place, self._who(addresses, mask))
        _flags(region, "read")[place.sectors] = True
        sectors = _sectors_by_program(addresses, flat, mask, place.is_run)
        self._count_lone(addresses, mask, sectors, rest.itemsize)
        _note_reads(region, addresses, mask, sectors)
        self.l2_bytes += SECTOR_BYTES * sectors
        return _loaded(region, place, mask, rest)

    def store(self, addresses: Addresses, mask: Flags | None, values: Any) -> None:
        """Store; all arrays have an axis of programs before the others."""
        flat, mask = _taking_part(addresses, mask)
        self._count_lanes(addresses.size, flat.size, values.itemsize)
        if not flat.size:
            return
        region, touched, place = self._found(flat, values.itemsize)
        if touched.is_given:
            raise UnbatchableError("a program writes to what it was given")
        self._note_writers(region, touched, place, self._who(addresses, mask))
        _flags(region, "written")[place.sectors] = True
        region.storage.all_origins()[place.starts] = Origin.KERNEL
        sectors = _sectors_by_program(addresses, flat, mask, place.is_run)
        self._count_lone(addresses, mask, sectors, values.itemsize)
        self.l2_bytes += SECTOR_BYTES * sectors
        _elements_of(region, values.dtype)[place.elements] = values.ravel() if mask is None else values[mask]

    def _found(self, flat: Addresses, itemsize: int) -> tuple[Region, _Touched, _Place]:
        lowest, highest = int(flat.min()), int(flat.max()) + itemsize
        for region in ACCESS_LOG.regions:
            if region.base <= lowest and highest <= region.base + region.size:
                break
        else:
            raise UnbatchableError("an access that no single tensor covers")
        touched = self._touched.get(region.storage.number)
        shift = itemsize.bit_length() - 1
        if touched is None:
            is_given = region.storage.default_origin is Origin.GIVEN and region.storage.origins is None
            touched = self._touched[region.storage.number] = _Touched(shift, is_given)
        if touched.shift != shift or (lowest - region.base) % itemsize:
            raise UnbatchableError("elements of two sizes")
        return region, touched, _place_of(flat, lowest, highest, region.base, shift)

    def _note_writers(self, region: Region, touched: _Touched, place: _Place, who: _Numbers) -> None:
        storage, places = region.storage, place.elements
        if storage.number not in self._saved:
            origins = None if storage.origins is None else storage.origins.copy()
            self._saved[storage.number] = storage, storage.memory.clone(), origins
        if touched.writers is None:
            touched.writers = _elements(region, touched)
        if touched.readers is not None:
            _require_own(touched.readers[places], who >> _PROGRAM_BITS)
        if touched.loaders is not None:
            _require_own(touched.loaders[places], who)
        _require_own(touched.writers[places], who)
        touched.writers[places] = who
        if not place.is_run and (touched.writers[places] != who).any():
            raise UnbatchableError("lanes write to the same element")

    def _note_readers(self, region: Region, touched: _Touched, place: _Place, who: _Numbers) -> None:
        places = place.elements
        if touched.writers is not None:
            _require_own(touched.writers[places], who)
            if touched.writers[places].any():
                RACES.own_store = _SOME_SEGMENT
        readers, programs = self._readers(region, touched), who >> _PROGRAM_BITS
        if RACES.has_warps:
            if touched.loaders is None:
                touched.loaders = _elements(region, touched)
            _note(touched.loaders, place, who)
        _note(readers, place, programs)

    def _readers(self, region: Region, touched: _Touched) -> _Numbers:
        if touched.readers is None:
            touched.readers = _elements(region, touched)
        return touched.readers

    def _who(self, addresses: Addresses, mask: Flags | None) -> _Numbers:
        lanes = self._lane_numbers(addresses[0].size)
        return lanes.ravel() if mask is None else lanes[mask.reshape(lanes.shape)]

    def _lane_numbers(self, size: int) -> _Numbers:
        """Return a number for each lane of each program, with a row for each program."""
        known = self._lanes.get(size)
        if known is None:
            programs = np.arange(self._first, self._first + self.l2_bytes.size, dtype=np.int64) << _PROGRAM_BITS
            known = programs[:, None] + (np.arange(size, dtype=np.int64) + (size.bit_length() << _SIZE_BITS))
            self._lanes[size] = known
        return known

    def _count_lone(self, addresses: Addresses, mask: Flags | None, sectors: _Numbers, itemsize: int) -> None:
        count = addresses.shape[0]
        each = None if mask is None else mask.reshape(count, -1)
        self.lone_sectors += lone_sectors(addresses.reshape(count, -1), each, sectors, itemsize)

    def _count_lanes(self, all_lanes: int, active: int, itemsize: int) -> None:
        ACCESS_LOG.lane_bytes += itemsize * all_lanes
        ACCESS_LOG.asked_bytes += itemsize * active


def _note_reads(region: Region, addresses: Addresses, mask: Flags | None, sectors: _Numbers) -> None:
    count = addresses.shape[0]
    offsets = (addresses - np.uint64(region.base)).view(np.int64).reshape(count, -1)
    lanes = None if mask is None else mask.reshape(count, -1)
    REREADS.note(region.storage.number, region.size, offsets, lanes, sectors)


def _taking_part(addresses: Addresses, mask: Flags | None) -> tuple[Addresses, Flags | None]:
    """Return the addresses of the lanes that take part, in one row, and the mask, None if all do."""
    if mask is None or bool(mask.all()):
        return addresses.ravel(), None
    mask = np.broadcast_to(mask, addresses.shape)
    return addresses[mask], mask


def _elements_of(region: Region, dtype: Any) -> Any:
    """Return a storage as an array of elements."""
    content = region.storage.content
    return content[: content.size // dtype.itemsize * dtype.itemsize].view(dtype)


def _place_of(flat: Addresses, lowest: int, highest: int, base: int, shift: int) -> _Place:
    size, start = 1 << shift, lowest - base
    if highest - lowest == flat.size << shift and bool((flat[1:] - flat[:-1] == np.uint64(size)).all()):
        first, end, sector = start >> shift, highest - base, start >> int(_SHIFT)
        sectors = slice(sector, (end - size >> int(_SHIFT)) + 1)
        return _Place(True, slice(first, first + flat.size), slice(start, end, size), sectors)
    offsets = (flat - np.uint64(base)).view(np.int64)
    return _Place(False, offsets >> shift, offsets, offsets >> int(_SHIFT))


def _loaded(region: Region, place: _Place, mask: Flags | None, rest: Any) -> Any:
    found = _elements_of(region, rest.dtype)[place.elements]
    if mask is None:
        return (found.copy() if place.is_run else found).reshape(rest.shape)
    loaded = np.array(rest)
    loaded[mask] = found
    return loaded


def _elements(region: Region, touched: _Touched) -> _Numbers:
    return np.zeros((region.size >> touched.shift) + 1, np.int64)


def _note(found: _Numbers, place: _Place, who: _Numbers) -> None:
    """Note who touches each element: the only one so far, or `_MANY`."""
    places = place.elements
    prior = found[places]
    noted = np.where((prior == 0) | (prior == who), who, _MANY)
    found[places] = noted
    if place.is_run:
        return
    several = found[places] != noted
    if several.any():
        found[places[several]] = _MANY


def _require_own(prior: _Numbers, own: _Numbers) -> None:
    if prior.any() and not ((prior == own) | (prior == 0)).all():
        raise UnbatchableError("an element that another program, or lane, has touched")


def _flags(region: Region, name: str) -> Flags:
    flags = getattr(region, name)
    if flags is None:
        flags = np.zeros(region.size // SECTOR_BYTES + 1, dtype=bool)
        setattr(region, name, flags)
    return flags


def _sectors_by_program(addresses: Addresses, flat: Addresses, mask: Flags | None, is_run: bool) -> _Numbers:
    """Return what `sectors_touched` returns, for each program. `is_run`: of neighbours in ascending order."""
    count = addresses.shape[0]
    lanes = None if mask is None else mask.reshape(count, -1)
    active = np.full(count, flat.size // count) if lanes is None else np.count_nonzero(lanes, axis=1)
    if is_run:
        touched = _spanned(flat, active)
    elif mask is None:
        touched = _changes(flat.reshape(count, -1), None)
    else:
        touched = _changes(flat, np.repeat(np.arange(count), active), count)
    is_scattered = (touched > active // 2) & (active > 1)
    if addresses.ndim <= 2 or not is_scattered.any():
        return touched
    axes = (0, *range(addresses.ndim - 1, 0, -1))
    turned = addresses.transpose(axes)
    if mask is None:
        again = _changes(turned.reshape(count, -1), None)
    else:
        again = _changes(turned[mask.transpose(axes)], np.repeat(np.arange(count), active), count)
    return np.where(is_scattered, np.minimum(touched, again), touched)


def _changes(addresses: Addresses, programs: Any, count: int = 0) -> _Numbers:
    """Count, for each program, the neighbours that lie in different sectors, and one. `programs`: of each address."""
    sectors = addresses >> _SHIFT
    if programs is None:
        return 1 + np.count_nonzero(sectors[:, 1:] != sectors[:, :-1], axis=1)
    is_new = np.ones(sectors.size, dtype=bool)
    is_new[1:] = (sectors[1:] != sectors[:-1]) | (programs[1:] != programs[:-1])
    return np.bincount(programs[is_new], minlength=count)


def _spanned(flat: Addresses, active: _Numbers) -> _Numbers:
    """Return what `_changes` returns for neighbours in ascending order. `active`: the number of each program's."""
    ends = np.cumsum(active)
    first, last = flat[np.minimum(ends - active, flat.size - 1)], flat[ends - 1]
    return np.where(active > 0, 1 + ((last >> _SHIFT) - (first >> _SHIFT)).view(np.int64), 0)
