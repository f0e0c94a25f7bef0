"""One training iteration: rollout, check, update, check."""

from prefect import flow

from flows.checks.preflight import check_before_start
from flows.evaluation import examine
from flows.problems import prepare_problems
from flows.report import conclude
from flows.run.names import name_of
from flows.run.run import Run, open_run
from flows.settings.configuration import RunConfig
from flows.sft import newest_policy
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.rollout.curriculum import state_for
from tasks.rollout.refill import refill_for
from tasks.rollout.task import roll_out
from tasks.training.retention import keep_optimizers
from tasks.update.task import update
from tasks.validation.task import check_update, publish_checked


def collect(run: Run, problems: ProblemSetRef, policy: CheckpointRef) -> TrajectoryBatchRef:
    """Return the checked training trajectories of one iteration; a policy's weight version is its iteration's number."""
    config, iteration = run.config, policy.weight_version
    raw = roll_out(
        run.workspace,
        policy,
        problems,
        config.rollout,
        config.judge,
        iteration=iteration,
        seed=config.seed,
        curriculum=state_for(config.rollout, problems, run.state.batches.get(iteration - 1), policy),
        refill=refill_for(config.rollout, config.update),
    )
    episode = config.rollout.episode
    batch = publish_checked(run.workspace, raw, config.validation, episode.gamma, episode.reward, iteration=iteration)
    return run.add_batch(batch, iteration)


def improve(run: Run, policy: CheckpointRef, batch: TrajectoryBatchRef) -> CheckpointRef:
    """Return the next policy: one update on checked trajectories, noted in the run."""
    improved = run.add_policy(updated(run, policy, run.state.policies[0], batch))
    keep_optimizers(run.state.policies, run.config.update.checkpoint_interval)
    return improved


def updated(run: Run, policy: CheckpointRef, first: CheckpointRef, batch: TrajectoryBatchRef) -> CheckpointRef:
    """Return the policy after one checked update on a batch; `first` is the reference of the KL, where that has weight."""
    config, iteration = run.config, policy.weight_version
    # A constant rate does not look ahead: more iterations later leave these as they are.
    total = max(config.iterations, iteration + 1) if config.update.schedule == "cosine" else iteration + 1
    made = update(
        run.workspace,
        policy,
        first if config.update.kl_coefficient > 0 else None,
        batch,
        config.update,
        iteration=iteration,
        total_iterations=total,
        seed=config.seed,
    )
    return check_update(run.workspace, made, config.validation, iteration=iteration)


def iterate(run: Run, problems: ProblemSetRef, policy: CheckpointRef) -> CheckpointRef:
    """Return the policy after one more iteration."""
    return improve(run, policy, collect(run, problems, policy))


@flow(name="training-iteration", flow_run_name=name_of("iteration"))
def training_iteration_flow(config: RunConfig) -> str:
    """One iteration from the run's newest policy. After a kill the same iteration is finished, not begun again."""
    check_before_start(config)
    with open_run(config) as run:
        problems = prepare_problems(run)
        policy = newest_policy(run, problems)
        examine(run, problems, run.state.policies[0])
        examine(run, problems, iterate(run, problems, policy))
        return conclude(run)


@flow(name="rollout", flow_run_name=name_of("iteration"))
def rollout_flow(config: RunConfig) -> TrajectoryBatchRef:
    """Trajectories of the run's newest policy."""
    check_before_start(config)
    with open_run(config) as run:
        problems = prepare_problems(run)
        return collect(run, problems, newest_policy(run, problems))


@flow(name="update", flow_run_name=name_of("iteration"))
def update_flow(config: RunConfig) -> CheckpointRef:
    """One update of the run's newest policy, on its trajectories (which are collected if they are not there)."""
    check_before_start(config)
    with open_run(config) as run:
        problems = prepare_problems(run)
        return iterate(run, problems, newest_policy(run, problems))
