"""SFT data and SFT as Prefect tasks."""

from collections.abc import Sequence

from kernels_eval.config import JudgeConfig
from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict
from tasks.models.config import ModelConfig
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, Progress, SftDataRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, stage_task
from tasks.pipeline.verdicts import with_kept_verdicts
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import EpisodeConfig, JudgingPlace
from tasks.sft.config import RepairsConfig, SftConfig, SftDataConfig
from tasks.training.config import EngineConfig


@stage_task(
    "sft_data",
    code="tasks.sft.pairs",
    label="SFT data",
    ignored=("trained_on",),
    detail="{config.origin}",
)
def make_sft_data(
    stage: Stage,
    problems: ProblemSetRef,
    config: SftDataConfig,
    suite: ProblemsConfig,
    episode: EpisodeConfig,
    judge: JudgeConfig,
    place: JudgingPlace,
    seed: int,
    trained_on: EngineConfig | None = None,
) -> SftDataRef:
    """Collect pairs of problem and kernel, judge them all where rollouts are judged, and publish the conversations.

    `trained_on`: ranks that SFT will have; those on GPUs start meanwhile.
    """
    from tasks.rollout.judging import judge_kernels
    from tasks.sft.pairs import build_sft_data
    from tasks.training.ranks import prepare_ranks

    if trained_on is not None and trained_on.gpus_per_rank:  # on a CPU judging needs all cores
        prepare_ranks(trained_on, place.gpus)

    on_cpus = JudgingPlace(gpus=place.gpus, all_cpus=config.judge.workers is None)

    def judge_all(items: Sequence[tuple[Problem, str]], settings: JudgeConfig, progress: Progress) -> list[Verdict]:
        moved = config.judge.device == settings.device == "cpu"
        kept = with_kept_verdicts(settings, stage.workspace.runs_dir)  # for another reward or seed
        return judge_kernels(items, kept, on_cpus if moved else place, progress)

    return build_sft_data(problems, config, suite, episode, judge, seed, stage.destination, stage.progress, judge_all)


@stage_task("sft", code="tasks.sft.train", label="SFT{of}", ignored=("of",), detail="{config.length}")
def fine_tune(
    stage: Stage,
    data: SftDataRef,
    model: ModelConfig,
    config: SftConfig,
    engine: EngineConfig,
    seed: int,
    roles: tuple[str, ...] = (),
    of: str = "",
) -> CheckpointRef:
    """Train the first policy to imitate the judged kernels; resumes from its interim checkpoints.

    `roles`: of the agents whose pairs it learns from; all if empty. `of`: end of the stage's label.
    """
    return _fine_tune_further(stage, data, model, config, engine, seed, None, roles, of)


@stage_task(
    "given_policy", code="tasks.sft.given", label="given policy{of}", ignored=("of",), detail="{model.pretrained}"
)
def adopt_policy(stage: Stage, model: ModelConfig, of: str = "") -> CheckpointRef:
    """Publish a pretrained model as the first policy, where there is no SFT."""
    from tasks.sft.given import publish_given_policy

    return publish_given_policy(model, stage.destination)


@stage_task("repair_pairs", code="tasks.sft.repair_pairs", label="pairs of repairs")
def make_repair_pairs(
    stage: Stage,
    batch: TrajectoryBatchRef,
    problems: ProblemSetRef,
    corpus: SftDataRef,
    config: RepairsConfig,
    episode: EpisodeConfig,
    judge: JudgeConfig,
    place: JudgingPlace,
    seed: int,
) -> SftDataRef:
    """Answer the failures of a policy's first answers with the best kernel known."""
    from tasks.rollout.judging import judge_kernels
    from tasks.rollout.prompts import judge_for
    from tasks.sft.repair_pairs import build_repair_pairs

    def judge_references(items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        return judge_kernels(items, judge_for(episode, judge), place, stage.progress) if items else []

    return build_repair_pairs(
        batch,
        problems,
        corpus,
        episode,
        judge.backend,
        config.replayed,
        seed,
        stage.destination,
        judge_references,
    )


def _make_joint_pairs(
    stage: Stage, batch: TrajectoryBatchRef, problems: ProblemSetRef, episode: EpisodeConfig, backend: str
) -> SftDataRef:
    """Answer every turn of conversations on training problems with the best kernel that was found on the problem."""
    from tasks.sft.joint_pairs import build_joint_pairs

    return build_joint_pairs(batch, problems, episode, backend, stage.destination)


make_joint_pairs = stage_task("joint_pairs", code="tasks.sft.joint_pairs", label="pairs of the joint epoch")(
    _make_joint_pairs
)
"""Pairs of the joint epoch."""


def _fine_tune_further(
    stage: Stage,
    data: SftDataRef,
    model: ModelConfig,
    config: SftConfig,
    engine: EngineConfig,
    seed: int,
    initial: CheckpointRef | None,
    roles: tuple[str, ...] = (),
    of: str = "",
) -> CheckpointRef:
    """Go on with SFT from a policy; None: from the beginning. `roles`, `of`: as for `fine_tune`."""
    from tasks.sft.train import train_sft

    return train_sft(
        data,
        model,
        config,
        engine,
        seed,
        stage.destination,
        stage.work_dir,
        stage.progress,
        initial,
        roles,
        stage.on_steps,
    )


fine_tune_on_repairs = stage_task(
    "repairs",
    code="tasks.sft.train",
    label="repairs{of}",
    ignored=("of",),
    detail="{config.length} of {data.pairs} pairs",
)(_fine_tune_further)
"""SFT that goes on with repairs of the policy's own failures."""

fine_tune_jointly = stage_task(
    "joint_epoch",
    code="tasks.sft.train",
    label="joint epoch{of}",
    ignored=("of",),
    detail="{config.length} of {data.pairs} pairs",
)(_fine_tune_further)
"""SFT that goes on with the pairs of the joint epoch."""

fine_tune_further = stage_task(
    "control",
    code="tasks.sft.train",
    label="control: more SFT{of}",
    ignored=("of",),
    detail="{config.length}",
)(_fine_tune_further)
"""SFT that goes on: the control that the time of RL is compared with."""

make_rejection_pairs = stage_task("rejection_pairs", code="tasks.sft.joint_pairs", label="pairs of rejection sampling")(
    _make_joint_pairs
)
"""Pairs of the control by rejection sampling."""

fine_tune_on_winners = stage_task(
    "rejection_epoch",
    code="tasks.sft.train",
    label="control: rejection sampling{of}",
    ignored=("of",),
    detail="{config.length} of {data.pairs} pairs",
)(_fine_tune_further)
"""SFT that goes on with the best kernels of conversations, at as many judged kernels as RL had."""
