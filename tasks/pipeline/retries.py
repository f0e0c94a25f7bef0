"""Retries and time limits of stages: a stage is tried again only if that can help.

Between attempts, inside the task run, it holds no resources; only the GPU slots of the whole run stay taken.
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
"""Time between ending a stage's workers and interrupting whatever else it waits for."""
STAGE_NAMES = (
    "problems",
    "validate_problems",
    "sft_data",
    "validate_sft_data",
    "sft",
    "given_policy",
    "team",
    "repair_rollout",
    "repair_pairs",
    "repairs",
    "joint_rollout",
    "joint_pairs",
    "joint_epoch",
    "rollout",
    "validate_trajectories",
    "update",
    "validate_update",
    "heldout_rollout",
    "heldout_answers",
    "evaluation",
    "control",
    "rejection_rollout",
    "rejection_pairs",
    "rejection_epoch",
)
"""The stages of a run, in the order of their first use."""


class StageTimeoutError(InfrastructureError):
    """A stage took longer than it may."""


class StageStoppedError(InfrastructureError):
    """A stage was ended because the run ends for another reason."""

    can_heal = False


class StagesConfig(FrozenModel):
    """Retries and time limits of stages."""

    retries: int = Field(default=3, ge=0, le=20)
    """Further attempts after a failure that can heal: a dead worker, a lost server, a stage that took too long. A
    dead node of a cluster may cost two: until Ray has noticed, it starts workers there. Bad input, failed validation
    and bugs are never retried; nor is a lack of memory that remains after the token budget was halved."""
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
    """Run a stage for at most `limit_s` seconds; raise StageTimeoutError if it takes longer.

    Its warm workers are ended first: a call that waits for them then fails, whereas a signal does not interrupt Ray's
    own code. A stage that waits for something else is interrupted by Prefect's timeout, `GRACE_S` later.
    """
    if limit_s is None:
        yield
        return
    passed, this_thread = threading.Event(), threading.get_ident()

    def end() -> None:
        passed.set()
        stop_workers(this_thread)  # not those of a stage that goes on beside it

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
    """Return True if the error of a task's state heals (Prefect's retry condition)."""
    return heals(state.data)


def heals(error: object) -> bool:
    """Return True for a lost worker or a timeout, False for bad input or a bug."""
    if isinstance(error, KernelmillError):
        return error.can_heal
    return isinstance(error, ConnectionError) or _is_ray_failure(error)


def _is_ray_failure(error: object) -> bool:
    """True if a worker or node of Ray died. An error that a stage raised inside Ray does not count."""
    names = {"RayActorError", "ActorDiedError", "ActorUnavailableError", "WorkerCrashedError", "OutOfMemoryError"}
    names |= {"NodeDiedError", "ObjectLostError", "RaySystemError"}
    return any(kind.__module__.startswith("ray.") and kind.__name__ in names for kind in type(error).__mro__)
