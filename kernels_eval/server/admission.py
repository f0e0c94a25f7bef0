"""The bounded queue: how many kernels the server takes on, and when a refused client should come again."""

import math
from collections.abc import Generator
from contextlib import contextmanager

from kernels_eval.judge import Judge

_SHORTEST_S = 1
_LONGEST_S = 60
_UNKNOWN_S = 0.1
"""Taken for a verdict's duration before there were any."""


class RefusedError(Exception):
    """The queue is full; `retry_after_s` is when it may not be."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Admission:
    """Counts kernels of all clients. For one event loop, so that no lock is needed."""

    def __init__(self, judge: Judge, limit: int) -> None:
        self._judge = judge
        self._limit = limit
        self.taken = 0

    @contextmanager
    def places(self, count: int) -> Generator[None]:
        """Hold places for `count` kernels while the block runs. RefusedError: there are not so many."""
        if self.taken + count > self._limit:
            free = self._limit - self.taken
            raise RefusedError(
                f"the queue holds {self.taken} kernels and has room for {free} more, not {count}",
                self._retry_after_s(count),
            )
        self.taken += count
        try:
            yield
        finally:
            self.taken -= count

    def _retry_after_s(self, count: int) -> int:
        """Estimate when `count` places will have become free, from how long verdicts took so far."""
        durations = self._judge.statuses.durations
        judged = sum(durations.counts)
        each_s = durations.total_s / judged if judged else _UNKNOWN_S
        seconds = count * each_s / self._judge.config.workers
        return min(max(math.ceil(seconds), _SHORTEST_S), _LONGEST_S)
