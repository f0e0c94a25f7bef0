"""Interpreter process: counts atomics as a GPU carries them out, one after the other where they meet.

A sector of eight elements takes the atomics of one warp together, but those on the same element one by one: as many
rounds as lanes of the warp name the element that most of them name. Several elements of a sector take less than a round
each, and nothing more if the warp before in the block named the sector too. Rounds on one sector follow one another,
whichever programs they are of: the sector with the most bounds the launch. Measured: docs/estimates.md.
"""

from typing import Any

import numpy as np

from kernels_eval.cost.launch import SECTOR_ELEMENTS
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, Region
from kernels_eval.interpreter.operation_log import OPERATION_LOG

_LANES = 32
_OF_A_ROUND = 0.8
"""Cost of each element of a sector, in rounds."""
_WARP_BITS = np.uint64(48)
"""A lane's key: its address in the bits below, its warp above."""


def count_atomics(addresses: Any, mask: Any, itemsize: int) -> None:
    """Count one atomic access. `addresses`: uint64 array of any shape; `mask`: lanes that take part, None: all."""
    flat = addresses.ravel()
    keys = flat | (np.arange(flat.size, dtype=np.uint64) // np.uint64(_LANES) << _WARP_BITS)
    if mask is not None:
        keys = keys[np.broadcast_to(np.asarray(mask, dtype=bool), addresses.shape).ravel()]
    if not keys.size:
        return
    named, lanes = np.unique(keys, return_counts=True)
    shift = np.uint64((SECTOR_ELEMENTS * itemsize).bit_length() - 1)
    of_sectors = named >> shift
    starts = np.flatnonzero(np.concatenate(([True], of_sectors[1:] != of_sectors[:-1])))
    rounds = np.maximum.reduceat(lanes, starts).astype(np.float64)
    OPERATION_LOG.counts["atomic"] += _LANES * float(rounds.sum())
    warp = np.uint64(1) << (_WARP_BITS - shift)
    sectors = of_sectors[starts]
    is_new = ~np.isin(sectors - warp, sectors)
    elements = np.diff(np.append(starts, named.size))
    rounds = np.maximum(rounds, _OF_A_ROUND * elements * is_new)
    alone = itemsize.bit_length() - 1
    for region in ACCESS_LOG.regions:
        _add(region, region.atomics, (sectors % warp).astype(np.int64), rounds, int(shift))
        _add(region, region.lanes, (named % (np.uint64(1) << _WARP_BITS)).astype(np.int64) >> alone, lanes, alone)


def _add(region: Region, found: dict[int, Any], places: Any, counts: Any, shift: int) -> None:
    """Add counts at places that a region has. `found`: its counts so far, by the size of a place."""
    first, last = region.base >> shift, (region.base + region.size) >> shift
    inside = (places >= first) & (places <= last)
    if inside.any():
        if shift not in found:
            found[shift] = np.zeros(last - first + 1)
        np.add.at(found[shift], places[inside] - first, counts[inside])


def most_contended() -> tuple[float, float]:
    """Return the rounds on the sector with the most, and the lanes on the element with the most, of this launch."""
    tables = [(region.atomics, region.lanes) for region in ACCESS_LOG.regions]
    rounds, lanes = ([float(found.max()) for table in tables for found in table[place].values()] for place in (0, 1))
    return max(rounds, default=0.0), max(lanes, default=0.0)
