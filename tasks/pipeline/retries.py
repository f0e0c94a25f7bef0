"""What is done about a stage that fails or takes too long: tried again where that can help, and not otherwise.

Backing off happens inside Prefect's task run, after the stage has let go of what it held: only GPU slots of the whole run stay.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field

from kernels_eval.errors import InfrastructureError, KernelmillError
from kernels_eval.frozen import FrozenModel
from tasks.cluster.workers import stop_workers

GRACE_S = 10.0
"""After a stage's workers were ended, until whatever else it waits for is interrupted."""
STAGE_NAMES = (
    "problems",
    "validate_problems",
    "sft_data",
    "validate_sft_data",
    "sft",
    "rollout",
    "validate_trajectories",
    "update",
    "validate_update",
    "heldout_rollout",
    "evaluation",
    "control",
)
"""The stages of a run, in the order in which they first come."""


class StageTimeoutError(InfrastructureError):
    """A stage took longer than it may."""


class StagesConfig(FrozenModel):
    """What is done about stages that fail, and how long they may take."""

    retries: int = Field(default=3, ge=0, le=20)
    """Further attempts after a failure that can heal: a dead worker, a lost server, a stage that took too long. A cluster's node that
    dies may cost two: until Ray has noticed, it starts workers there. Bad input, failed
    validation and bugs are never tried again; nor is what still lacks memory after the token budget was halved."""
    backoff_s: float = Field(default=2.0, ge=0)
    """Wait before the first further attempt; doubled before each other one, with up to half of it added at random."""
    timeout_s: float | None = Field(default=None, gt=0)
    """Longest wall time of one attempt at a stage; none: no limit."""
    timeouts_s: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """The same for single stages by name, e.g. `rollout: 3600`."""

    def timeout_of(self, stage: str) -> float | None:
        """Return the limit of one stage."""
        return self.timeouts_s.get(stage, self.timeout_s)


@contextmanager
def limited(label: str, limit_s: float | None) -> Generator[None]:
    """Run a stage for so many seconds at most; raise StageTimeoutError where it takes longer.

    Its warm workers are ended first: whoever waits for them is told, which a signal cannot do in Ray's own code. What waits
    for something else is interrupted by Prefect's timeout, `GRACE_S` later.
    """
    if limit_s is None:
        yield
        return
    passed = threading.Event()

    def end() -> None:
        passed.set()
        stop_workers()

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException as error:
        if passed.is_set():
            raise StageTimeoutError(f"{label}: not done within {limit_s:g} s (stages.timeouts_s)") from error
        raise
    finally:
        timer.cancel()


def can_heal(_task: Any, _run: Any, state: Any) -> bool:
    """Retry only what can heal: a lost worker, a timeout, never bad input or a bug (Prefect's retry condition)."""
    error = state.data
    if isinstance(error, KernelmillError):
        return error.can_heal
    return isinstance(error, ConnectionError) or _is_ray_failure(error)


def _is_ray_failure(error: object) -> bool:
    """A worker or node of Ray that died under a stage. An error that a stage raised inside Ray is not one."""
    names = {"RayActorError", "ActorDiedError", "ActorUnavailableError", "WorkerCrashedError", "OutOfMemoryError"}
    names |= {"NodeDiedError", "ObjectLostError", "RaySystemError"}
    return any(kind.__module__.startswith("ray.") and kind.__name__ in names for kind in type(error).__mro__)
