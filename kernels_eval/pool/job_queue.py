"""Job queue, in the caller's process: decides which worker judges which kernel next, and delivers verdicts.

A kernel that is submitted twice while it waits or runs is judged once. A waiting job whose callers have all cancelled
is dropped. Kernels of one problem go to one worker if that costs no idle time, since that worker has built the
reference; no job is passed over for that more than `_MAX_PASSED` times.

There are more workers than slots. A job holds a slot while it is young. One that takes long, most likely because it
hangs, continues without a slot, and a worker in reserve takes the next job: a kernel that sleeps until its time-out
delays no other.
"""

import hashlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice

from cachetools import LRUCache

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict

_WINDOW = 64
"""Number of waiting jobs among which a free worker looks for one whose problem it knows."""
_MAX_PASSED = 64
_MAX_OWNERS = 4096


@dataclass(eq=False, slots=True)
class Job:
    """One kernel to be judged."""

    key: str
    """The verdict's key in the cache."""
    problem: Problem
    kernel_source: str
    config: JudgeConfig
    faults: int = 0
    """Attempts on which the machine failed."""
    bugs: int = 0
    """Attempts on which the judge's own code failed."""
    passed: int = 0
    """Times that a later job was preferred."""
    taken_at: float = 0.0
    """Time on the monotonic clock at which a worker took it."""
    waiters: "list[Future[Verdict]]" = field(default_factory=list)
    topic: str = ""
    """Digest of the problem's source."""

    def __post_init__(self) -> None:
        """Compute the topic."""
        self.topic = hashlib.sha256(self.problem.source.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def is_wanted(self) -> bool:
        """True while a caller waits for the verdict."""
        return any(not waiter.cancelled() for waiter in self.waiters)


@dataclass(eq=False, slots=True)
class _Seat:
    """Waiting place of an idle worker."""

    signal: threading.Condition
    job: Job | None = None


class Dispatcher:
    """Jobs that wait and jobs that run. Safe for threads.

    At most `slots` jobs run that were taken less than `young_s` ago. Without `slots`, the number of workers is the
    only limit.
    """

    def __init__(self, slots: int | None = None, young_s: float = math.inf) -> None:
        self._slots = slots
        self._young_s = young_s
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, Job] = OrderedDict()
        self._running: dict[str, Job] = {}
        self._idle: OrderedDict[int, _Seat] = OrderedDict()
        self._owners: LRUCache[str, int] = LRUCache(_MAX_OWNERS)
        """Worker that last took a job of a topic."""
        self._closed = False

    @property
    def waiting(self) -> int:
        """Jobs that no worker has taken."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Jobs that a worker has taken."""
        return len(self._running)

    @property
    def is_closed(self) -> bool:
        """True once no job is taken any more."""
        return self._closed

    def submit(self, job: Job) -> "Future[Verdict]":
        """Queue a job, or join the same one under way. Raises InfrastructureError if closed; can be cancelled."""
        future: Future[Verdict] = Future()
        with self._lock:
            if self._closed:
                raise InfrastructureError("the judge is closed")
            known = self._waiting.get(job.key) or self._running.get(job.key)
            (known or job).waiters.append(future)
            if known is None:
                self._enqueue(job)
        future.add_done_callback(lambda done: self._abandon(known or job) if done.cancelled() else None)
        return future

    def take(self, worker: int) -> Job | None:
        """Wait for this worker's next job; returns None once closed."""
        with self._lock:
            while not self._closed:
                job = self._choose(worker) if self._free_in_s() <= 0 else None
                if job is None:
                    job = self._wait(worker)
                if job is None:  # closed, or time to look again
                    continue
                if not job.is_wanted:
                    self._running.pop(job.key, None)
                    continue
                self._owners[job.topic] = worker
                self._wake_one()
                return job
        return None

    def _wait(self, worker: int) -> Job | None:
        """Wait until a job is given to this worker, or until a slot may be free for a waiting job."""
        seat = self._idle[worker] = _Seat(threading.Condition(self._lock))
        wait_s = self._free_in_s() if self._waiting else math.inf
        seat.signal.wait(None if wait_s == math.inf else max(wait_s, 0.001))
        self._idle.pop(worker, None)
        return seat.job

    def _free_in_s(self) -> float:
        """Return the seconds until a slot is free if no job ends before; 0 or less: there is one now."""
        if self._slots is None or len(self._running) < self._slots:
            return 0.0
        now = time.monotonic()
        until_old = sorted(job.taken_at + self._young_s - now for job in self._running.values())
        return until_old[len(until_old) - self._slots]  # when all but slots - 1 of them are old

    def _wake_one(self) -> None:
        """Wake an idle worker to look for a waiting job."""
        if self._waiting and self._idle:
            self._idle[min(self._idle)].signal.notify()

    def put_back(self, job: Job, verdict_of: Callable[[Job], Verdict]) -> None:
        """Queue a job on which the machine failed before all others. If closed, the job ends with `verdict_of`."""
        with self._lock:
            self._running.pop(job.key, None)
            if not self._closed:
                self._owners.pop(job.topic, None)
                self._enqueue(job)
                if job.key in self._waiting:
                    self._waiting.move_to_end(job.key, last=False)
                self._wake_one()
                return
        _deliver(job, verdict_of(job))

    def finish(self, job: Job, verdict: Verdict) -> None:
        """Deliver the verdict to all who wait for it."""
        with self._lock:
            self._running.pop(job.key, None)
            self._wake_one()
        _deliver(job, verdict)

    def fail_waiting(self, verdict_of: Callable[[Job], Verdict]) -> None:
        """End every waiting job with `verdict_of`."""
        with self._lock:
            jobs = list(self._waiting.values())
            self._waiting.clear()
        for job in jobs:
            _deliver(job, verdict_of(job))

    def close(self, verdict_of: Callable[[Job], Verdict]) -> None:
        """Refuse new jobs, release idle workers, and end waiting jobs."""
        with self._lock:
            self._closed = True
            for seat in self._idle.values():
                seat.signal.notify()
        self.fail_waiting(verdict_of)

    def _enqueue(self, job: Job) -> None:
        """Give a job to an idle worker, one that knows its problem or else the first (reserves last); or queue it."""
        if not self._idle or self._waiting or self._free_in_s() > 0:
            self._waiting[job.key] = job
            self._wake_one()
            return
        owner = self._owners.get(job.topic)
        worker = owner if owner in self._idle else min(self._idle)
        seat = self._idle.pop(worker)
        self._run(job)
        seat.job = job
        seat.signal.notify()

    def _choose(self, worker: int) -> Job | None:
        """Take a waiting job: of a problem that the worker knows, else one that no worker knows, else the first."""
        head = next(iter(self._waiting.values()), None)
        if head is None:
            return None
        chosen = head
        if head.passed < _MAX_PASSED:
            chosen, best = head, 0
            for job in islice(self._waiting.values(), _WINDOW):
                owner = self._owners.get(job.topic)
                suits = 2 if owner == worker else 1 if owner is None else 0
                if suits > best:
                    chosen, best = job, suits
                if best == 2:
                    break
        if chosen is not head:
            head.passed += 1
        del self._waiting[chosen.key]
        self._run(chosen)
        return chosen

    def _run(self, job: Job) -> None:
        job.taken_at = time.monotonic()
        self._running[job.key] = job

    def _abandon(self, job: Job) -> None:
        with self._lock:
            if not job.is_wanted and self._waiting.get(job.key) is job:
                del self._waiting[job.key]


def _deliver(job: Job, verdict: Verdict) -> None:
    for waiter in job.waiters:
        if waiter.set_running_or_notify_cancel():
            waiter.set_result(verdict)
