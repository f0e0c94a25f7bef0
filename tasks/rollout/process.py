"""The rollout's process as the driver sees it: one warm Ray actor, whose methods stream messages."""

from collections.abc import Generator
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from kernels_eval.errors import InfrastructureError, KernelmillError, first_line
from tasks.cluster.health import wait_for_any
from tasks.cluster.workers import placed, stop_worker, warm_worker
from tasks.rollout.worker import RolloutActor

WORKER = "rollout"


def messages_of(method: str, gpus: float, *arguments: Any) -> Generator[Any]:
    """Yield what a streaming method of the rollout's process yields; the process is started if needed, with `gpus`.

    Needs a running Ray. Raises the KernelmillError that the method raised, InfrastructureError if the process died.
    The process is stopped if the caller stops before the end: nobody waits for its work any more.
    """
    # No CPUs are reserved: the warm workers of the stages take turns, and each would keep CPUs from the next.
    worker = warm_worker(WORKER, RolloutActor, num_cpus=0, num_gpus=gpus, **placed("rollout"))
    try:
        stream = getattr(worker, method).options(num_returns="streaming").remote(*arguments)
        while True:
            ready = wait_for_any([stream])[0]
            try:
                reference = next(ready)
            except StopIteration:
                return
            yield ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, KernelmillError):
            raise error.cause from None
        raise
    except RayActorError as error:
        stop_worker(WORKER)
        raise InfrastructureError(f"the rollout's process died: {first_line(error)}") from error
    except BaseException:
        stop_worker(WORKER)
        raise
