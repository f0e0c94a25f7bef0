"""Every estimator, loss, aggregation and correction trains on real ranks; PPO's critic learns, and goes on where it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from kernels_eval.errors import InputError
from tasks.cluster.workers import stop_workers
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef, silent
from tasks.training.config import LoraConfig
from tasks.update.config import CorrectionConfig, CriticConfig, UpdateConfig
from tests.integration.update.requested import update_policy

pytestmark = pytest.mark.long

MakePolicy = Callable[..., CheckpointRef]
MakeBatch = Callable[..., TrajectoryBatchRef]
BASE = UpdateConfig(optimizer_steps=2, threads_per_rank=1, learning_rate=1e-3, kl_coefficient=0.05)
PPO = BASE.model_copy(update={"advantage": "gae", "critic": CriticConfig(learning_rate=1e-2), "epochs": 2})


def metrics(checkpoint: CheckpointRef) -> pl.DataFrame:
    return pl.read_parquet(checkpoint.path / "metrics.parquet")


def assert_same_files(first: CheckpointRef, second: CheckpointRef, *files: str) -> None:
    for file in files:
        ours, theirs = load_file(first.path / file), load_file(second.path / file)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), file


@pytest.mark.parametrize(
    "change",
    [
        {"advantage": "grpo"},
        {"advantage": "dr_grpo", "aggregation": "seq_mean_token_sum_norm"},
        {"advantage": "rloo", "policy_loss": "gspo", "aggregation": "seq_mean_token_mean"},
        {"advantage": "turn_grpo", "policy_loss": "cispo"},
        {"advantage": "reinforce_pp", "gamma": 0.99, "policy_loss": "dppo"},
        {"kl_in": "reward", "kl_estimator": "k1"},
        {"advantage": "gae", "gae_lambda": 0.9, "kl_in": "reward"},
        {"old_log_probs": "trainer", "correction": CorrectionConfig(weights="icepop", rejection="geometric")},
        {"optimizer_steps": 1, "correction": CorrectionConfig(weights="sequence_tis", rejection="sequence")},
        {"packing": "packed", "head": "chunked", "activation_checkpointing": True},
    ],
    ids=lambda change: "-".join(str(value) for value in change.values() if isinstance(value, str)) or "packed",
)
def test_every_choice_trains(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch, change: dict[str, Any]
) -> None:
    policy = make_policy()
    config = BASE.model_copy(update=change)
    after = update_policy(policy, policy, make_batch(policy), config, 0, 1, 0, tmp_path / "after", silent)
    found = metrics(after)
    assert found.select(pl.all().is_finite().all()).row(0) == (True,) * found.width
    assert found["gradient_norm"].min() > 0  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert found["mismatch_max_abs"][0] < 1e-4


def test_the_critic_learns_and_goes_on_where_it_was(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy = make_policy()
    batch = make_batch(policy)
    first = update_policy(policy, policy, batch, PPO, 0, 3, 0, tmp_path / "first", silent)
    warm = update_policy(first, policy, batch, PPO, 1, 3, 0, tmp_path / "warm", silent)
    stop_workers()
    cold = update_policy(first, policy, batch, PPO, 1, 3, 0, tmp_path / "cold", silent)
    parts = ("model.safetensors", "optimizer/state.safetensors")
    assert_same_files(warm, cold, *parts, *(f"critic/{part}" for part in parts))
    assert metrics(first)["value_loss"][-1] < metrics(first)["value_loss"][0]
    assert metrics(warm)["value_loss"][0] < metrics(first)["value_loss"][0]
    assert metrics(first)["explained_variance"][0] == pytest.approx(0, abs=1e-6)
    assert metrics(warm)["explained_variance"][0] > 0.05
    assert set(metrics(warm)["value_clip_fraction"]) != {None}


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{"packing": "packed"}, {"context_parallel": 2}], ids=str)
def test_ppo_is_the_same_on_two_ranks(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch, layout: dict[str, Any]
) -> None:
    policy = make_policy()
    batch = make_batch(policy)
    one = update_policy(policy, policy, batch, PPO, 0, 1, 0, tmp_path / "one", silent)
    two = PPO.model_copy(update={"ranks": 2, **layout})
    two = update_policy(policy, policy, batch, two, 0, 1, 0, tmp_path / "two", silent)
    first, second = metrics(one), metrics(two)
    # The first step: later ones start from weights that AdamW has moved by ±rate, also where a gradient is noise.
    for column in ("loss", "value_loss", "kl", "gradient_norm", "value_gradient_norm", "explained_variance"):
        np.testing.assert_allclose(first[column][0], second[column][0], atol=1e-6, rtol=1e-4, err_msg=column)


def test_a_sampler_of_other_numerics_is_corrected_for(
    tmp_path: Path, make_policy: MakePolicy, turns: Callable[..., Any], publish_rows: Callable[..., Any]
) -> None:
    policy = make_policy()
    rows = turns(policy)
    for row in rows:
        row["response_logprobs"] = [value - 0.1 for value in row["response_logprobs"]]
    rows[0]["response_logprobs"] = [min(value + 12.0, 0.0) for value in rows[0]["response_logprobs"]]
    rows[0]["response_logprobs"][0] = 0.0
    batch = publish_rows(rows)
    config = BASE.model_copy(update={"correction": CorrectionConfig(veto=0.05)})
    corrected = metrics(update_policy(policy, policy, batch, config, 0, 1, 0, tmp_path / "a", silent))
    assert corrected["correction_weight"].max() == pytest.approx(np.exp(0.1), rel=1e-3)
    assert corrected["rejected_fraction"].max() > 0  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert corrected["clip_fraction"][0] == 0
    assert 0.05 < corrected["mismatch_mean_abs"][0] < 2
    believed = BASE.model_copy(update={"old_log_probs": "sampler"})
    plain = metrics(update_policy(policy, policy, batch, believed, 0, 1, 0, tmp_path / "b", silent))
    assert plain["correction_weight"].to_list() == [1.0, 1.0]


def test_adapters_train_and_the_published_policy_is_the_merged_one(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy = make_policy()
    config = BASE.model_copy(update={"lora": LoraConfig(rank=4), "learning_rate": 1e-2})
    batch = make_batch(policy)
    first = update_policy(policy, policy, batch, config, 0, 2, 0, tmp_path / "first", silent)
    base, after = load_file(policy.path / "model.safetensors"), load_file(first.path / "model.safetensors")
    assert base.keys() == after.keys()
    moved = {name for name in base if not torch.equal(base[name], after[name])}
    assert moved
    assert all("proj" in name for name in moved)
    assert AutoModelForCausalLM.from_pretrained(first.path).config.vocab_size
    # The reference is the base with the adapters off: at the first step the policy is still equal to it.
    assert metrics(first)["kl"][0] == pytest.approx(0, abs=1e-6)
    assert metrics(first)["kl"][1] > 0
    second_batch = make_batch(first, "second", seed=1)
    warm = update_policy(first, policy, second_batch, config, 1, 2, 0, tmp_path / "warm", silent)
    stop_workers()
    cold = update_policy(first, policy, second_batch, config, 1, 2, 0, tmp_path / "cold", silent)
    assert_same_files(
        warm, cold, "model.safetensors", "optimizer/state.safetensors", "adapter/adapter_model.safetensors"
    )
    assert metrics(warm)["mismatch_max_abs"][0] < 1e-3
    other = config.model_copy(update={"lora": LoraConfig(rank=2)})
    with pytest.raises(InputError, match="an adapter's shape stays as it began"):
        update_policy(first, policy, second_batch, other, 1, 2, 0, tmp_path / "never", silent)
