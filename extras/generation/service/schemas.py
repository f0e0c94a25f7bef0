"""Requests and replies of the service; `JobEvent` and `KernelRequest` are stored as they are."""

from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field

from extras.generation.config import SearchConfig
from extras.generation.result import GeneratedKernel
from extras.generation.search import Attempt
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import EXAMPLE_PROBLEM


class KernelRequest(SearchConfig):
    """One module to be made faster."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"problem_source": EXAMPLE_PROBLEM.lstrip(), "budget": 8, "seconds": 60}]}
    )

    problem_source: str = Field(min_length=1)
    """PyTorch module in KernelBench's format: defines `Model`, `get_inputs` and `get_init_inputs`."""
    name: str = Field(default="problem", pattern=r"^[A-Za-z0-9_.-]{1,80}$")
    """Name of the problem in messages."""
    use_cache: bool = True
    """Take the result of an earlier job on the same problem, GPU and model that had as large a budget or found a
    kernel."""


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    """There is a result: a kernel, or the original."""
    FAILED = "failed"
    """The problem is none, the model refuses it, or the machine failed too often; `error` says which."""
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True if the job will not change any more."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class JobEvent(FrozenModel):
    """One line of a job's progress."""

    number: int
    """From 1, without gaps."""
    kind: Literal["queued", "started", "attempt", "retried", "resumed", "finished", "failed", "cancelled"]
    """`retried`: the machine failed, and the job waits for another try; `resumed`: the service was started again."""
    at: float
    """Seconds since 1970."""
    attempt: Attempt | None = None
    """The judged answer, of kind `attempt`."""
    message: str | None = None


class JobView(FrozenModel):
    """A job."""

    id: str
    state: JobState
    name: str
    problem_digest: str
    budget: int
    judged: int
    """Answers judged so far."""
    best_speedup: float | None
    """Of the correct kernels so far, before the last judgement."""
    cached: bool
    """True if the result is that of an earlier job."""
    created_at: float
    started_at: float | None
    ended_at: float | None
    error: str | None
    result: GeneratedKernel | None
    """Only of a job that is finished; left out in lists."""


class Jobs(FrozenModel):
    """Jobs, the newest first."""

    jobs: list[JobView]


class ServiceHealth(FrozenModel):
    """State of the service in short."""

    status: Literal["ok", "degraded", "unavailable", "stopping"]
    """`degraded`: some of the judge's workers are in quarantine; `unavailable`: all are."""
    judge_version: str
    policy: str
    policy_digest: str
    hardware: str
    queued: int
    running: int
    queue_limit: int
    uptime_s: float
