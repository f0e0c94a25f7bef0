"""Collects trajectories, in the run's process: sends a request to the rollout worker and relays its reports."""

import logging
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from kernels_eval.errors import InfrastructureError, KernelmillError, first_line
from tasks.cluster.health import wait_for_any
from tasks.cluster.workers import placed, stop_worker, warm_worker
from tasks.pipeline.references import Progress, TrajectoryBatchRef
from tasks.rollout.logs import TURN_LINES
from tasks.rollout.worker import RolloutActor, RolloutProgress, RolloutRequest

WORKER = "rollout"


def collect_trajectories(request: RolloutRequest, progress: Progress) -> TrajectoryBatchRef:
    """Let the policy write kernels for problems of the split, have them judged, and publish the trajectories.

    The same request gives the same tokens. `progress` counts trajectories. Warnings of the worker are logged here, and
    its line per turn if the logger `kernelmill.rollout.turns` takes INFO. Needs a running Ray. Raises InputError if the
    request's parts do not fit together, InfrastructureError if the worker died.
    """
    turn_lines = logging.getLogger(TURN_LINES).isEnabledFor(logging.INFO)
    request = request.model_copy(update={"destination": request.destination.resolve(), "turn_lines": turn_lines})
    # No CPUs are reserved: the warm workers of the stages take turns, and each would keep CPUs from the next.
    worker = warm_worker(WORKER, RolloutActor, num_cpus=0, num_gpus=request.config.gpus, **placed("rollout"))
    try:
        stream = worker.collect.options(num_returns="streaming").remote(request)
        while True:
            message: Any = ray.get(next(wait_for_any([stream])[0]))
            if isinstance(message, TrajectoryBatchRef):
                return message
            assert isinstance(message, RolloutProgress)
            for record in message.records:
                logger = logging.getLogger(record.name)
                if logger.isEnabledFor(record.levelno):
                    logger.handle(record)
            if message.total:  # while engine and judge start, nothing is planned yet
                progress(message.done, message.total, **message.figures)
    except StopIteration:
        raise InfrastructureError("the rollout's process ended without a result") from None
    except RayTaskError as error:
        if isinstance(error.cause, KernelmillError):
            raise error.cause from None
        raise
    except RayActorError as error:
        stop_worker(WORKER)
        raise InfrastructureError(f"the rollout's process died: {first_line(error)}") from error
    except BaseException:
        stop_worker(WORKER)  # interrupted: nobody waits for its rollout any more
        raise
