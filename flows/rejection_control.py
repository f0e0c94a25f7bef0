"""Rejection-sampling control of a run: as many judged conversations as RL had, spent on one round of it instead.

The policy that RL began with holds conversations on training problems, and SFT goes on with the best kernel found on
each (tasks.sft.joint_pairs): no gradient of a wrong answer, no second policy that samples.
"""

from flows.evaluation import heldout_evaluations
from flows.run.run import Run
from flows.run.state import RejectionState
from flows.sft import trained_on
from tasks.pipeline.references import ProblemSetRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.task import play_for_rejection
from tasks.sft.task import fine_tune_on_winners, make_rejection_pairs

_SEED = 4_000_037
"""Added to the run's seed: the problems are drawn apart from the iterations'."""


def evaluate_rejection_control(run: Run, problems: ProblemSetRef) -> None:
    """Train policy 0 on the best kernels of as many conversations as RL had, and evaluate it; recorded in the run."""
    config, state = run.config, run.state
    first, episode = state.policies[0], config.rollout.episode
    conversations = sum(batch.trajectories for batch in state.batches.values())
    rollout = _with_conversations(config.rollout, conversations, problems.train)
    batch = play_for_rejection(run.workspace, first, problems, rollout, run.rollout_judge, seed=config.seed + _SEED)
    data = make_rejection_pairs(run.workspace, batch, problems, episode, config.judge.backend)
    if not data.pairs:
        message = (
            f"rejection sampling: none of {batch.trajectories} conversations found a correct kernel; there is no such "
            "control (more of sft.steps would help)"
        )
        run.workspace.tell(lambda listener: listener.warned(message))
        return
    settings, name = config.sft.of_joint_epoch(), "rejection sampling"
    policy = trained_on(run, first, data, f"pairs of {name}", fine_tune_on_winners, settings, f", {name}")
    sampled, greedy = heldout_evaluations(run, problems, policy, name="rejection sampling")
    run.record_rejection(
        RejectionState(
            judged=batch.turns,
            judged_by_rl=sum(each.turns for each in state.batches.values()),
            after=max(state.policies),
            policy=policy,
            evaluation=sampled,
            greedy_evaluation=greedy,
        )
    )


def _with_conversations(rollout: RolloutConfig, conversations: int, there_are: int) -> RolloutConfig:
    """Return the settings of one rollout with about so many conversations, in groups as large as RL's or larger."""
    problems = max(min(there_are, conversations // rollout.samples_per_problem), 1)
    samples = max(round(conversations / problems), 1)
    return rollout.apart_from_iterations(problems_per_iteration=problems, samples_per_problem=samples)
