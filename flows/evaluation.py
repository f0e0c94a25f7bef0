"""Held-out evaluation of a policy."""

from pathlib import Path

from prefect import flow

from extras.generation.task import answer_heldout_with
from flows.problems import started_run
from flows.run.prefect_ui import name_of
from flows.run.run import Run
from flows.run.state import policy_in
from flows.settings.configuration import RunConfig, overridden
from flows.sft import newest_policy
from tasks.evaluation.chat_model import ChatModel
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.report.tables import heldout_line
from tasks.evaluation.task import evaluate
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef
from tasks.rollout.config import RolloutConfig, RolloutJudgeConfig
from tasks.rollout.task import answer_heldout


def evaluate_policy(run: Run, problems: ProblemSetRef, policy: CheckpointRef) -> EvaluationRef:
    """Evaluate one of the run's policies, record the results in the run, and return that of sampled answers."""
    sampled, greedy = heldout_evaluations(run, problems, policy)
    return run.add_evaluation(sampled, greedy, policy.weight_version)


def heldout_evaluations(
    run: Run, problems: ProblemSetRef, policy: CheckpointRef | ChatModel, name: str = ""
) -> tuple[EvaluationRef, EvaluationRef | None]:
    """Evaluate a policy, or a model behind a server, on every held-out problem: sampled and, if configured, greedy.

    `name` appears in the labels of the stages. The greedy answers come second: the judge's workers are the same, and
    kernels that were sampled too are not judged again.
    """
    if not name:
        name = policy.name if isinstance(policy, ChatModel) else f"policy {policy.weight_version}"
    settings = run.config.evaluation
    sampled = _measured(run, problems, policy, settings, name)
    if not settings.greedy or settings.temperature == 0:
        return sampled, None
    return sampled, _measured(run, problems, policy, settings.greedily(), f"{name}, greedy")


def _measured(
    run: Run, problems: ProblemSetRef, policy: CheckpointRef | ChatModel, settings: EvaluationConfig, name: str
) -> EvaluationRef:
    whole = {"full_size_share": settings.full_size_share, "compile_share": 1.0}
    judge = run.judge.model_copy(update=whole)
    rollout, seed = _evaluation_rollout(run.config, settings), settings.seed
    if isinstance(policy, ChatModel):
        batch = answer_heldout_with(run.workspace, policy, problems, rollout, judge, seed=seed, name=name)
    else:
        version = policy.weight_version
        batch = answer_heldout(run.workspace, policy, problems, rollout, judge, version=version, seed=seed, name=name)
    evaluation = evaluate(run.workspace, batch, problems, settings, name=name)
    line = f"held-out, {name}: {heldout_line(evaluation.path)}"
    run.workspace.tell(lambda listener: listener.noted(line))
    return evaluation


def _evaluation_rollout(config: RunConfig, settings: EvaluationConfig) -> RolloutConfig:
    """Return the rollout's settings with the evaluation's samples and temperature; training's do not affect the key."""
    sampling = config.rollout.sampling.model_copy(update={"temperature": settings.temperature})
    return config.rollout.apart_from_iterations(
        samples_per_problem=settings.samples_per_problem,
        problems_per_iteration=1,
        sampling=sampling,
        judge=RolloutJudgeConfig(),
    )


@flow(name="evaluation", flow_run_name=name_of("policy"))
def evaluation_flow(
    config: RunConfig,
    checkpoint: str | None = None,
    overrides: tuple[str, ...] = (),
    model: ChatModel | None = None,
) -> EvaluationRef:
    """Evaluate the run's newest policy on the held-out problems; or, not recorded in the run, the policy in a folder or
    a model behind a server.
    """
    given = None if checkpoint is None else policy_in(Path(checkpoint), overridden(config, overrides))
    if model is not None:
        model.check_reachable()
    with started_run(config, overrides) as (run, problems):
        other = model or given
        if other is None:
            return evaluate_policy(run, problems, newest_policy(run, problems))
        name = model.name if model is not None else Path(checkpoint or "").name
        return _measured(run, problems, other, run.config.evaluation, name)
