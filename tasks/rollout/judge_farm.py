"""Farm of judges: decides which judge gets a kernel, and when a second one gets it too. For one event loop.

A kernel waits here until a judge has room for it, and a judge is sent little more than it can judge at once: its death
affects few kernels. Kernels of one problem go to one judge, which already has the reference, while that one has room.

A kernel whose verdict takes much longer than others of late is sent to a second judge, if that one is idle otherwise.
The first verdict counts. This helps where a judge, its node or its network is slow or stands still. It decides nothing:
a kernel that hangs is a `timeout` by the clock of a judge, at the same time as without a second judge. A judge that was
overtaken keeps what it was sent until it answers or dies; it gets no more meanwhile than it has room for.
"""

import asyncio
import hashlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernels_eval.verdict import Verdict

_REMEMBERED = 256
"""Last answers by which lateness is judged."""
_ENOUGH = 20
"""Answers before anything is late."""
_QUANTILE = 0.9
"""Kernels that hang are fewer than the others, and do not move it."""
_TIMES = 3.0
_LEAST_S = 1.0
"""Late is a kernel after `_TIMES` the quantile of the answers, and not before so many seconds."""
_LOOK_S = 0.5
"""Seconds between two looks whether a late kernel finds an idle judge."""

Ask = Callable[["Place"], Awaitable[Verdict]]
"""Function that asks the judge of a place for one kernel's verdict."""


@dataclass(eq=False, slots=True)
class Place:
    """Place of one judge; a replacement takes the same place."""

    name: str
    workers: int
    """Kernels that it judges at once."""
    judge: Any = None
    load: int = 0
    """Kernels sent and not answered."""

    @property
    def is_idle(self) -> bool:
        """True if a further kernel would be judged at once."""
        return self.load < self.workers

    @property
    def has_room(self) -> bool:
        """True if it may be sent a further kernel."""
        return self.load < 2 * self.workers


@dataclass(eq=False, slots=True)
class _Waiting:
    """A kernel that waits for a place."""

    own: Place
    place: "asyncio.Future[Place]"


class Farm:
    """Places, and the kernels that wait for one of them."""

    def __init__(self, names: Sequence[str], workers: int) -> None:
        self.places = tuple(Place(name, workers) for name in names)
        self.copies = 0
        """Kernels that were sent to a second judge."""
        self.overtaken = 0
        """Kernels of which the second judge gave the verdict."""
        self._waiting: deque[_Waiting] = deque()
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._overtaken: set[asyncio.Task[Verdict]] = set()

    async def verdict(self, topic: str, ask: Ask) -> Verdict:
        """Return the first verdict on a kernel. Kernels of a topic go to one judge where that costs no time.

        A fault of the machine, or an error of `ask`, counts if no other judge has the kernel.
        """
        loop = asyncio.get_running_loop()
        place = await self._room_for(self._own(topic))
        first = self._send(place, ask)
        running, sent, is_copied = {first}, loop.time(), len(self.places) == 1
        try:
            while True:
                look_s = None if is_copied else min(max(self.late_after_s() - (loop.time() - sent), 0.01), _LOOK_S)
                done, running = await asyncio.wait(running, timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
                for answer in sorted(done, key=_is_good, reverse=True):
                    if not running or _is_good(answer):
                        self.overtaken += answer is not first and first in running
                        return answer.result()
                is_late = loop.time() - sent >= self.late_after_s()
                if is_late and not is_copied and (spare := self._idle_beside(place)) is not None:
                    spare.load += 1
                    running.add(self._send(spare, ask))
                    self.copies += 1
                    is_copied = True
        except asyncio.CancelledError:
            for answer in running:
                answer.cancel()
            raise
        finally:
            self._overtaken |= {answer for answer in running if not answer.done()}

    def late_after_s(self) -> float:
        """Return the seconds after which a kernel is late, by the answers of late."""
        if len(self._seconds) < _ENOUGH:
            return math.inf
        return max(_LEAST_S, _TIMES * sorted(self._seconds)[int(_QUANTILE * len(self._seconds))])

    def _own(self, topic: str) -> Place:
        """Return the topic's own place, whatever other places there are."""

        def rank(place: Place) -> bytes:
            return hashlib.sha256(f"{place.name} {topic}".encode("utf-8", "surrogatepass")).digest()

        return max(self.places, key=rank)

    async def _room_for(self, own: Place) -> Place:
        """Wait for room: at the kernel's own place, or at another one. It is taken for this kernel."""
        place = own if own.has_room else min(self.places, key=lambda place: place.load)
        if place.has_room:
            place.load += 1
            return place
        waiting = _Waiting(own, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            return await waiting.place
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:  # it had just been given a place
                self._free(waiting.place.result())
            raise

    def _free(self, place: Place) -> None:
        """Give room to the oldest kernel that waits for this place, or else to the oldest of all."""
        place.load -= 1
        waits = [each for each in self._waiting if not each.place.cancelled()]
        waiting = next((each for each in waits if each.own is place), waits[0] if waits else None)
        if waiting is not None:
            self._waiting.remove(waiting)
            place.load += 1
            waiting.place.set_result(place)

    def _idle_beside(self, place: Place) -> Place | None:
        """Return the idlest other place at which a kernel would be judged at once, if there is one."""
        others = [other for other in self.places if other is not place and other.is_idle]
        return min(others, key=lambda other: other.load, default=None)

    def _send(self, place: Place, ask: Ask) -> "asyncio.Task[Verdict]":
        """Ask the judge of a place, whose load counts the kernel already."""
        loop = asyncio.get_running_loop()

        async def answered() -> Verdict:
            began = loop.time()
            verdict = await ask(place)
            self._seconds.append(loop.time() - began)
            return verdict

        def end(task: "asyncio.Task[Verdict]") -> None:
            self._overtaken.discard(task)
            if not task.cancelled():
                task.exception()  # of one that was overtaken nobody asks for it
            self._free(place)

        task = asyncio.ensure_future(answered())
        task.add_done_callback(end)
        return task


def _is_good(answer: "asyncio.Task[Verdict]") -> bool:
    """Return True unless the judge failed, or the machine."""
    return not answer.cancelled() and answer.exception() is None and not answer.result().is_fault
