"""Virtual time: an asyncio loop whose clock jumps to the next event, and blocking code that runs in it.

Blocking code runs in greenlets: where it would wait, the loop goes on with something else. What uses `threading` locks
and conditions and `time.monotonic` by their module names runs unchanged once these two names are replaced by
`threading_in` and `time_in` of the loop.
"""

import asyncio
import heapq
import selectors
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent, greenlet


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: the time until the next event is added to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("the simulation has stopped: everything waits, and nothing is left to happen")
        self.now += 0 if ready else max(timeout or 0.0, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, in seconds from 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time."""
        return self._jumping.now

    def start(self, function: Callable[..., object], *arguments: object) -> None:
        """Run blocking code in this loop, from now on."""
        self.call_soon(greenlet(function).switch, *arguments)

    def sleep(self, seconds: float) -> None:
        """Wait, in code that was started with `start`."""
        self.call_later(seconds, getcurrent().switch)
        _pause()


def _pause() -> None:
    """Leave the current greenlet until it is switched to."""
    parent = getcurrent().parent
    assert parent is not None, "blocking code has to be started with VirtualLoop.start"
    parent.switch()


class _Condition:
    """`threading.Condition` for one waiting greenlet."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._waiting: greenlet | None = None

    def wait(self, timeout: float | None = None) -> None:
        self._waiting = getcurrent()
        timer = None if timeout is None else self._loop.call_later(timeout, self._resume)
        _pause()
        if timer is not None:
            timer.cancel()

    def notify(self) -> None:
        self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.switch()


def threading_in(loop: VirtualLoop) -> SimpleNamespace:
    """Return what stands for the module `threading`. One greenlet runs at a time: a lock has nothing to do."""
    return SimpleNamespace(Lock=nullcontext, Condition=lambda _lock: _Condition(loop))


def time_in(loop: VirtualLoop) -> SimpleNamespace:
    """Return what stands for the module `time`."""
    return SimpleNamespace(monotonic=loop.time)


class Cores:
    """Cores of a node, shared equally by the processes that compute, as an operating system does."""

    def __init__(self, loop: VirtualLoop, count: int) -> None:
        self._loop, self._count = loop, count
        self._served = 0.0
        """CPU seconds that a process would have that has computed from the start."""
        self._at = 0.0
        self._ends: list[tuple[float, int, greenlet]] = []
        self._started = 0
        self._timer: asyncio.TimerHandle | None = None

    def work(self, cpu_s: float) -> None:
        """Compute for so many CPU seconds, in code that was started with `VirtualLoop.start`."""
        self._advance()
        self._started += 1
        heapq.heappush(self._ends, (self._served + cpu_s, self._started, getcurrent()))
        self._plan()
        _pause()

    def _rate(self) -> float:
        return min(1.0, self._count / len(self._ends))

    def _advance(self) -> None:
        now = self._loop.time()
        if self._ends:
            self._served += (now - self._at) * self._rate()
        self._at = now

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left = (self._ends[0][0] - self._served) / self._rate() if self._ends else None
        self._timer = None if left is None else self._loop.call_later(max(left, 0.0), self._end)

    def _end(self) -> None:
        self._advance()
        ended: list[greenlet] = []
        while self._ends and self._ends[0][0] <= self._served + 1e-9:
            ended.append(heapq.heappop(self._ends)[2])
        self._plan()
        for process in ended:
            process.switch()
