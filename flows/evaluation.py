"""Held-out evaluation of a policy."""

from pathlib import Path

from prefect import flow

from flows.problems import started_run
from flows.run.prefect_ui import name_of
from flows.run.run import Run
from flows.run.state import policy_in
from flows.settings.configuration import RunConfig, overridden
from flows.sft import newest_policy
from tasks.evaluation.task import evaluate
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.task import answer_heldout


def evaluate_policy(run: Run, problems: ProblemSetRef, policy: CheckpointRef) -> EvaluationRef:
    """Evaluate one of the run's policies, and record the result in the run."""
    return run.add_evaluation(heldout_evaluation(run, problems, policy), policy.weight_version)


def heldout_evaluation(run: Run, problems: ProblemSetRef, policy: CheckpointRef, name: str = "") -> EvaluationRef:
    """Evaluate a policy on every held-out problem; `name` appears in the labels of the stages."""
    config, version = run.config, policy.weight_version
    rollout, seed, name = _evaluation_rollout(config), config.evaluation.seed, name or f"policy {version}"
    whole = {"full_size_share": config.evaluation.full_size_share, "compile_share": 1.0}
    judge = config.judge.model_copy(update=whole)
    batch = answer_heldout(run.workspace, policy, problems, rollout, judge, version=version, seed=seed, name=name)
    return evaluate(run.workspace, batch, problems, config.evaluation, name=name)


def _evaluation_rollout(config: RunConfig) -> RolloutConfig:
    """Return the rollout's settings with the evaluation's samples and temperature; training's do not affect the key."""
    sampling = config.rollout.sampling.model_copy(update={"temperature": config.evaluation.temperature})
    samples = config.evaluation.samples_per_problem
    changes = {"samples_per_problem": samples, "problems_per_iteration": 1, "sampling": sampling}
    return config.rollout.model_copy(update=changes)


@flow(name="evaluation", flow_run_name=name_of("policy"))
def evaluation_flow(config: RunConfig, checkpoint: str | None = None, overrides: tuple[str, ...] = ()) -> EvaluationRef:
    """Evaluate the run's newest policy on the held-out problems, or the policy in a folder (not recorded)."""
    given = None if checkpoint is None else policy_in(Path(checkpoint), overridden(config, overrides))
    with started_run(config, overrides) as (run, problems):
        if given is None:
            return evaluate_policy(run, problems, newest_policy(run, problems))
        return heldout_evaluation(run, problems, given, given.path.name)
