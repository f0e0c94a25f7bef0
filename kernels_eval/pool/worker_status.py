"""Worker status, in the caller's process: states of the workers, faults of the machine, durations of verdicts.

A worker (a process on a core or a GPU) on which the machine failed is quarantined: it gets no kernels until a probe, a
kernel that is known to be right, has passed on it. This module records; kernels_eval.judge decides.
"""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import Field

from kernels_eval.frozen import FrozenModel
from kernels_eval.verdict import Verdict

BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram's buckets."""
_RECENT_FAULTS = 50
_MAX_MESSAGE = 500


class WorkerState(StrEnum):
    """State of a worker."""

    IDLE = "idle"
    """Waits for a kernel."""
    RESERVE = "reserve"
    """Waits to replace a worker that a long kernel occupies, or that is in quarantine."""
    BUSY = "busy"
    """Judges a kernel."""
    QUARANTINED = "quarantined"
    """The machine failed on it; it gets no kernels until a probe has passed."""
    STOPPED = "stopped"
    """The judge is closed."""


class Fault(FrozenModel):
    """One failure of the machine."""

    at: datetime
    worker: int = Field(ge=0)
    category: str
    """`judge_fault`: a process died, hung or did not start. `judge_bug`: the judge's own code raised."""
    message: str
    on: str = "kernel"
    """`kernel`: while a kernel was judged; `probe`: while the worker was in quarantine."""


class WorkerReport(FrozenModel):
    """One worker, now."""

    worker: int = Field(ge=0)
    device: str
    """Device of its kernels, e.g. `cpu`."""
    state: WorkerState
    in_state_s: float = Field(ge=0)
    """Seconds since it entered this state."""
    judged: int = Field(ge=0)
    """Number of its verdicts."""
    phases_s: dict[str, float] = Field(default_factory=dict)
    """Seconds of its verdicts on a GPU by phase (kernels_eval.gpu.timing.phases)."""
    device_s: dict[str, float] = Field(default_factory=dict)
    """Seconds for which its verdicts had the GPU, `alone` or `shared` with other workers, and waited for either."""
    faults: int = Field(ge=0)
    quarantines: int = Field(ge=0)
    last_fault: Fault | None = None


class FaultStatistics(FrozenModel):
    """Failures of the machine since the judge started."""

    total: int = Field(ge=0)
    by_category: dict[str, int]
    by_worker: dict[int, int]
    quarantined: tuple[int, ...]
    """Workers that are out of service now."""
    returned: int = Field(ge=0)
    """Times that a worker came back from quarantine."""
    recent: tuple[Fault, ...]
    """The last of them, oldest first."""


@dataclass(frozen=True, slots=True)
class Durations:
    """A histogram of the seconds from a worker's taking a kernel to its verdict."""

    counts: tuple[int, ...]
    """Number of verdicts in each bucket of BUCKETS_S, and last those that took longer."""
    total_s: float


@dataclass(slots=True)
class _Worker:
    device: str
    resting: WorkerState
    """Its state without a job: IDLE or RESERVE."""
    state: WorkerState
    since: float = field(default_factory=time.monotonic)
    judged: int = 0
    seconds: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    """Of its verdicts on a GPU, by kind and name."""
    faults: int = 0
    quarantines: int = 0
    last_fault: Fault | None = None

    def enter(self, state: WorkerState) -> None:
        self.state = state
        self.since = time.monotonic()


class WorkerStatuses:
    """Records of all workers. Safe for threads. Workers from number `regular` on are in reserve."""

    def __init__(self, devices: list[str], regular: int | None = None) -> None:
        self._lock = threading.Lock()
        resting = [
            WorkerState.IDLE if regular is None or i < regular else WorkerState.RESERVE for i in range(len(devices))
        ]
        self._workers = [_Worker(device, state, state) for device, state in zip(devices, resting, strict=True)]
        self._verdicts: Counter[str] = Counter()
        self._fault_categories: Counter[str] = Counter()
        self._recent: deque[Fault] = deque(maxlen=_RECENT_FAULTS)
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._total_s = 0.0
        self._returned = 0

    def begins(self, worker: int) -> None:
        """Record that a worker has taken a kernel."""
        with self._lock:
            self._workers[worker].enter(WorkerState.BUSY)

    def judged(self, worker: int, verdict: Verdict, spent: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Record a worker's verdict. `spent`: seconds by kind and name, if it was judged on a GPU."""
        with self._lock:
            record = self._workers[worker]
            seconds = time.monotonic() - record.since
            record.judged += 1
            for kind, seconds_of in (spent or {}).items():
                record.seconds[kind].update(seconds_of)  # pyright: ignore[reportArgumentType]
            record.enter(record.resting)
            self._verdicts[verdict.status.value] += 1
            self._counts[next((i for i, bound in enumerate(BUCKETS_S) if seconds <= bound), len(BUCKETS_S))] += 1
            self._total_s += seconds

    def failed(self, worker: int, category: str, message: str) -> None:
        """Record that the machine failed on a worker, which is quarantined from now on."""
        with self._lock:
            record = self._workers[worker]
            on = "probe" if record.state is WorkerState.QUARANTINED else "kernel"
            fault = Fault(at=datetime.now(UTC), worker=worker, category=category, message=message[:_MAX_MESSAGE], on=on)
            record.faults += 1
            record.last_fault = fault
            if record.state is not WorkerState.QUARANTINED:
                record.quarantines += 1
                record.enter(WorkerState.QUARANTINED)
            self._fault_categories[category] += 1
            self._recent.append(fault)

    def returned(self, worker: int) -> None:
        """Record that a worker is back in service."""
        with self._lock:
            self._workers[worker].enter(self._workers[worker].resting)
            self._returned += 1

    def stopped(self, worker: int) -> None:
        """Record that a worker has stopped."""
        with self._lock:
            self._workers[worker].enter(WorkerState.STOPPED)

    @property
    def in_service(self) -> int:
        """Number of workers that take kernels, including those in reserve."""
        with self._lock:
            return sum(record.state not in (WorkerState.QUARANTINED, WorkerState.STOPPED) for record in self._workers)

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of verdicts by status, without those from the cache."""
        with self._lock:
            return dict(self._verdicts)

    @property
    def durations(self) -> Durations:
        """Durations of verdicts."""
        with self._lock:
            return Durations(tuple(self._counts), self._total_s)

    def workers(self) -> list[WorkerReport]:
        """Return the present state of every worker."""
        now = time.monotonic()
        with self._lock:
            return [
                WorkerReport(
                    worker=index,
                    device=record.device,
                    state=record.state,
                    in_state_s=round(now - record.since, 3),
                    judged=record.judged,
                    phases_s=_rounded(record.seconds["phases"]),
                    device_s=_rounded(record.seconds["device"]),
                    faults=record.faults,
                    quarantines=record.quarantines,
                    last_fault=record.last_fault,
                )
                for index, record in enumerate(self._workers)
            ]

    def fault_statistics(self) -> FaultStatistics:
        """Return the failures so far."""
        with self._lock:
            return FaultStatistics(
                total=sum(self._fault_categories.values()),
                by_category=dict(self._fault_categories),
                by_worker={index: record.faults for index, record in enumerate(self._workers) if record.faults},
                quarantined=tuple(
                    i for i, record in enumerate(self._workers) if record.state is WorkerState.QUARANTINED
                ),
                returned=self._returned,
                recent=tuple(self._recent),
            )


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(spent_s, 3) for name, spent_s in seconds.items()}
