"""SFT control of a run: the same extra time spent on more SFT instead of RL, for comparison.

More SFT is SFT that did not end: the optimizer keeps its state, and the rate stays where it fell to. A new optimizer at
the full rate loses what SFT had, and would make any comparison with it easy.
"""

import polars as pl

from flows.evaluation import heldout_evaluations
from flows.run.run import Run
from flows.run.state import ControlState, wall_seconds_of
from flows.sft import trained_further
from tasks.agents.config import owners
from tasks.models.config import ModelConfig
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef, SftDataRef
from tasks.sft.task import fine_tune_further

RL_STAGES = ("rollout", "validate_trajectories", "update", "validate_update")


def evaluate_sft_control(run: Run, problems: ProblemSetRef) -> EvaluationRef:
    """Continue SFT for as long as all RL iterations took, and evaluate the result on the held-out problems.

    The number of steps is fixed when the control first starts, and recorded in the run's state: a run that is killed
    and resumed, perhaps on a busier machine, trains the same control.
    """
    state = run.state
    assert state.sft_data is not None, "the control comes after SFT"
    plan = state.control if state.control is not None and state.control.after == max(state.policies) else _plan(run)
    run.record_control(plan)
    policy = _fine_tuned_further(run, state.sft_data, plan.steps)
    sampled, greedy = heldout_evaluations(run, problems, policy, name="the control")
    run.record_control(plan.model_copy(update={"policy": policy, "evaluation": sampled, "greedy_evaluation": greedy}))
    return sampled


def _fine_tuned_further(run: Run, data: SftDataRef, steps: int) -> CheckpointRef:
    """Return policy 0 after so many steps more; of a team, each agent that is trained after so many.

    SFT's steps are made again, to have the optimizer's state that they ended with: a policy is published without it. Of
    a policy that went through repairs or a joint epoch the optimizer begins anew, at SFT's last rate.
    """
    config, first = run.config, run.state.policies[0]
    sft = config.sft
    # After an early stop neither the policy nor the rate is that of SFT's last step.
    is_of_sft_alone = not sft.repairs.problems and not sft.joint.problems and sft.early_stop is None

    def train(initial: CheckpointRef, model: ModelConfig, roles: tuple[str, ...], of: str) -> CheckpointRef:
        engine, seed = config.update.engine, config.seed
        if is_of_sft_alone:
            longer, start = config.sft.prolonged(_steps_of(initial), steps), None
        else:
            longer, start = config.sft.at_last_rate(steps), initial
        return fine_tune_further(run.workspace, data, model, longer, engine, seed, start, roles=roles, of=of)

    return trained_further(run, first, train, of=", control")


def _steps_of(policy: CheckpointRef) -> int:
    """Return the optimizer steps that SFT made."""
    return pl.read_parquet(policy.path / "metrics.parquet", columns=["seconds"]).height


def _plan(run: Run) -> ControlState:
    """Return the number of SFT steps, of each agent, that fit into the measured seconds of all RL stages so far."""
    seconds = wall_seconds_of([timing for timing in run.state.timings.values() if timing.stage in RL_STAGES])
    metrics = pl.read_parquet(run.state.policies[0].path / "metrics.parquet")  # resumed steps among them
    each = sum(bool(roles) for roles in owners(run.config.rollout.episode.agents).values())
    trained = 1 if run.config.sft.shared else each
    step = trained * float(metrics.get_column("seconds").to_numpy().mean())
    return ControlState(
        steps=max(1, round(seconds / step)), rl_seconds=seconds, step_seconds=step, after=max(run.state.policies)
    )
