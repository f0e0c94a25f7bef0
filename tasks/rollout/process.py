"""The rollout's process as the driver sees it: one warm Ray actor, whose methods stream messages."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from kernels_eval.errors import InfrastructureError, KernelmillError, first_line
from tasks.cluster.health import wait_for_any
from tasks.cluster.workers import placed, stop_worker, warm_worker
from tasks.rollout.config import RolloutConfig
from tasks.rollout.worker import RolloutActor

WORKER = "rollout"


def start_servers(config: RolloutConfig, write_model: Callable[[Path], Path], agents: Sequence[str] = ()) -> None:
    """Have the engine's servers start in the rollout's process, which the next rollout uses. Returns at once.

    `write_model` is given an empty folder there, and returns the folder of the model to start with. `agents`: those of
    a team that have servers of their own each. What goes wrong is said by the next rollout, which starts other servers.
    Needs a running Ray.
    """
    _worker(config.gpus).start_servers.remote(config, write_model, agents)


def messages_of(method: str, gpus: float, *arguments: Any) -> Generator[Any]:
    """Yield what a streaming method of the rollout's process yields; the process is started if needed, with `gpus`.

    Needs a running Ray. Raises the KernelmillError or OSError that the method raised, InfrastructureError if the
    process died. It is stopped if the caller stops before the end: nobody waits for its work any more.
    """
    worker = _worker(gpus)
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
        if isinstance(error.cause, OSError):  # Ray's own of it has no number: a full disk would not be known as one
            raise error.cause from error
        raise
    except RayActorError as error:
        stop_worker(WORKER)
        raise InfrastructureError(f"the rollout's process died: {first_line(error)}") from error
    except BaseException:
        stop_worker(WORKER)
        raise


def _worker(gpus: float) -> Any:
    """Return the rollout's process; it is started if needed."""
    # No CPUs are reserved: the warm workers of the stages take turns, and each would keep CPUs from the next.
    return warm_worker(WORKER, RolloutActor, num_cpus=0, num_gpus=gpus, **placed("rollout"))
