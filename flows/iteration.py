"""One training iteration: rollout, validation of trajectories, update, validation of the update."""

from prefect import flow

from flows.evaluation import evaluate_policy
from flows.problems import started_run
from flows.report import publish_run_report
from flows.run.prefect_ui import name_of
from flows.run.run import Run
from flows.settings.configuration import RunConfig
from flows.sft import newest_policy
from tasks.agents.config import owners
from tasks.agents.task import form_team
from tasks.agents.team import members_of
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.rollout.curriculum import state_for
from tasks.rollout.focus import focus_for
from tasks.rollout.refill import refill_for
from tasks.rollout.task import roll_out
from tasks.tracking.collapse import look_for_collapse
from tasks.training.retention import keep_optimizers, keep_weights
from tasks.update.past import PastUpdate, updates_without_state
from tasks.update.request import UpdateRequest
from tasks.update.task import update
from tasks.validation.task import check_update, publish_checked


def collect_trajectories(
    run: Run, problems: ProblemSetRef, policy: CheckpointRef, iteration: int
) -> TrajectoryBatchRef:
    """Return the validated training trajectories of one iteration, which this policy writes."""
    config, previous = run.config, run.state.batches.get(iteration - 1)
    raw = roll_out(
        run.workspace,
        policy,
        problems,
        config.rollout.model_copy(update={"staleness": 0}),  # said by the policy and the iteration
        run.rollout_judge,
        iteration=iteration,
        seed=config.seed,
        curriculum=state_for(config.rollout, problems, previous, policy),
        focus=focus_for(config.rollout, problems, previous),
        refill=refill_for(
            config.rollout,
            config.update.wanted_groups,
            config.update.most_problems,
            config.update.estimator.compares,
            config.update.credit,
            config.update.credit_discount,
        ),
    )
    episode = config.rollout.episode
    batch = publish_checked(run.workspace, raw, config.validation, episode.gamma, episode.reward, iteration=iteration)
    return run.add_batch(batch, iteration)


def update_policy(
    run: Run, policy: CheckpointRef, batch: TrajectoryBatchRef, iteration: int, others_follow: bool
) -> CheckpointRef:
    """Return the next policy: the update of one iteration on validated trajectories, recorded in the run.

    `others_follow`: further updates in this process, whose ranks hold the optimizer's state until then.
    """
    interval = run.config.update.checkpoint_interval
    writes_state = not others_follow or (iteration + 1) % interval == 0
    if run.config.has_team:
        updated = run.add_policy(_update_team(run, policy, batch, iteration, writes_state))
    else:
        past = updates_without_state(policy, run.state.policies, run.state.batches)
        updated = run.add_policy(run_update(run, policy, run.state.policies[0], batch, iteration, writes_state, past))
    look_for_collapse(
        run.run_dir, run.config.tracking.collapse, lambda sign: run.workspace.tell(lambda each: each.warned(sign))
    )
    # Of a run that is continued there are later ones: nobody has looked yet whether they are whole.
    looked_at = {version: each for version, each in run.state.policies.items() if version <= updated.weight_version}
    keep_optimizers(looked_at, interval)
    keep_weights(looked_at, run.config.update.weights_interval, run.config.rollout.staleness)
    return updated


def _update_team(
    run: Run, team: CheckpointRef, batch: TrajectoryBatchRef, iteration: int, writes_state: bool
) -> CheckpointRef:
    """Return the team after an update of each agent that is trained, one after another, on the same batch.

    Every other iteration goes through them backwards: it begins with the agent whose engine the ranks hold.
    """
    agents, members, first = run.config.rollout.episode.agents, members_of(team), members_of(run.state.policies[0])
    trained = [(owner, roles) for owner, roles in owners(agents).items() if roles]
    if iteration % 2:
        trained.reverse()
    for owner, roles in trained:
        members[owner] = run_update(
            run,
            members[owner],
            first[owner],
            batch,
            iteration,
            writes_state,
            updates_without_state(team, run.state.policies, run.state.batches, owner),
            roles,
            of=f" of the {owner}",
            keeps_ranks=owner == trained[-1][0],
        )
    return form_team(run.workspace, members, weight_version=iteration + 1)


def run_update(
    run: Run,
    policy: CheckpointRef,
    first: CheckpointRef,
    batch: TrajectoryBatchRef,
    iteration: int,
    writes_state: bool = True,
    past: tuple[PastUpdate, ...] = (),
    roles: tuple[str, ...] = (),
    of: str = "",
    keeps_ranks: bool = True,
) -> CheckpointRef:
    """Return the policy after one validated update on a batch; `first`: reference policy of the KL term, if any.

    `roles`, `of`: of one agent's update (tasks.update.request). `iteration`: of the run.
    `keeps_ranks`: no other agent's update comes between this one and the policy's next.
    """
    config = run.config
    request = UpdateRequest(
        policy=policy,
        reference=first if config.update.kl_coefficient > 0 else None,
        batch=batch,
        config=config.update.model_copy(update={"schedule_iterations": None}),
        iteration=iteration,
        total_iterations=_schedule_length(config, iteration),
        seed=config.seed,
        writes_state=writes_state,
        past=past,
        roles=roles,
        of=of,
        keeps_ranks=keeps_ranks,
    )
    updated = update(run.workspace, request)
    if updated == policy:  # nothing to learn from: checked when it was made
        return policy
    return check_update(run.workspace, updated, config.validation, iteration=iteration, of=of)


def _schedule_length(config: RunConfig, iteration: int) -> int:
    """Return the iterations over which the learning rate falls: part of an update's key, in this form alone.

    A constant rate does not depend on them: more iterations do not invalidate finished ones.
    """
    if config.update.schedule == "constant":
        return iteration + 1
    return config.update.schedule_iterations or max(config.iterations, iteration + 1)


def run_iteration(run: Run, problems: ProblemSetRef, policy: CheckpointRef) -> CheckpointRef:
    """Return the policy after one more iteration, whose number is that of the iterations behind this policy."""
    iteration = policy.weight_version
    return update_policy(run, policy, collect_next(run, problems, policy), iteration, others_follow=False)


def collect_next(run: Run, problems: ProblemSetRef, policy: CheckpointRef) -> TrajectoryBatchRef:
    """Return the trajectories of the iteration that updates this policy; an older one may have written them."""
    iteration = policy.weight_version
    writer = run.state.policies[max(iteration - run.config.rollout.staleness, 0)]
    return collect_trajectories(run, problems, writer, iteration)


@flow(name="training-iteration", flow_run_name=name_of("iteration"))
def training_iteration_flow(config: RunConfig, overrides: tuple[str, ...] = ()) -> str:
    """Run one iteration from the run's newest policy. After a kill, the same iteration is continued."""
    with started_run(config, overrides) as (run, problems):
        policy = newest_policy(run, problems)
        evaluate_policy(run, problems, run.state.policies[0])
        evaluate_policy(run, problems, run_iteration(run, problems, policy))
        return publish_run_report(run)


@flow(name="rollout", flow_run_name=name_of("iteration"))
def rollout_flow(config: RunConfig) -> TrajectoryBatchRef:
    """Collect trajectories of the run's newest policy."""
    with started_run(config) as (run, problems):
        return collect_next(run, problems, newest_policy(run, problems))


@flow(name="update", flow_run_name=name_of("iteration"))
def update_flow(config: RunConfig) -> CheckpointRef:
    """Update the run's newest policy once on its trajectories, which are collected if they are missing."""
    with started_run(config) as (run, problems):
        return run_iteration(run, problems, newest_policy(run, problems))
