"""Interpreter process: what lanes of a load hold that are masked off without `other`: zero, or a pattern.

Triton's text leaves them undefined. Its compiler for NVIDIA's devices writes zero before the predicated load; that for
AMD's does not promise it. Decision 0014 says when which of the two decides.
"""

import itertools
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_eval.sandbox.candidate_source import FILE_NAME

_BITS = {16: (0x7FC0, 0x7F80, 0xFF80), 8: (0x7F, 0x7E, 0xFE)}
"""Bits of NaN, and of both infinities or the largest values, in the types that NumPy lacks, by their width."""
_loads = itertools.count()


@dataclass
class UndefinedLanes:
    """Content of such lanes in the part of a program that runs, and the line that has made some."""

    are_poisoned: bool = False
    """True: they hold the pattern; False: zero."""
    line: int | None = None
    """Line of the candidate's source of the first such load in this part; 0: not known; None: no lane was undefined."""

    def begin(self, are_poisoned: bool) -> None:
        """Begin a part of a program."""
        self.are_poisoned, self.line = are_poisoned, None


UNDEFINED_LANES = UndefinedLanes()


def undefined(shape: tuple[int, ...], dtype: Any, numpy_type: Any, mask: Any) -> np.ndarray[Any, Any]:
    """Return what lanes hold that are masked off without `other`.

    `mask`: lanes that are loaded; None: all. The pattern is by turns NaN and both infinities, or the extremes: NaN
    alone would not show in `tl.max` and `tl.min`, which pass over it. A block of one lane gets each of the values in
    some load.
    """
    if UNDEFINED_LANES.line is None and mask is not None and not bool(mask.all()):
        UNDEFINED_LANES.line = _candidates_line()
    if not UNDEFINED_LANES.are_poisoned:
        return np.zeros(shape, numpy_type)
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


def _candidates_line() -> int:
    """Return the innermost line of the candidate's source that runs, or 0 if there is none."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_filename == FILE_NAME:
            return frame.f_lineno
        frame = frame.f_back
    return 0
