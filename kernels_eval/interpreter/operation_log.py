"""Interpreter process: operations of a launch by unit, and how evenly its programs share them."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels_eval.cost.launch import Operation

_LANES = 32
_MOST_THREADS = 1024
"""Of a program: blocks of so many elements fill its threads, however many they are."""
_MOST_SHAPES = 32
"""Shapes of blocks that are told apart in one launch; what others cost is known in sum alone."""
Shape = tuple[int, ...]
_WEIGHTS: dict[Operation, float] = {
    "integer": 0.05, "fp32": 0.15, "alu": 0.3, "sfu": 1.2, "dot_half": 0.006, "dot_tf32": 0.012, "dot_byte": 0.003,
    "dot_fp32": 0.08,
}  # fmt: skip
"""Bytes of L2 traffic that take an H100 as long as one operation; others: 1."""


class Counts(defaultdict[Operation, float]):
    """Operations by unit; `blocks` has, of them, those of small blocks by shape, and all loads and reductions."""

    def __init__(self) -> None:
        super().__init__(float)
        self.blocks: dict[Shape, defaultdict[Operation, float]] = {}

    def note(self, shape: Shape, unit: Operation, count: float) -> None:
        """Note that operations counted here are of a block of this shape."""
        block = self.blocks.get(shape)
        if block is None:
            if len(self.blocks) >= _MOST_SHAPES:
                return
            block = self.blocks[shape] = defaultdict(float)
        block[unit] += count

    def add(self, other: "Counts", factor: float) -> None:
        """Add `factor` times what another one has."""
        for unit, count in other.items():
            self[unit] += factor * count
        for shape, block in other.blocks.items():
            for unit, count in block.items():
                self.note(shape, unit, factor * count)


@dataclass
class OperationLog:
    """Operations of the current launch so far."""

    threads: int = 128
    """Threads of a program."""
    axes: int = 0
    """Leading axes of arrays that are no axes of a block: 1 where programs are interpreted together."""
    counts: Counts = field(default_factory=Counts)
    """Operations of all programs."""
    largest_index: int = 0
    """Largest 32-bit integer that was added to a pointer, or widened to 64 bits."""
    most_accesses: float = 0.0
    """Loads of the program with the most."""
    most_reductions: float = 0.0
    """Reductions of the program with the most."""
    _most_work: float = 0.0
    _work: float = 0.0
    _accesses: float = 0.0
    _reductions: float = 0.0
    _ended: int = 0

    def start(self, warps: int) -> None:
        """Begin a launch with this number of warps in a program."""
        self.threads = _LANES * warps
        self.counts = Counts()
        self.largest_index = self._ended = 0
        self.most_accesses = self.most_reductions = self._most_work = 0.0
        self._work = self._accesses = self._reductions = 0.0

    def count(self, pipes: Iterable[tuple[Operation, float]], block: np.ndarray[Any, Any]) -> None:
        """Count an operation on each element of a block. Threads repeat the elements of one that has fewer."""
        lanes = max(block.size, self.threads)
        for unit, each in pipes:
            self.counts[unit] += each * lanes
        if math.prod(block.shape[self.axes :]) < _MOST_THREADS:
            for unit, each in pipes:
                self.counts.note(block.shape[self.axes :], unit, each * lanes)

    def count_wait(self, unit: Operation, shape: Shape) -> None:
        """Count a load of a block, or a reduction of one."""
        self.counts[unit] += 1
        self.counts.note(shape, unit, 1)

    @property
    def blocks(self) -> dict[str, dict[Operation, float]]:
        """Operations by the shape of their block, as `Launch` has them."""
        return {"x".join(map(str, shape)): dict(block) for shape, block in self.counts.blocks.items()}

    def suspend(self, l2_bytes: float) -> tuple[float, float, float]:
        """Return what the program has done that runs, which another one interrupts. `l2_bytes`: as in `end_program`."""
        now = self._now(l2_bytes)
        work, accesses, reductions = now
        done = work - self._work, accesses - self._accesses, reductions - self._reductions
        self._work, self._accesses, self._reductions = now
        return done

    def resume(self, done: tuple[float, float, float], l2_bytes: float) -> None:
        """Let a program go on that was interrupted when it had `done` so much."""
        marks = [now - before for now, before in zip(self._now(l2_bytes), done, strict=True)]
        self._work, self._accesses, self._reductions = marks

    def _now(self, l2_bytes: float) -> tuple[float, float, float]:
        """Return work, loads and reductions of all programs so far."""
        work = l2_bytes + sum(_WEIGHTS.get(unit, 1.0) * count for unit, count in self.counts.items())
        return work, self.counts["access"], self.counts["reduction"]

    def end_program(self, l2_bytes: float) -> None:
        """Note how much the program that ended did. `l2_bytes`: traffic of all programs so far."""
        work, accesses, reductions = self._now(l2_bytes)
        self._most_work = max(self._most_work, work - self._work)
        self.most_accesses = max(self.most_accesses, accesses - self._accesses)
        self.most_reductions = max(self.most_reductions, reductions - self._reductions)
        self._work, self._accesses, self._reductions = work, accesses, reductions
        self._ended += 1

    def end_batch(self, each: Counts, l2_bytes: np.ndarray[Any, Any]) -> None:
        """Note that programs ended together. `each`: operations of every one of them. `l2_bytes`: traffic of each."""
        work = sum(_WEIGHTS.get(unit, 1.0) * count for unit, count in each.items())
        self.counts.add(each, l2_bytes.size)
        self._most_work = max(self._most_work, work + int(l2_bytes.max()))
        self._work += work * l2_bytes.size + int(l2_bytes.sum())
        self.most_accesses = max(self.most_accesses, each.get("access", 0.0))
        self.most_reductions = max(self.most_reductions, each.get("reduction", 0.0))
        self._ended += l2_bytes.size

    @property
    def busy_share(self) -> float:
        """Mean work of a program over that of the program with the most."""
        return min(1.0, self._work / self._ended / self._most_work) if self._most_work else 1.0


OPERATION_LOG = OperationLog()
