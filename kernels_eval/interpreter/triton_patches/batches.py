"""Interpreter process: runs the programs of a launch in batches, where they only differ in their values."""

from collections import defaultdict
from typing import Any

import numpy as np

from kernels_eval.interpreter.batched_accesses import BatchedAccesses
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG
from kernels_eval.interpreter.operation_log import OPERATION_LOG
from kernels_eval.interpreter.triton_patches.batched_builder import BatchedBuilder
from kernels_eval.interpreter.triton_patches.names import upstream

_FIRST_PROGRAMS = 16
"""Programs of the first batch, which shows how much memory one takes."""
_LANES = 1 << 16
"""Elements that a value of a batch should have: fewer take longer in Python, more leave the processor's caches."""
_MOST_PROGRAMS = 4096


def interpret_in_batches(function: Any, arguments: dict[str, Any], grid: tuple[int, int, int]) -> bool:
    """Run all programs of a launch, and count them; returns False if they cannot be interpreted together.

    Then, or if one fails, nothing of it remains but the regions and counts of ACCESS_LOG and OPERATION_LOG.
    """
    total = grid[0] * grid[1] * grid[2]
    rules = upstream.interpreter_semantic
    one_by_one, builder = rules.builder, BatchedBuilder()
    builder.set_grid_dim(*grid)
    rules.builder, builder.accesses = builder, BatchedAccesses()
    try:
        first, count = 0, _FIRST_PROGRAMS
        while first < total:
            _run(builder, function, arguments, first, min(count, total - first))
            first += count
            count = max(1, min(_LANES // builder.widest, _MOST_PROGRAMS))
    except Exception:  # noqa: BLE001 (whatever a kernel does, it does again, one program after the other)
        builder.accesses.undo()
        return False
    finally:
        rules.builder = one_by_one
    return True


def _run(builder: BatchedBuilder, function: Any, arguments: dict[str, Any], first: int, count: int) -> None:
    numbers = np.arange(first, first + count)
    rest, x = np.divmod(numbers, builder.grid_dim[0])
    z, y = np.divmod(rest, builder.grid_dim[1])
    builder.programs = np.stack([x, y, z], axis=1).astype(np.int32)
    builder.accesses.begin(count)
    builder.counts = defaultdict(float)
    shared, OPERATION_LOG.counts = OPERATION_LOG.counts, defaultdict(float)
    try:
        function.fn(**arguments)
        each = OPERATION_LOG.counts
    finally:
        OPERATION_LOG.counts = shared
    for unit, together in builder.counts.items():
        each[unit] += together / count
    ACCESS_LOG.l2_bytes += int(builder.accesses.l2_bytes.sum())
    OPERATION_LOG.end_batch(each, builder.accesses.l2_bytes)
