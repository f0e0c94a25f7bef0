"""Held-out answers of a model behind a server as a Prefect task."""

from kernels_eval.config import JudgeConfig
from tasks.evaluation.chat_model import ChatModel
from tasks.pipeline.references import ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, stage_task
from tasks.rollout.config import RolloutConfig


@stage_task(
    "heldout_answers",
    code="extras.generation.baseline",
    label="held-out answers of {name}",
    ignored=("name",),
    detail="{problems.heldout} problems",
)
def answer_heldout_with(
    stage: Stage,
    model: ChatModel,
    problems: ProblemSetRef,
    config: RolloutConfig,
    judge: JudgeConfig,
    seed: int,
    name: str,
) -> TrajectoryBatchRef:
    """Have a model behind a server write kernels for every held-out problem."""
    from extras.generation.baseline import ANSWERS_FILE, BaselineRequest, collect_answers

    request = BaselineRequest(
        model=model,
        problems=problems,
        config=config,
        judge=judge,
        run_id=stage.workspace.run_id,
        seed=seed,
        destination=stage.destination.resolve(),
        answers=stage.work_dir.resolve() / ANSWERS_FILE,
    )
    return collect_answers(request, stage.progress)
