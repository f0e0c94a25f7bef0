"""Interpreter process: runs the programs of a launch in batches, where they only differ in their values."""

from bisect import bisect_right, insort
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels_eval.interpreter.batched_accesses import BatchedAccesses, UnevenError
from kernels_eval.interpreter.load_turns import LOAD_TURNS
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG
from kernels_eval.interpreter.operation_log import OPERATION_LOG, Counts
from kernels_eval.interpreter.triton_patches.batched_builder import BatchedBuilder
from kernels_eval.interpreter.triton_patches.names import upstream

_FIRST_PROGRAMS = 16
"""Programs of the first batch, which shows how much memory one takes."""
_LANES = 1 << 16
"""Elements that a value of a batch should have: fewer take longer in Python, more leave the processor's caches."""
_MOST_PROGRAMS = 4096
_MOST_ENDS = 4
"""Ends of batches that a launch is started again for: programs whose loops all differ are run one by one."""


def interpret_in_batches(
    function: Any, arguments: dict[str, Any], grid: tuple[int, int, int], restart: Callable[[], None]
) -> bool:
    """Run all programs of a launch, and count them; returns False if they cannot be interpreted together.

    Then, or if one fails, nothing of it remains but the regions and counts of ACCESS_LOG and OPERATION_LOG, which
    `restart` resets. Where a loop takes fewer turns in later programs, as where persistent programs share out an uneven
    number of tiles, the launch starts again, and a batch ends there.
    """
    ends = [grid[0] * grid[1] * grid[2]]
    while len(ends) <= _MOST_ENDS:
        try:
            _run_all(function, arguments, grid, ends)
        except _UnevenBatchError as uneven:
            insort(ends, uneven.program)
            restart()
        except Exception:  # noqa: BLE001 (whatever a kernel does, it does again, one program after the other)
            return False
        else:
            return True
    return False


class _UnevenBatchError(Exception):
    """Raised if a batch has to end before a program, by its number in the launch."""

    def __init__(self, program: int) -> None:
        super().__init__(program)
        self.program = program


def _run_all(function: Any, arguments: dict[str, Any], grid: tuple[int, int, int], ends: list[int]) -> None:
    """Run all programs; none of the batches goes beyond one of the `ends`, which are in order."""
    rules = upstream.interpreter_semantic
    one_by_one, builder = rules.builder, BatchedBuilder()
    builder.set_grid_dim(*grid)
    rules.builder, builder.accesses = builder, BatchedAccesses()
    first, count = 0, _FIRST_PROGRAMS
    try:
        while first < ends[-1]:
            count = min(count, ends[bisect_right(ends, first)] - first)
            _run(builder, function, arguments, first, count)
            first += count
            count = max(1, min(_LANES // builder.widest, _MOST_PROGRAMS))
    except Exception as error:
        builder.accesses.undo()
        if isinstance(error, UnevenError):
            raise _UnevenBatchError(first + error.programs) from error
        raise
    finally:
        rules.builder = one_by_one


def _run(builder: BatchedBuilder, function: Any, arguments: dict[str, Any], first: int, count: int) -> None:
    numbers = np.arange(first, first + count)
    rest, x = np.divmod(numbers, builder.grid_dim[0])
    z, y = np.divmod(rest, builder.grid_dim[1])
    builder.programs = np.stack([x, y, z], axis=1).astype(np.int32)
    builder.accesses.begin(count)
    LOAD_TURNS.begin()
    builder.counts = Counts()
    shared, OPERATION_LOG.counts = OPERATION_LOG.counts, Counts()
    try:
        function.fn(**arguments)
        each = OPERATION_LOG.counts
    finally:
        OPERATION_LOG.counts = shared
    each.add(builder.counts, 1 / count)
    ACCESS_LOG.l2_bytes += int(builder.accesses.l2_bytes.sum())
    ACCESS_LOG.lone_sectors += builder.accesses.lone_sectors
    OPERATION_LOG.end_batch(each, builder.accesses.l2_bytes)
    LOAD_TURNS.end()
