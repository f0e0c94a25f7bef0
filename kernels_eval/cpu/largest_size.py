"""CPU worker: the largest leading size at which a correct kernel can be run once more, within time and memory.

The time is estimated from a trial at a reduced size, in proportion to the size, or to a power of it if the counted work
grows faster (a kernel over all pairs of rows).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.size_schedule import Sizes
from kernels_eval.sandbox.tensor_bytes import DTYPES, TensorForm
from kernels_eval.trace.schema import Operate, TraceAnswer, Upload

_BYTES_PER_PROGRAM = 2048
"""Traffic that takes the interpreter as long as a program's own overhead."""
_MOST_GROWTH = 3.0
_LEAST_S = 1e-3
"""A CPU clock with ticks reads zero for a short run. No run is taken to be shorter than this."""
_MEMORY_SHARE = 8
"""The tensors of a run take this part of `memory_mb` at most: provenance and comparisons take several times as much."""


@dataclass(frozen=True)
class SeenRun:
    """Trial at a reduced size, as the base of an estimate."""

    size: int
    seconds: float
    """CPU time of the candidate's kernels and of the reference."""
    growth: float
    """Exponent with which the work grows with the size, 1 to 3."""
    full_bytes: int
    """Size of all tensors of the call at the full size."""

    def seconds_at(self, size: int) -> float:
        """Return the estimated CPU time of a run at another size."""
        return max(self.seconds, _LEAST_S) * (size / self.size) ** self.growth


def growth(small: Sequence[Launch], large: Sequence[Launch], factor: float) -> float:
    """Return the exponent with which the counted work grows from one size to another, `factor` times as large."""
    work = [
        math.fsum(item.l2_bytes + _BYTES_PER_PROGRAM * item.programs for item in launches)
        for launches in (small, large)
    ]
    if min(work) <= 0:
        return 1.0
    return min(max(math.log(work[1] / work[0], factor), 1.0), _MOST_GROWTH)


def tensor_bytes(trace: TraceAnswer, inputs: Sequence[object]) -> int:
    """Return the size in bytes of a call's inputs, uploads and allocations. `inputs`: their forms, and plain values."""
    total = sum(form.nbytes for form in inputs if isinstance(form, TensorForm))
    seen: set[int] = set()
    for command in trace.commands:
        if isinstance(command, Upload):
            total += command.size
        elif isinstance(command, Operate):
            for view in command.results:
                if view is not None and view.storage not in seen:
                    seen.add(view.storage)
                    total += view.reach * DTYPES[view.dtype].itemsize
    return total


def largest_size(seen: SeenRun, full_size: int, budget_s: float, memory_mb: int) -> int | None:
    """Return the full size, a half, a quarter … of it: the largest that fits, or None if the size seen is as large."""
    size = full_size
    while size > seen.size:
        size_bytes = seen.full_bytes * size / full_size
        if seen.seconds_at(size) <= budget_s and size_bytes <= memory_mb * 2**20 / _MEMORY_SHARE:
            return size
        size //= 2
    return None


def fitting_sizes(sizes: Sizes, seen: SeenRun | None, full_size: int | None, budget_s: float, memory_mb: int) -> Sizes:
    """Return the full size if it fits, else the largest pair of sizes that does; `sizes` if they are as large."""
    if seen is None or full_size is None:
        return ()
    size = largest_size(seen, full_size, budget_s, memory_mb)
    if size is None:
        return sizes
    return () if size == full_size else (size // 2, size)
