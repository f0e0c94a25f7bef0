"""Launch parameters of generated kernels that an autotuner would try. The shape decides which one is fastest.

The tile of a program is `rows` x `columns`. The number of elements a thread holds decides most: few hide no latency,
many spill. A matrix product also has a depth of its inner loop and a number of pipeline stages.
"""

import itertools
import random

from kernels_eval.frozen import FrozenModel
from tasks.problems.synthetic.composition import Composition
from tasks.problems.synthetic.operators import Family

ROW_FAMILIES = {Family.ROW_STATISTIC, Family.SOFTMAX, Family.NORMALISATION, Family.REDUCTION}
"""Families whose operators need a whole row in one tile."""
ELEMENTS_PER_THREAD = (4, 128)
"""Least and most elements of a tile for each thread: 128 take half of its 255 registers. Not measured beyond."""
SHARED_BYTES = 232_448
"""Shared memory of a program on an H100 (CUDA C++ Programming Guide, compute capability 9.0: 227 KB)."""
WARP = 32
_WARPS = (1, 2, 4, 8, 16)


class Tuning(FrozenModel):
    """Launch parameters of one kernel."""

    rows: int
    """Rows of the tile."""
    columns: int | None = None
    """Columns of the tile; None: the whole row, filled up to a power of two."""
    warps: int | None = None
    """Warps of a program; None: Triton's own choice (4)."""
    inner: int | None = None
    """Depth of a matrix product's inner tile; None: there is no matrix product."""
    stages: int | None = None
    """Pipeline stages of a matrix product's loop; None: Triton's own choice."""


def fixed_tuning(composition: Composition, is_small: bool) -> Tuning:
    """Return the tuning of kernels that are not tuned; `is_small`: programs of as few rows as work at all."""
    if composition.head is None:
        return Tuning(rows=1 if is_small else 4)
    return Tuning(rows=16 if is_small else 32, inner=32)


def tunings(composition: Composition, columns: int) -> list[Tuning]:
    """Return every tuning that suits a problem whose output tile has so many columns, in a fixed order."""
    width = 1 << max(columns - 1, 0).bit_length()
    found = _of_products(composition, width) if composition.head is not None else _of_tiles(composition, width)
    return [tuning for tuning in found if _suits(tuning, tuning.columns or width)]


def draw_tuning(composition: Composition, columns: int, generator: random.Random) -> Tuning:
    """Draw one of the tunings; each has the same chance."""
    return generator.choice(tunings(composition, columns))


def needs_whole_rows(composition: Composition) -> bool:
    """True if an operator reduces over a row, so that no tile may be narrower."""
    return any(operator.family in ROW_FAMILIES for operator in composition.operators)


def _suits(tuning: Tuning, columns: int) -> bool:
    low, high = ELEMENTS_PER_THREAD
    held = (tuning.stages or 0) * (tuning.inner or 0) * (tuning.rows + columns) * 4  # the loop's tiles, in float32
    return low <= tuning.rows * columns / (WARP * (tuning.warps or 4)) <= high and held <= SHARED_BYTES


def _of_tiles(composition: Composition, width: int) -> list[Tuning]:
    narrower = () if needs_whole_rows(composition) else (32, 128, 512)
    whole = [Tuning(rows=rows, warps=warps) for rows, warps in itertools.product((1, 2, 4, 8, 16), _WARPS)]
    parts = [
        Tuning(rows=rows, columns=columns, warps=warps)
        for columns, rows, warps in itertools.product(narrower, (1, 4, 16, 32, 64), _WARPS[2:4])
        if columns < width
    ]
    return whole + parts


def _of_products(composition: Composition, width: int) -> list[Tuning]:
    narrower = () if needs_whole_rows(composition) else tuple(size for size in (32, 64) if size < width)
    return [
        Tuning(rows=rows, columns=columns, warps=warps, inner=inner, stages=stages)
        for rows, columns, warps, inner, stages in itertools.product(
            (16, 32, 64, 128), (None, *narrower), (4, 8), (32, 64), (2, 4)
        )
    ]
