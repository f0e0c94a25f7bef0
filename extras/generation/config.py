"""Settings of kernels on demand: the budget of one search, and the service."""

from pydantic import Field

from kernels_eval.frozen import FrozenModel

TOKEN_VARIABLE = "KERNELMILL_KERNELS_TOKEN"
"""Environment variable with the bearer token of the service; unset or empty: no token is asked for or sent."""


class SearchConfig(FrozenModel):
    """Budget and width of the search for one kernel."""

    budget: int = Field(default=32, ge=1, le=4096)
    """Answers that may be judged. An answer without a kernel counts; one on which the machine failed does not."""
    seconds: float | None = Field(default=None, gt=0, le=86_400)
    """Wall time of the search; None: no limit. Verifying the best kernel comes on top."""
    conversations: int = Field(default=8, ge=1, le=256)
    """Conversations at the same time. One that ends is followed by a new one with other draws while the budget
    lasts."""
    min_speedup: float = Field(default=1.05, gt=0, le=1000)
    """A kernel has to be at least this much faster than the original; below, the original is returned."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Decides the draws of a policy together with the problem."""


class ServiceConfig(FrozenModel):
    """Settings of the HTTP service."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=18190, ge=0, le=65535)
    """0: a free one."""
    jobs_at_once: int = Field(default=2, ge=1, le=64)
    """Jobs that are worked on at the same time; the others wait."""
    queue_limit: int = Field(default=256, ge=1)
    """Jobs waiting or under way; more are refused with 429."""
    attempts: int = Field(default=5, ge=1)
    """Times that a job is begun again after a fault of the machine before it ends as failed."""
    retry_s: float = Field(default=2.0, ge=0)
    """Wait before the second attempt; doubled before each further one, at most a minute."""
    max_problem_bytes: int = Field(default=64 << 10, ge=1)
    """Length of a problem's source."""
    max_body_bytes: int = Field(default=1 << 20, ge=1)
    """Length of a request."""
    body_timeout_s: float = Field(default=30.0, gt=0)
    """Time that a client has for sending its request."""
    shutdown_s: float = Field(default=10.0, ge=0)
    """Time that open streams have to end after SIGTERM."""
