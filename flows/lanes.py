"""All iterations of a run in two lanes: one generates (rollouts and evaluations), the other updates.

Policy k writes rollout k + `rollout.staleness`, and policy 0 all before: which policy writes which rollout does not
depend on what is done first. The lanes go on side by side where the machine allows it (flows.capacity.overlap), and
take turns elsewhere: a new policy is evaluated, then writes its rollout, then the update follows.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import ParamSpec, TypeVar

from flows.capacity.overlap import goes_on_beside_updates
from flows.evaluation import evaluate_policy
from flows.iteration import collect_trajectories, update_policy
from flows.run.lane import Lane
from flows.run.run import Run
from flows.settings.configuration import RunConfig
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef

P = ParamSpec("P")
R = TypeVar("R")


class _AtOnce:
    """Stand-in for a lane where lanes take turns."""

    def submit(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Do the work, and return its result."""
        done: Future[R] = Future()
        done.set_result(work(*args, **kwargs))
        return done


def run_iterations(run: Run, problems: ProblemSetRef, first: CheckpointRef) -> CheckpointRef:
    """Return the last policy, after all iterations of the run and the evaluations before, between and after them."""
    beside, last = goes_on_beside_updates(run.config), run.config.iterations
    batches: dict[int, Future[TrajectoryBatchRef]] = {}
    with Lane(run.stop_stages) if beside else nullcontext(_AtOnce()) as generating:

        def follow(policy: CheckpointRef) -> None:
            """Have a new policy write its rollouts, and be evaluated if it is to be."""
            if is_evaluated(policy.weight_version, run.config) and not beside:
                generating.submit(evaluate_policy, run, problems, policy)
            for iteration in written_by(policy.weight_version, run.config):
                batches[iteration] = generating.submit(collect_trajectories, run, problems, policy, iteration)
            if is_evaluated(policy.weight_version, run.config) and beside:  # updates do not wait for it
                generating.submit(evaluate_policy, run, problems, policy)

        policy = first
        follow(policy)
        for iteration in range(last):
            batch = batches.pop(iteration).result()
            policy = update_policy(run, policy, batch, iteration, others_follow=iteration + 1 < last)
            follow(policy)
    return policy


def written_by(version: int, config: RunConfig) -> Iterable[int]:
    """Return the iterations whose trajectories policy `version` writes."""
    newest = version + config.rollout.staleness
    return range(0 if version == 0 else newest, min(newest + 1, config.iterations))


def is_evaluated(version: int, config: RunConfig) -> bool:
    """Return True if this policy is evaluated: the first, the last, and those at the interval."""
    every = config.evaluation.interval
    return version in (0, config.iterations) or (every is not None and version % every == 0)
