"""What a launch touches: bounds, traffic, and which bytes kernels stored.

Every load, store and atomic is checked against the storages of the launch's tensors, and counted: distinct 32-byte sectors
(DRAM traffic of the launch) and sectors per access (L2 traffic). Stores mark the elements that they write, so that it
can be asked which share of a result kernels computed. The ledger lives in the candidate's own process and can be reached by
hostile code: it is the first line, not the last.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kernels_eval.launches import Launch

SECTOR_BYTES = 32
_SHIFT = np.uint64(5)
Addresses = np.ndarray[Any, np.dtype[np.uint64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class OutOfBoundsError(Exception):
    """A kernel touched memory outside its tensors."""


@dataclass
class Region:
    """The storage behind one tensor argument."""

    name: str
    base: int
    size: int
    read: Flags | None = None
    """Sectors read in this launch."""
    written: Flags | None = None
    """Sectors written in this launch."""


@dataclass
class Ledger:
    """Everything that was counted since the last `reset`."""

    launches: list[Launch] = field(default_factory=list)
    stored: dict[int, Flags] = field(default_factory=dict)
    """Address of a storage -> for each byte: does an element that a kernel stored start there?"""
    storages: list[torch.UntypedStorage] = field(default_factory=list)
    """Keeps storages alive, so that no address is used twice."""
    inside_launch: bool = False
    only_grids: bool = False
    """Launches are recorded with their grids and argument types, and not run."""
    regions: list[Region] = field(default_factory=list)
    program: tuple[int, int, int] = (0, 0, 0)
    l2_bytes: int = 0
    flops: int = 0

    def reset(self) -> None:
        """Forget everything."""
        self.__init__()


LEDGER = Ledger()


def account(pointers: Any, mask: Flags | None, reads: bool, writes: bool) -> None:
    """Check and count one access. Pointers: uint64 array of any shape; mask: bool array of the same shape."""
    addresses: Addresses = pointers.data
    if mask is not None:
        mask = None if bool(mask.all()) else np.broadcast_to(mask, addresses.shape)
    flat = addresses.ravel() if mask is None else addresses[mask]
    if flat.size == 0:
        return
    bits = pointers.get_element_ty().primitive_bitwidth
    itemsize = max(1, bits // 8)
    lowest, highest = int(flat.min()), int(flat.max()) + itemsize
    for region in LEDGER.regions:
        if region.base <= lowest and highest <= region.base + region.size:
            _mark(region, flat, reads, writes)
            break
    else:
        _account_scattered(flat, itemsize, reads, writes)
    LEDGER.l2_bytes += SECTOR_BYTES * _sectors_touched(addresses, flat, mask)


def _account_scattered(flat: Addresses, itemsize: int, reads: bool, writes: bool) -> None:
    """An access that no single tensor covers: pointers into several tensors, or out of bounds."""
    outside = np.ones(flat.shape, dtype=bool)
    for region in LEDGER.regions:
        inside = (flat >= np.uint64(region.base)) & (flat + np.uint64(itemsize) <= np.uint64(region.base + region.size))
        if inside.any():
            _mark(region, flat[inside], reads, writes)
            outside &= ~inside
    if not outside.any():
        return
    address = int(flat[outside][0])
    verb = "writes" if writes else "reads"
    if not LEDGER.regions:
        raise OutOfBoundsError(f"the kernel {verb} memory, but was passed no tensor")

    def distance(region: Region) -> int:
        return max(region.base - address, address - region.base - region.size, 0)

    nearest = min(LEDGER.regions, key=distance)
    offset = address - nearest.base
    where = f"{offset - nearest.size} bytes past the end" if offset >= 0 else f"{-offset} bytes before the start"
    raise OutOfBoundsError(
        f"the kernel {verb} outside its tensors: {where} of the {nearest.size} bytes of `{nearest.name}` "
        f"({int(outside.sum())} of {flat.size} elements of this access, program {LEDGER.program})"
    )


def _mark(region: Region, flat: Addresses, reads: bool, writes: bool) -> None:
    offsets = flat - np.uint64(region.base)
    sectors = (offsets >> _SHIFT).astype(np.int64)
    count = region.size // SECTOR_BYTES + 1
    if reads:
        if region.read is None:
            region.read = np.zeros(count, dtype=bool)
        region.read[sectors] = True
    if writes:
        if region.written is None:
            region.written = np.zeros(count, dtype=bool)
        region.written[sectors] = True
        stored = LEDGER.stored.get(region.base)
        if stored is None:
            stored = LEDGER.stored[region.base] = np.zeros(region.size, dtype=bool)
        stored[offsets.astype(np.int64)] = True


def _sectors_touched(addresses: Addresses, flat: Addresses, mask: Flags | None) -> int:
    """Sectors of one access, neighbours in a sector counted once, in the better of the two orders that a layout can take."""
    sectors = flat >> _SHIFT
    touched = 1 + int(np.count_nonzero(sectors[1:] != sectors[:-1]))
    if addresses.ndim >= 2 and touched > flat.size // 2 > 0:
        turned = addresses.T.ravel() if mask is None else addresses.T[mask.T]
        sectors = turned >> _SHIFT
        touched = min(touched, 1 + int(np.count_nonzero(sectors[1:] != sectors[:-1])))
    return touched
