"""Interpreter process: what lanes of a load hold that are masked off without `other`."""

import itertools
from typing import Any

import numpy as np

_BITS = {16: (0x7FC0, 0x7F80, 0xFF80), 8: (0x7F, 0x7E, 0xFE)}
"""Bits of NaN, and of both infinities or the largest values, in the types that NumPy lacks, by their width."""
_loads = itertools.count()


def undefined(shape: tuple[int, ...], dtype: Any, numpy_type: Any) -> np.ndarray[Any, Any]:
    """Return what lanes hold that are masked off without `other`: by turns NaN and both infinities, or the extremes.

    Compiled code leaves their registers as they are, often but not always zero. NaN alone would not show in
    `tl.max` and `tl.min`, which pass over it. A block of one lane gets each of the values in some load.
    """
    if numpy_type.kind == "b":
        turns: tuple[Any, ...] = (True, False)
    elif numpy_type.kind == "f":
        turns = (np.nan, np.inf, -np.inf)
    elif dtype.scalar.is_floating():
        turns = _BITS[dtype.scalar.primitive_bitwidth]
    else:
        turns = (np.iinfo(numpy_type).max, np.iinfo(numpy_type).min)
    values = np.empty(shape, numpy_type)
    flat = values.reshape(-1)
    shift = next(_loads)
    for index in range(len(turns)):
        flat[index :: len(turns)] = turns[(index + shift) % len(turns)]
    return values
