"""Collects the trajectories of one iteration, in the run's process: sends a request to the rollout worker and relays
its reports.
"""

import logging
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError, KernelmillError
from tasks.cluster.workers import placed, stop_worker, warm_worker
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, Progress, TrajectoryBatchRef
from tasks.problems.row import Split
from tasks.rollout.config import RolloutConfig
from tasks.rollout.curriculum import CurriculumState
from tasks.rollout.logs import TURN_LINES
from tasks.rollout.refill import Refill
from tasks.rollout.worker import RolloutActor, RolloutProgress, RolloutRequest

WORKER = "rollout"


def collect_trajectories(
    policy: CheckpointRef,
    problems: ProblemSetRef,
    split: str,
    config: RolloutConfig,
    judge: JudgeConfig,
    run_id: str,
    iteration: int,
    seed: int,
    destination: Path,
    progress: Progress,
    curriculum: CurriculumState | None = None,
    refill: Refill | None = None,
) -> TrajectoryBatchRef:
    """Let the policy write kernels for problems of the split, have them judged, and publish the trajectories.

    Split `train` draws `problems_per_iteration` problems by (seed, iteration); `heldout` takes all. The same arguments
    give the same tokens. `curriculum` limits the turns and levels; `refill` draws further problems if groups have no
    gradient. `progress` counts trajectories. Warnings of the worker are logged here, and its line per turn if the
    logger `kernelmill.rollout.turns` takes INFO. Needs a running Ray. Raises InputError if the arguments do not fit
    together, InfrastructureError if the worker died.
    """
    request = RolloutRequest(
        policy=policy,
        problems=problems,
        split=Split(split),
        config=config,
        judge=judge,
        run_id=run_id,
        iteration=iteration,
        seed=seed,
        destination=destination.resolve(),
        curriculum=curriculum,
        refill=refill,
        turn_lines=logging.getLogger(TURN_LINES).isEnabledFor(logging.INFO),
    )
    # No CPUs are reserved: the warm workers of the stages take turns, and each would keep CPUs from the next.
    worker = warm_worker(WORKER, RolloutActor, num_cpus=0, num_gpus=config.gpus, **placed("rollout"))
    try:
        for item in worker.collect.options(num_returns="streaming").remote(request):
            said: Any = ray.get(item)
            if isinstance(said, TrajectoryBatchRef):
                return said
            assert isinstance(said, RolloutProgress)
            for message in said.messages:
                message.log()
            if said.total:  # while engine and judge start, nothing is planned yet
                progress(said.done, said.total, **said.figures)
    except RayTaskError as error:
        if isinstance(error.cause, KernelmillError):
            raise error.cause from None
        raise
    except RayActorError as error:
        stop_worker(WORKER)
        raise InfrastructureError(f"the rollout's process died: {str(error).splitlines()[0]}") from error
    except BaseException:
        stop_worker(WORKER)  # interrupted: nobody waits for its rollout any more
        raise
    raise InfrastructureError("the rollout's process ended without a result")
