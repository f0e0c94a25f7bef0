"""Collects trajectories, in the run's process: sends a request to the rollout worker and relays its reports."""

import logging
from collections.abc import Generator
from contextlib import closing

from kernels_eval.errors import InfrastructureError
from tasks.pipeline.references import Progress, TrajectoryBatchRef
from tasks.rollout.logs import TURN_LINES
from tasks.rollout.process import messages_of
from tasks.rollout.worker import RolloutProgress, RolloutRequest


def collect_trajectories(request: RolloutRequest, progress: Progress) -> TrajectoryBatchRef:
    """Let the policy write kernels for problems of the split, have them judged, and publish the trajectories.

    The same request gives the same tokens. `progress` counts trajectories. Warnings of the worker are logged here, and
    its line per turn if the logger `kernelmill.rollout.turns` takes INFO. Needs a running Ray. Raises InputError if the
    request's parts do not fit together, InfrastructureError if the worker died.
    """
    turn_lines = logging.getLogger(TURN_LINES).isEnabledFor(logging.INFO)
    kept = None if request.kept is None else request.kept.resolve()
    request = request.model_copy(
        update={"destination": request.destination.resolve(), "kept": kept, "turn_lines": turn_lines}
    )
    return published_batch(messages_of("collect", request.config.gpus, request), progress)


def published_batch(
    messages: Generator[RolloutProgress | TrajectoryBatchRef], progress: Progress
) -> TrajectoryBatchRef:
    """Relay the reports of a rollout's process, and return the batch that it published.

    Raises InfrastructureError if the process ended without one.
    """
    batch: TrajectoryBatchRef | None = None
    with closing(messages):
        for message in messages:
            if isinstance(message, TrajectoryBatchRef):
                batch = message
            else:
                relay(message, progress)
    if batch is None:
        raise InfrastructureError("the rollout's process ended without a result")
    return batch


def relay(message: RolloutProgress, progress: Progress) -> None:
    """Pass a report of the rollout's process on: its log records, and its progress once anything is planned."""
    for record in message.records:
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    if message.total:  # 0 while engine and judge start
        progress(message.done, message.total, **message.figures)
