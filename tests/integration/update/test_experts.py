"""A mixture of experts is updated by every stage of ZeRO and published whole; adapters on its experts are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef, silent
from tasks.pipeline.store import publish, published_digest
from tasks.training.config import LoraConfig
from tasks.update.config import CriticConfig, UpdateConfig
from tests.integration.update.requested import update_policy

pytestmark = pytest.mark.long

Publish = Callable[..., TrajectoryBatchRef]
BASE = UpdateConfig(optimizer_steps=2, threads_per_rank=1, learning_rate=1e-3, kl_coefficient=0.05, zero_stage=0)
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory, save_experts: Callable[..., None]) -> CheckpointRef:
    place = tmp_path_factory.mktemp("experts") / "policy"
    with publish(place) as folder:
        save_experts(folder)
    return CheckpointRef(uri=str(place), digest=published_digest(place))


@pytest.fixture(scope="module")
def batch(policy: CheckpointRef, turns: Callable[..., Any], publish_turns: Publish) -> TrajectoryBatchRef:
    return publish_turns(policy.path.parent / "batch", turns(policy))


@pytest.fixture(scope="module")
def alone(policy: CheckpointRef, batch: TrajectoryBatchRef) -> CheckpointRef:
    """Policy after an update on one rank."""
    return update_policy(policy, policy, batch, BASE, 0, 1, 0, policy.path.parent / "alone", silent)


def weights(checkpoint: CheckpointRef) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.path / "model.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 2, "zero_stage": 2},
        {"ranks": 2, "zero_stage": 3, "packing": "packed", "activation_checkpointing": True},
        {"ranks": 2, "context_parallel": 2, "head": "chunked"},
    ],
    ids=["zero-2", "zero-3", "shared"],
)
def test_stages_agree_and_publish_all_experts(
    tmp_path: Path, policy: CheckpointRef, batch: TrajectoryBatchRef, alone: CheckpointRef, change: dict[str, Any]
) -> None:
    other = update_policy(policy, policy, batch, BASE.model_copy(update=change), 0, 1, 0, tmp_path / "other", silent)
    before, first, second = (weights(checkpoint) for checkpoint in (policy, alone, other))
    assert before.keys() == first.keys() == second.keys()
    assert all(not torch.equal(before[name], first[name]) for name in before if "mlp.gate." in name)
    # AdamW moves a weight by ±rate in its first step, also where the gradient is noise: an expert that few tokens reach.
    apart = torch.cat([(first[name] - second[name]).abs().flatten() for name in first])
    assert float((apart > 1e-5).float().mean()) < 1e-3
    rows, others = (pl.read_parquet(checkpoint.path / "metrics.parquet") for checkpoint in (alone, other))
    assert rows["mismatch_max_abs"][0] < 1e-5
    for column in ("loss", "kl", "entropy", "gradient_norm"):
        assert others[column].to_list() == pytest.approx(rows[column].to_list(), rel=1e-5, abs=1e-6), column


def test_a_critic_of_experts_learns(tmp_path: Path, policy: CheckpointRef, batch: TrajectoryBatchRef) -> None:
    config = BASE.model_copy(update={"advantage": "gae", "critic": CriticConfig(learning_rate=1e-2)})
    after = update_policy(policy, policy, batch, config, 0, 1, 0, tmp_path / "after", silent)
    losses = pl.read_parquet(after.path / "metrics.parquet")["value_loss"]
    assert losses[-1] < losses[0]


def test_adapters_of_the_attention_train_and_no_others(
    tmp_path: Path, policy: CheckpointRef, batch: TrajectoryBatchRef
) -> None:
    with pytest.raises(InputError, match=r"update.lora.targets: found all-linear for a model with 8 experts"):
        update_policy(
            policy, policy, batch, BASE.model_copy(update={"lora": LoraConfig()}), 0, 1, 0, tmp_path / "never", silent
        )
    config = BASE.model_copy(update={"lora": LoraConfig(rank=2, targets=ATTENTION), "learning_rate": 1e-2})
    after = update_policy(policy, policy, batch, config, 0, 1, 0, tmp_path / "after", silent)
    before, found = weights(policy), weights(after)
    assert before.keys() == found.keys()
    assert {name.split(".")[-2] for name in before if not torch.equal(before[name], found[name])} == set(ATTENTION)
