"""Interpreter process: counts atomics as a GPU carries them out, one after the other where they meet.

A cache line takes the atomics of one warp together, but those on the same address one by one: as many rounds as lanes
of the warp name the address that most of them name. Rounds on one line follow one another, whichever programs they are
of: the line with the most bounds the launch.
"""

from typing import Any

import numpy as np

from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, Region
from kernels_eval.interpreter.operation_log import OPERATION_LOG

_LANES = 32
_LINE_BITS = np.uint64(7)
"""Logarithm of a cache line's 128 bytes."""
_WARP_BITS = np.uint64(48)
"""A lane's key: its address in the bits below, its warp above."""


def count_atomics(addresses: Any, mask: Any) -> None:
    """Count one atomic access. `addresses`: uint64 array of any shape; `mask`: lanes that take part, None: all."""
    flat = addresses.ravel()
    keys = flat | (np.arange(flat.size, dtype=np.uint64) // np.uint64(_LANES) << _WARP_BITS)
    if mask is not None:
        keys = keys[np.broadcast_to(np.asarray(mask, dtype=bool), addresses.shape).ravel()]
    if not keys.size:
        return
    named, lanes = np.unique(keys, return_counts=True)
    of_lines = named >> _LINE_BITS
    starts = np.flatnonzero(np.concatenate(([True], of_lines[1:] != of_lines[:-1])))
    rounds = np.maximum.reduceat(lanes, starts)
    OPERATION_LOG.counts["atomic"] += _LANES * float(rounds.sum())
    lines = of_lines[starts] & np.uint64((1 << int(_WARP_BITS - _LINE_BITS)) - 1)
    for region in ACCESS_LOG.regions:
        _add(region, lines, rounds)


def _add(region: Region, lines: Any, rounds: Any) -> None:
    first, last = region.base >> int(_LINE_BITS), (region.base + region.size) >> int(_LINE_BITS)
    places = lines.astype(np.int64) - first
    inside = (places >= 0) & (places <= last - first)
    if inside.any():
        if region.atomics is None:
            region.atomics = np.zeros(last - first + 1)
        np.add.at(region.atomics, places[inside], rounds[inside])


def most_contended() -> float:
    """Return the rounds on the line with the most, in the current launch."""
    return max(
        (float(region.atomics.max()) for region in ACCESS_LOG.regions if region.atomics is not None), default=0.0
    )
