"""The judge's queue: which worker judges which kernel next, and who is told of the verdict.

A kernel that is asked for twice while it waits or runs is judged once. A job that nobody waits for any more is dropped, unless it
runs already. Kernels of one problem go to one worker where that costs no idle time, since that worker has built the
reference already; no job is passed over for that more than `_MAX_PASSED` times.

There are more workers than slots. A job holds a slot while it is young; one that takes long (it hangs, most likely) goes on without,
and a worker in reserve takes the next: a kernel that sleeps until its time is over holds nobody up.
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

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict

_WINDOW = 64
"""Waiting jobs among which a free worker looks for one whose problem it knows."""
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
    """Times that the machine failed on it."""
    passed: int = 0
    """Times that another job was preferred."""
    taken_at: float = 0.0
    """When a worker took it, on the monotonic clock."""
    waiters: "list[Future[Verdict]]" = field(default_factory=list)
    topic: str = ""
    """Names the problem's source."""

    def __post_init__(self) -> None:
        """Name the problem."""
        self.topic = hashlib.sha256(self.problem.source.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def is_wanted(self) -> bool:
        """True while somebody waits for the verdict."""
        return any(not waiter.cancelled() for waiter in self.waiters)


@dataclass(eq=False, slots=True)
class _Seat:
    """Where an idle worker waits."""

    signal: threading.Condition
    job: Job | None = None


class Dispatcher:
    """Jobs that wait and jobs that run. Safe for threads.

    At most `slots` jobs run that were taken less than `young_s` ago. Without `slots` the number of workers is the only limit.
    """

    def __init__(self, slots: int | None = None, young_s: float = math.inf) -> None:
        self._slots = slots
        self._young_s = young_s
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, Job] = OrderedDict()
        self._running: dict[str, Job] = {}
        self._idle: OrderedDict[int, _Seat] = OrderedDict()
        self._owners: OrderedDict[str, int] = OrderedDict()
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
        """True once nothing is taken any more."""
        return self._closed

    def submit(self, job: Job) -> "Future[Verdict]":
        """Queue a job, or join the same one under way. InfrastructureError: closed. Cancelling the future gives the place up."""
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
        """Wait for this worker's next job; None: closed."""
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
                self._own(job.topic, worker)
                self._wake_one()
                return job
        return None

    def _wait(self, worker: int) -> Job | None:
        """Sit idle until a job is given to this worker, or until a slot may have become free for one that waits."""
        seat = self._idle[worker] = _Seat(threading.Condition(self._lock))
        wait_s = self._free_in_s() if self._waiting else math.inf
        seat.signal.wait(None if wait_s == math.inf else max(wait_s, 0.001))
        self._idle.pop(worker, None)
        return seat.job

    def _free_in_s(self) -> float:
        """Return the seconds until a slot is free where no job ends before; at most 0: there is one now."""
        if self._slots is None or len(self._running) < self._slots:
            return 0.0
        now = time.monotonic()
        until_old = sorted(job.taken_at + self._young_s - now for job in self._running.values())
        return until_old[len(until_old) - self._slots]  # when all but slots - 1 of them are old

    def _wake_one(self) -> None:
        """Have an idle worker look when it can take a job that waits."""
        if self._waiting and self._idle:
            self._idle[min(self._idle)].signal.notify()

    def put_back(self, job: Job, verdict_of: Callable[[Job], Verdict]) -> None:
        """Have another worker try a job on which the machine failed, before all others. Closed: the job ends instead."""
        with self._lock:
            self._running.pop(job.key, None)
            if not self._closed:
                self._owners.pop(job.topic, None)
                self._enqueue(job)
                if job.key in self._waiting:
                    self._waiting.move_to_end(job.key, last=False)
                self._wake_one()
                return
        _tell(job, verdict_of(job))

    def finish(self, job: Job, verdict: Verdict) -> None:
        """Tell everybody who waits for it."""
        with self._lock:
            self._running.pop(job.key, None)
            self._wake_one()
        _tell(job, verdict)

    def fail_waiting(self, verdict_of: Callable[[Job], Verdict]) -> None:
        """End every job that no worker has taken."""
        with self._lock:
            jobs = list(self._waiting.values())
            self._waiting.clear()
        for job in jobs:
            _tell(job, verdict_of(job))

    def close(self, verdict_of: Callable[[Job], Verdict]) -> None:
        """Take no more jobs, send idle workers home, and end what waits."""
        with self._lock:
            self._closed = True
            for seat in self._idle.values():
                seat.signal.notify()
        self.fail_waiting(verdict_of)

    def _enqueue(self, job: Job) -> None:
        """Give a job to an idle worker (the one that knows its problem, or else the first: reserves come last), or let it wait."""
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
        """Take the job that suits a worker out of those that wait: of a problem that it knows, of one that nobody knows, the first."""
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

    def _own(self, topic: str, worker: int) -> None:
        self._owners[topic] = worker
        self._owners.move_to_end(topic)
        if len(self._owners) > _MAX_OWNERS:
            self._owners.popitem(last=False)

    def _abandon(self, job: Job) -> None:
        with self._lock:
            if not job.is_wanted and self._waiting.get(job.key) is job:
                del self._waiting[job.key]


def _tell(job: Job, verdict: Verdict) -> None:
    for waiter in job.waiters:
        if waiter.set_running_or_notify_cancel():
            waiter.set_result(verdict)
