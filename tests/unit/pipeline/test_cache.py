"""Arguments of a stage that decide its result."""

from pathlib import Path
from typing import Annotated, Any

import pytest

from flows.settings.configuration import RunConfig
from kernels_eval.config import JudgeConfig
from kernels_eval.frozen import FrozenModel, Operational
from tasks.models.config import ModelConfig
from tasks.pipeline.cache import StageOutcome, decisive, is_stored, keep
from tasks.pipeline.references import CheckpointRef, ProblemSetRef
from tasks.pipeline.stage import Stage, StageRequest, stage_task
from tasks.pipeline.store import MANIFEST, publish, published_digest
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import RolloutConfig
from tasks.rollout.task import roll_out
from tasks.sft.config import SftConfig, SftDataConfig
from tasks.update.config import CriticConfig, UpdateConfig
from tasks.validation.config import ValidationConfig


@pytest.mark.parametrize(
    "configured",
    [
        lambda path: ProblemsConfig(path=path),
        lambda path: SftConfig(data=SftDataConfig(path=path)),
        lambda path: ModelConfig(pretrained=path),
        lambda path: UpdateConfig(deepspeed=path),
        lambda path: UpdateConfig(critic=CriticConfig(pretrained=path)),
        lambda path: ValidationConfig(suites=path),
    ],
    ids=["problems", "pairs", "pretrained", "deepspeed", "critic", "suites"],
)
def test_a_folder_of_the_user_s_counts_by_content_not_by_name(configured, tmp_path: Path):
    def of(name: str, content: str) -> object:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "file").write_text(content)
        return decisive(configured(str(folder)))

    assert of("one", "x") == of("two", "x")
    assert of("one", "x") != of("one", "y")


OPERATIONAL = {
    "prefect",
    "control",
    "runs_dir",
    "store",
    "tracking",
    "ray",
    "stages",
    "evaluation.interval",
    "evaluation.primary",
    "rejection_control",
    "rejection_rounds",
    "judge.workers",
    "judge.cache_dir",
    "judge.cache_mb",
    "judge.require_sandbox",
    "judge.device_memory_gb",
    "judge.compile_ahead",
    "rollout.sglang_urls",
    "rollout.sglang.servers",
    "rollout.sglang.gpus_per_server",
    "rollout.sglang.start_timeout_s",
    "rollout.sglang.backoff_s",
    "rollout.judge_patience_s",
    "rollout.judge_actors",
    "rollout.generation_patience_s",
    "rollout.watch_after_s",
    "rollout.trajectory_logs",
    "sft.best_metric",
    "sft.data.judge.workers",
    "update.ranks",
    "update.zero_stage",
    "update.tokens_per_rank",
    "update.activation_checkpointing",
    "update.context_parallel",
    "update.save_interval",
    "update.checkpoint_interval",
    "update.weights_interval",
    "update.keep_checkpoints",
    "update.best_metric",
    "update.gpus_per_rank",
    "update.threads_per_rank",
}

ADDED_LATER = {
    "rollout.curriculum.stages",
    "rollout.judge",
    "sft.data.mended",
    "sft.data.judged",
    "sft.data.long_chains",
    "sft.data.optimizations",
    "sft.data.misconceived",
    "sft.data.misconception_probability",
    "rollout.episode.prompt_template",
    "rollout.episode.retry_template",
    "rollout.episode.system_message",
    "rollout.focus",
    "rollout.openai",
    "sft.compile",
    "sft.data.leave_out",
    "sft.data.reasoning",
    "update.imitation",
    "problems.long_chains",
    "problems.unanswered",
}
"""Settings that count in no key as long as they have their default."""


def _left_out(value: FrozenModel, prefix: str = "") -> set[str]:
    """The dotted paths of the settings that do not count in a key."""
    counted = decisive(value)
    names = {prefix + name for name in type(value).model_fields if name not in counted}
    groups = [(name, getattr(value, name)) for name in counted]
    inner = [_left_out(group, f"{prefix}{name}.") for name, group in groups if isinstance(group, FrozenModel)]
    return names.union(*inner)


def test_which_settings_do_not_decide():
    """A setting that joins or leaves this list makes results of other configurations count as equal, or as different."""
    assert _left_out(RunConfig()) == OPERATIONAL | ADDED_LATER


def test_the_judge_s_memory_and_its_refusal_of_weak_machines_change_no_key():
    base = RunConfig()
    changed = RunConfig(judge=JudgeConfig(cache_mb=128, require_sandbox=True))
    assert changed.run_id == base.run_id
    assert changed.judge != base.judge
    policy = CheckpointRef(uri="here", digest="p")
    problems = ProblemSetRef(uri="here", digest="q", train=1, heldout=1)

    def key(config: RunConfig) -> str:
        return roll_out.key({"policy": policy, "problems": problems, "config": config.rollout, "judge": config.judge})

    assert key(changed) == key(base)
    assert key(RunConfig(judge=JudgeConfig(timeout_s=3))) != key(base)


def test_what_only_says_where_and_how_fast_does_not_decide():
    def same(one: FrozenModel, other: FrozenModel) -> bool:
        return decisive(one) == decisive(other)

    assert same(UpdateConfig(), UpdateConfig(ranks=4, tokens_per_rank=64, context_parallel=2))
    assert same(RolloutConfig(), RolloutConfig(sglang_urls=("http://elsewhere:1",), trajectory_logs="logs"))
    assert not same(UpdateConfig(), UpdateConfig(epochs=2))
    assert not same(RolloutConfig(), RolloutConfig(samples_per_problem=2))
    here, there = CheckpointRef(uri="here", digest="d"), CheckpointRef(uri="there", digest="d")
    assert decisive(here) == decisive(there)
    assert decisive((here, UpdateConfig())) == decisive([there, UpdateConfig(ranks=4)])


class WholeRequest(StageRequest):
    policy: CheckpointRef
    config: UpdateConfig
    seed: int = 0
    of: Annotated[str, Operational] = ""


def test_a_request_counts_like_the_arguments_that_it_holds():
    @stage_task("update", code="tasks.pipeline.references", label="update {seed}{of}", ignored=("of",))
    def in_parts(stage: Stage, policy: CheckpointRef, config: UpdateConfig, seed: int = 0, of: str = "") -> Any:
        raise NotImplementedError

    @stage_task("update", code="tasks.pipeline.references", label="update {seed}{of}")
    def as_request(stage: Stage, request: WholeRequest) -> Any:
        raise NotImplementedError

    def key(**change: Any) -> str:
        arguments = {"policy": CheckpointRef(uri="here", digest="p"), "config": UpdateConfig(), **change}
        keys = {
            in_parts.key(in_parts.arguments(**arguments)),
            as_request.key(as_request.arguments(WholeRequest(**arguments))),
        }
        assert len(keys) == 1
        return keys.pop()

    assert key() == key(of=" of the solver") == key(policy=CheckpointRef(uri="there", digest="p"))
    assert key() == key(config=UpdateConfig(ranks=2))
    assert len({key(), key(seed=1), key(config=UpdateConfig(epochs=2))}) == 3


@pytest.mark.parametrize("left", [b"", b'{"digest": "d", "fi', b"\xff\xfe"], ids=["empty", "half", "no text"])
def test_a_result_whose_manifest_cannot_be_read_counts_as_none(tmp_path: Path, left: bytes):
    folder = tmp_path / "store/sft/key"
    with publish(folder) as partial:
        (partial / "model").write_text("weights")
    reference = CheckpointRef(uri=str(folder), digest=published_digest(folder)).stored_in(tmp_path)
    keep(tmp_path / "results", "key", StageOutcome(reference=reference, seconds=1.0))
    assert is_stored(tmp_path / "results", "key", tmp_path)
    (folder / MANIFEST).write_bytes(left)
    heard: list[str] = []
    assert not is_stored(tmp_path / "results", "key", tmp_path, heard.append)
    assert [(str(folder) in text, text.endswith("; it is made again")) for text in heard] == [(True, True)]
