"""Rejection-sampling control of a run: as many judged kernels as RL had, spent on one or more rounds of it instead.

The policy that RL began with holds conversations on training problems, and SFT goes on with the best kernel found on
each (tasks.sft.joint_pairs): no gradient of a wrong answer, no second policy that samples. A further round does the
same from the policy of the round before it.
"""

from flows.evaluation import heldout_evaluations
from flows.run.run import Run
from flows.run.state import RejectionState, RunState
from flows.sft import trained_on
from tasks.pipeline.references import ProblemSetRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.task import play_for_rejection
from tasks.sft.task import fine_tune_on_winners, make_rejection_pairs

_SEED = 4_000_037
"""Added to the run's seed: the problems are drawn apart from the iterations'."""
_ROUND_SEED = 1_009
"""Added for each round after the first."""


def evaluate_rejection_control(run: Run, problems: ProblemSetRef) -> None:
    """Train policy 0 on the best kernels of its own conversations, and evaluate it; recorded in the run."""
    config, state = run.config, run.state
    policy, rounds = state.policies[0], config.rejection_rounds
    conversations, judged = _conversations_of(state), 0
    for number in range(rounds):
        rollout = _with_conversations(config.rollout, round(conversations / rounds), problems.train)
        seed = config.seed + _SEED + _ROUND_SEED * number
        batch = play_for_rejection(run.workspace, policy, problems, rollout, run.rollout_judge, seed=seed)
        judged += batch.turns
        data = make_rejection_pairs(run.workspace, batch, problems, config.rollout.episode, config.judge.backend)
        if not data.pairs:
            message = (
                f"rejection sampling: none of {batch.trajectories} conversations found a correct kernel; there is no "
                "such control (more of sft.steps would help)"
            )
            run.workspace.tell(lambda listener, told=message: listener.warned(told))
            return
        settings, name = config.sft.of_joint_epoch(), "rejection sampling" + _numbered(number)
        policy = trained_on(run, policy, data, f"pairs of {name}", fine_tune_on_winners, settings, f", {name}")
    sampled, greedy = heldout_evaluations(run, problems, policy, name="rejection sampling")
    run.record_rejection(
        RejectionState(
            judged=judged,
            judged_by_rl=sum(each.turns for each in state.batches.values()),
            after=max(state.policies),
            policy=policy,
            evaluation=sampled,
            greedy_evaluation=greedy,
        )
    )


def _conversations_of(state: RunState) -> int:
    """Return the conversations of policy 0 in which about as many kernels are judged as RL had.

    RL's conversations become shorter while it learns. Policy 0 wrote the first batch: its turns a conversation count.
    """
    first = state.batches[min(state.batches)]
    judged = sum(batch.turns for batch in state.batches.values())
    return round(judged * first.trajectories / first.turns)


def _numbered(number: int) -> str:
    return "" if number == 0 else f", round {number + 1}"


def _with_conversations(rollout: RolloutConfig, conversations: int, there_are: int) -> RolloutConfig:
    """Return the settings of one rollout with about so many conversations, in groups as large as RL's or larger."""
    problems = max(min(there_are, conversations // rollout.samples_per_problem), 1)
    samples = max(round(conversations / problems), 1)
    return rollout.apart_from_iterations(problems_per_iteration=problems, samples_per_problem=samples)
