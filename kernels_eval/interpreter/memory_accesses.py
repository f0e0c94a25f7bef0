"""Interpreter process: memory accesses of a launch: bounds, traffic, and the provenance of each byte.

Every load, store and atomic is checked against the storages of the launch's tensors, and counted: distinct 32-byte
sectors (DRAM traffic of the launch) and sectors per access (L2 traffic). Stores record the origin of the elements that
they write: it gives the share of a result that kernels computed. No host code of the candidate runs in this process,
and kernels cannot name this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import torch

from kernels_eval.cost.launch import SECTOR_BYTES
from kernels_eval.interpreter.data_races import RACES
from kernels_eval.interpreter.rereads import REREADS
from kernels_eval.interpreter.shadow_memory import Access, Shadow, lane_numbers

_SHIFT = SECTOR_BYTES.bit_length() - 1
_NO_PIECE = np.uint64(2**64 - 1)
"""Of lanes that are masked off, after all others."""
Addresses = np.ndarray[Any, np.dtype[np.uint64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Origins = np.ndarray[Any, np.dtype[np.uint8]]


class OutOfBoundsError(Exception):
    """A kernel touched memory outside its tensors."""


class Origin(IntEnum):
    """Last writer of an element. Kept for the byte at which the element starts."""

    NOBODY = 0
    """Fresh memory."""
    GIVEN = 1
    """An input, a weight, or a constant of the host code."""
    FILL = 2
    """A constant that PyTorch filled in."""
    LIBRARY = 3
    """A computing operator of PyTorch."""
    KERNEL = 4
    """A kernel of the candidate."""
    MOVED = 5
    """A given value, converted or rearranged by PyTorch."""


@dataclass
class Storage:
    """One allocation, and its provenance."""

    number: int
    memory: torch.Tensor
    """Its bytes, one-dimensional uint8."""
    default_origin: Origin
    """Origin of all bytes, as long as `origins` is None."""
    origins: Origins | None = None
    """For each byte: the Origin of the element that starts there. None as long as all have the default origin."""
    dtype: torch.dtype | None = None
    """Type as which the last launch got it, or the last operator made it."""
    shadow: Shadow | None = None
    """Programs that accessed its elements, once that can matter."""

    @property
    def base(self) -> int:
        """Its address."""
        return self.memory.data_ptr()

    @cached_property
    def content(self) -> Any:
        """Its bytes as an array of NumPy."""
        return self.memory.numpy()

    def all_origins(self) -> Origins:
        """Return the origins; made from the default origin if there are none yet."""
        if self.origins is None:
            count = self.memory.numel()
            self.origins = (
                np.zeros(count, np.uint8)
                if self.default_origin is Origin.NOBODY
                else np.full(count, self.default_origin)
            )
        return self.origins


@dataclass
class Region:
    """A storage as one launch sees it."""

    name: str
    """Name of the argument that refers to it."""
    storage: Storage
    base: int
    size: int
    start: int = 0
    """Offset in bytes of the argument's first element."""
    read: Flags | None = None
    """Sectors read in this launch."""
    written: Flags | None = None
    """Sectors written in this launch."""
    atomics: dict[int, Any] = field(default_factory=dict[int, Any])
    """Atomics of this launch that followed one another, by sector (kernels_eval.interpreter.contention)."""
    lanes: dict[int, Any] = field(default_factory=dict[int, Any])
    """Lanes of them, by element."""


@dataclass
class AccessLog:
    """Accesses of the current launch so far."""

    regions: list[Region] = field(default_factory=list)
    program: tuple[int, int, int] = (0, 0, 0)
    l2_bytes: int = 0
    lone_sectors: int = 0
    """Of the sectors in `l2_bytes`, those that an access touches without the other one of their piece."""
    asked_bytes: int = 0
    """Bytes that the lanes of all accesses asked for; lanes that were masked off did not."""
    lane_bytes: int = 0
    """Bytes that all lanes would have asked for."""

    def start(self, regions: list[Region]) -> None:
        """Begin a launch."""
        self.regions = regions
        self.l2_bytes = self.lone_sectors = self.asked_bytes = self.lane_bytes = 0

    @property
    def sectors(self) -> int:
        """Distinct sectors read, plus those written."""
        return sum(
            int(np.count_nonzero(flags))
            for region in self.regions
            for flags in (region.read, region.written)
            if flags is not None
        )

    @property
    def written_sectors(self) -> int:
        """Number of distinct sectors written."""
        return sum(int(np.count_nonzero(region.written)) for region in self.regions if region.written is not None)

    def sectors_read_in(self, touched: Mapping[int, Flags]) -> int:
        """Return the distinct sectors read that are among these, by the storage's number."""
        return sum(
            int(np.count_nonzero(region.read & touched[region.storage.number]))
            for region in self.regions
            if region.read is not None and region.storage.number in touched
        )

    def add_touched(self, touched: dict[int, Flags]) -> None:
        """Add the sectors read or written to those of earlier launches, by the storage's number."""
        for region in self.regions:
            for sectors in (region.read, region.written):
                if sectors is not None:
                    number = region.storage.number
                    touched[number] = touched[number] | sectors if number in touched else sectors.copy()

    @property
    def given_sectors(self) -> int:
        """Number of distinct sectors read in storages that no kernel has ever written."""
        return sum(
            int(np.count_nonzero(region.read))
            for region in self.regions
            if region.read is not None
            and region.storage.default_origin is Origin.GIVEN
            and region.storage.origins is None
        )


ACCESS_LOG = AccessLog()


@dataclass(slots=True)
class _Lanes:
    """One access of a kernel: a pointer for each lane, and what it does there."""

    shape: tuple[int, ...]
    mask: Flags | None
    """Lanes that take part; None: all."""
    itemsize: int
    reads: bool
    writes: bool
    values: Any
    is_volatile: bool
    is_for_all: bool

    def numbers(self) -> Any:
        """Return the numbers of the lanes that take part."""
        return lane_numbers(self.shape, self.mask)

    def stored(self) -> Any:
        """Return the values that the lanes store, None if they load."""
        if self.values is None:
            return None
        values = self.values if self.values.shape == self.shape else np.broadcast_to(self.values, self.shape)
        return values.ravel() if self.mask is None else values[self.mask]


def record_access(
    pointers: Any,
    mask: Flags | None,
    reads: bool,
    writes: bool,
    values: Any = None,
    is_volatile: bool = False,
    is_for_all: bool = True,
) -> None:
    """Check and count one access, before it is carried out.

    Raises OutOfBoundsError or DataRaceError. An access that reads and writes is atomic.

    Args:
        pointers: handle with a uint64 array of any shape.
        mask: array of booleans, or of 0 and 1, that can be broadcast to that shape, or None.
        values: array of the values to be stored, of that shape.
        is_volatile: True for a load that no cache may answer: it does not conflict with atomics.
        is_for_all: False for an atomic that only lanes of its own program take for one.
    """
    addresses: Addresses = pointers.data
    RACES.own_store = 0
    if mask is not None:
        mask = np.asarray(mask, dtype=bool)  # numbers would be taken as indices
        if bool(mask.all()):
            mask = None
        elif mask.shape != addresses.shape:
            mask = np.broadcast_to(mask, addresses.shape)
    flat = addresses.ravel() if mask is None else addresses[mask]
    itemsize = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    ACCESS_LOG.lane_bytes += itemsize * addresses.size
    ACCESS_LOG.asked_bytes += itemsize * flat.size
    if flat.size == 0:
        return
    lanes = _Lanes(addresses.shape, mask, itemsize, reads, writes, values, is_volatile, is_for_all)
    lowest, highest = int(np.minimum.reduce(flat)), int(np.maximum.reduce(flat)) + itemsize
    for region in ACCESS_LOG.regions:
        if region.base <= lowest and highest <= region.base + region.size:
            _mark(region, flat, lanes, None)
            break
    else:
        _record_scattered(flat, lanes)
    if int(np.bitwise_or.reduce(flat)) % itemsize:
        raise OutOfBoundsError(
            f"misaligned address: the kernel {'writes' if writes else 'reads'} elements of {itemsize} bytes at "
            f"addresses that are no multiples of {itemsize} (program {ACCESS_LOG.program})"
        )
    sectors = sectors_touched(addresses, flat, mask)
    ACCESS_LOG.l2_bytes += SECTOR_BYTES * sectors
    ACCESS_LOG.lone_sectors += lone_sectors(flat.reshape(1, -1), None, sectors, itemsize)


_FAR = 1 << 40
"""Bytes from a tensor that no offset of an honest kernel reaches, as addresses that host code made up are."""
_OF_NUMBERS = (
    "; so far away is a pointer made of a number: it has to be what `data_ptr()` gave of a tensor that is still in use"
)


def _record_scattered(flat: Addresses, lanes: _Lanes) -> None:
    """An access that no single tensor covers: pointers into several tensors, or out of bounds."""
    outside = np.ones(flat.shape, dtype=bool)
    for region in ACCESS_LOG.regions:
        end = np.uint64(region.base + region.size)
        inside = (flat >= np.uint64(region.base)) & (flat + np.uint64(lanes.itemsize) <= end)
        if inside.any():
            _mark(region, flat[inside], lanes, inside)
            outside &= ~inside
    if not outside.any():
        return
    address = int(flat[outside][0])
    verb = "writes" if lanes.writes else "reads"
    if not ACCESS_LOG.regions:
        raise OutOfBoundsError(f"the kernel {verb} memory, but was passed no tensor")

    def distance(region: Region) -> int:
        return max(region.base - address, address - region.base - region.size, 0)

    nearest = min(ACCESS_LOG.regions, key=distance)
    offset = address - nearest.base
    past = offset - nearest.size
    where = (
        f"{-offset} bytes before the start" if offset < 0 else f"{past} bytes past the end" if past else "at the end"
    )
    raise OutOfBoundsError(
        f"the kernel {verb} outside its tensors: {where} of the {nearest.size} bytes of `{nearest.name}` "
        f"({int(outside.sum())} of {flat.size} elements of this access, program {ACCESS_LOG.program})"
        f"{_OF_NUMBERS if distance(nearest) >= _FAR else ''}"
    )


def _mark(region: Region, flat: Addresses, lanes: _Lanes, inside: Flags | None) -> None:
    """Record an access within one region. `inside`: lanes that touch it, of those that take part; None: all."""
    offsets = (flat - np.uint64(region.base)).view(np.int64)
    _check_races(region, offsets, lanes, inside)
    sectors = offsets >> _SHIFT
    count = region.size // SECTOR_BYTES + 1
    if lanes.reads:
        if region.read is None:
            region.read = np.zeros(count, dtype=bool)
        region.read[sectors] = True
        if not lanes.writes:
            touched = 1 + int(np.count_nonzero(sectors[1:] != sectors[:-1]))
            REREADS.note(region.storage.number, region.size, offsets[None, :], None, touched)
    if lanes.writes:
        if region.written is None:
            region.written = np.zeros(count, dtype=bool)
        region.written[sectors] = True
        region.storage.all_origins()[offsets] = Origin.KERNEL


def _check_races(region: Region, offsets: Any, lanes: _Lanes, inside: Flags | None) -> None:
    storage = region.storage
    is_given = storage.default_origin is Origin.GIVEN and storage.origins is None
    if storage.shadow is None:
        if is_given and not lanes.writes:
            return
        storage.shadow = Shadow(region.size, lanes.itemsize)
    numbers, stored = lanes.numbers(), lanes.stored()
    if inside is not None:
        numbers, stored = numbers[inside], None if stored is None else stored[inside]
    access = Access(region.name, region.start, offsets, lanes.itemsize, numbers, storage.content, stored)
    if (lanes.reads and lanes.writes) or lanes.is_volatile:
        RACES.atomic(storage.shadow, access, lanes.writes, lanes.is_for_all)
    elif lanes.writes:
        RACES.store(storage.shadow, access)
    else:
        RACES.load(storage.shadow, access, is_recorded=not is_given)


def lone_sectors(addresses: Addresses, mask: Flags | None, sectors: Any, itemsize: int) -> int:
    """Return how many sectors accesses touch without the other sector of the same 64 bytes, all together.

    `addresses`, `mask`: a row for each access. `sectors`: those that each touches, as `sectors_touched` has them. A
    block that begins or ends in the middle of 64 bytes does not count.
    """
    active = addresses.shape[1] if mask is None else np.count_nonzero(mask, axis=1)
    is_scattered = np.atleast_1d(sectors * SECTOR_BYTES > active * itemsize + SECTOR_BYTES)
    if not is_scattered.any():
        return 0
    pieces = addresses[is_scattered] >> np.uint64(_SHIFT + 1)
    if mask is not None:
        pieces = np.where(mask[is_scattered], pieces, _NO_PIECE)
    pieces = np.sort(pieces, axis=1)
    distinct = 1 + np.count_nonzero(pieces[:, 1:] != pieces[:, :-1], axis=1) - (pieces[:, -1] == _NO_PIECE)
    touched = np.atleast_1d(sectors)[is_scattered]
    return int(np.clip(2 * distinct - touched, 0, touched).sum())


def sectors_touched(addresses: Addresses, flat: Addresses, mask: Flags | None) -> int:
    """Return the sectors of one access; neighbours in one sector count once.

    Of the two orders that a layout can take, the better one counts.
    """
    sectors = flat >> np.uint64(_SHIFT)
    touched = 1 + int(np.count_nonzero(sectors[1:] != sectors[:-1]))
    if addresses.ndim >= 2 and touched > flat.size // 2 > 0:
        turned = addresses.T.ravel() if mask is None else addresses.T[mask.T]
        sectors = turned >> np.uint64(_SHIFT)
        touched = min(touched, 1 + int(np.count_nonzero(sectors[1:] != sectors[:-1])))
    return touched
