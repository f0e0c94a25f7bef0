"""What of a stage's arguments decides its result."""

from pathlib import Path

import pytest

from kernels_eval.frozen import FrozenModel
from tasks.models.config import ModelConfig
from tasks.pipeline.cache import decisive
from tasks.pipeline.references import CheckpointRef
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import RolloutConfig
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


def test_what_only_says_where_and_how_fast_does_not_decide():
    def same(one: FrozenModel, other: FrozenModel) -> bool:
        return decisive(one) == decisive(other)

    assert same(UpdateConfig(), UpdateConfig(ranks=4, tokens_per_rank=64, context_parallel=2))
    assert same(RolloutConfig(), RolloutConfig(sglang_urls=("http://elsewhere:1",), trajectory_logs="logs"))
    assert not same(UpdateConfig(), UpdateConfig(epochs=2))
    assert not same(RolloutConfig(), RolloutConfig(samples_per_problem=2))
    assert decisive(CheckpointRef(uri="here", digest="d")) == decisive(CheckpointRef(uri="there", digest="d"))
