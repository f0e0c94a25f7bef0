"""Farm of judges: decides which judge gets a kernel, and when a second one gets it too. For one event loop.

A kernel waits here until a judge has room for it, and a judge is sent little more than it can judge at once: its death
affects few kernels. Kernels of one problem go to one judge, which already has the reference, while that one has room.

A kernel whose verdict takes much longer than others of late is sent to a second judge, if that one is idle otherwise.
The first verdict counts. This helps where a judge, its node or its network is slow or stands still. It decides nothing:
a kernel that hangs is a `timeout` by the clock of a judge, at the same time as without a second judge. A judge that was
overtaken keeps what it was sent until it answers or dies; it gets no more meanwhile than it has room for.

A kernel on which the machine fails is judged again, by another judge where one is in service. Which ones are, is
decided by `tasks.rollout.judge_quarantine`.
"""

import asyncio
import hashlib
import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError
from kernels_eval.verdict import Verdict, fault
from tasks.rollout.judge_place import Ask, Place, Replace, fault_of, is_good
from tasks.rollout.judge_quarantine import Quarantine

logger = logging.getLogger("kernelmill.rollout")
_ATTEMPTS = 3
"""Judges that may fail on a kernel before its fault is returned: the kernel may be the cause. Copies count."""
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
_CLOSED = fault(ErrorCategory.JUDGE_CLOSED, "the judge was closed")


@dataclass(eq=False, slots=True)
class _Waiting:
    """A kernel that waits for a place."""

    own: Place
    tried: Sequence[Place]
    """Places whose judges failed on it."""
    found: "asyncio.Future[Place | Verdict]"
    """The place, or the fault with which it ends."""


class Farm:
    """Places, and the kernels that wait for one of them."""

    def __init__(self, names: Sequence[str], workers: int, probe: Ask, replace: Replace) -> None:
        """Have no judge at any place yet. `probe` asks one for a kernel that is known to be right."""
        self.places = tuple(Place(name, workers) for name in names)
        self.copies = 0
        """Kernels that were sent to a second judge."""
        self.overtaken = 0
        """Kernels of which the second judge gave the verdict."""
        self.quarantine = Quarantine(self.places, probe, replace, self._offer_all, self._end_waiting)
        """Decides which places are in service; counts how often one went out."""
        self._waiting: deque[_Waiting] = deque()
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._overtaken: set[asyncio.Task[Verdict]] = set()

    async def verdict(self, topic: str, ask: Ask) -> Verdict:
        """Return the first verdict on a kernel. Kernels of a topic go to one judge where that costs no time.

        A fault of the machine, or an InfrastructureError of `ask`, is returned, or raised, if `_ATTEMPTS` judges found
        one; so is a fault if probes fail on all judges, or the farm is closed. Other errors of `ask` are raised at
        once.
        """
        own, tried = self._own(topic), list[Place]()
        while True:
            place = await self._room_for(own, tried)
            if isinstance(place, Verdict):
                return place
            answer, place = await self._answer(place, ask, tried)
            cause, error = fault_of(answer), answer.exception()
            is_last = len(tried) >= _ATTEMPTS or not (error is None or isinstance(error, InfrastructureError))
            if cause is None or is_last:
                return answer.result()
            logger.warning("%s: %s; the kernel is judged again", place.name, cause.error_message)

    def close(self) -> None:
        """Send no further kernel or probe; end kernels that wait as faults. To be called on the event loop."""
        self.quarantine.close()
        self._end_waiting(_CLOSED)

    async def _answer(self, place: Place, ask: Ask, tried: list[Place]) -> "tuple[asyncio.Task[Verdict], Place]":
        """Return the first answer on a kernel, and whose it is.

        It is a fault of the machine, or an error, only if no other judge has the kernel. Appends the places whose
        judges were asked to `tried`.
        """
        loop = asyncio.get_running_loop()
        first = self._send(place, ask)
        tried.append(place)
        running, sent, is_copied = {first}, loop.time(), len(self.places) == 1 or len(tried) >= _ATTEMPTS
        asked = {first: place}
        try:
            while True:
                look_s = None if is_copied else min(max(self.late_after_s() - (loop.time() - sent), 0.01), _LOOK_S)
                done, running = await asyncio.wait(running, timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
                for answer in sorted(done, key=is_good, reverse=True):
                    if not running or is_good(answer):
                        self.overtaken += answer is not first and first in running
                        return answer, asked[answer]
                is_late = loop.time() - sent >= self.late_after_s()
                if is_late and not is_copied and (spare := self._idle_beside(tried)) is not None:
                    spare.load += 1
                    running.add(copy := self._send(spare, ask))
                    asked[copy] = spare
                    tried.append(spare)
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

    def _suited(self, tried: Sequence[Place]) -> list[Place]:
        """Return the places in service for a kernel: those whose judges have not failed on it, if there are any."""
        in_service = [place for place in self.places if place.is_in_service]
        return [place for place in in_service if place not in tried] or in_service

    async def _room_for(self, own: Place, tried: Sequence[Place]) -> Place | Verdict:
        """Wait for room: at the kernel's own place, or at another one. It is taken for this kernel.

        Returns a fault if probes fail on all judges, or the farm is closed.
        """
        if self.quarantine.is_closed:
            return _CLOSED
        suited = self._suited(tried)
        place = own if own in suited and own.has_room else min(suited, key=lambda place: place.load, default=own)
        if place.has_room:
            place.load += 1
            return place
        waiting = _Waiting(own, tried, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            return await waiting.found
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif isinstance(found := waiting.found.result(), Place):  # it had just been given a place
                self._free(found)
            raise

    def _free(self, place: Place) -> None:
        place.load -= 1
        self._offer(place)

    def _offer(self, place: Place) -> None:
        """Give room to kernels that wait for this place, the oldest first, or else to the oldest of all."""
        while place.has_room:
            waits = [each for each in self._waiting if not each.found.cancelled() and self._suits(place, each)]
            waiting = next((each for each in waits if each.own is place), waits[0] if waits else None)
            if waiting is None:
                return
            self._waiting.remove(waiting)
            place.load += 1
            waiting.found.set_result(place)

    def _suits(self, place: Place, waiting: _Waiting) -> bool:
        return not waiting.tried or place in self._suited(waiting.tried)

    def _offer_all(self) -> None:
        """Give room after a place came into service, or went out: what waited for it may go where it was tried."""
        for place in self.places:
            self._offer(place)

    def _end_waiting(self, verdict: Verdict) -> None:
        """End every kernel that waits with a fault."""
        for waiting in [each for each in self._waiting if not each.found.cancelled()]:
            self._waiting.remove(waiting)
            waiting.found.set_result(verdict)

    def _idle_beside(self, tried: Sequence[Place]) -> Place | None:
        """Return the idlest place not tried at which a kernel would be judged at once, if there is one."""
        others = [other for other in self.places if other not in tried and other.is_idle]
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
            self.quarantine.note(place, task)  # before it gets a further kernel
            self._free(place)

        task = asyncio.ensure_future(answered())
        task.add_done_callback(end)
        return task
