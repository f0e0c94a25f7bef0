"""The planner: published sizes, ZeRO's arithmetic, and what it says of the configurations that ship."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.capacity.memory import (
    BUCKET_VALUES,
    KNOWN,
    STAGES,
    Shape,
    TrainingJob,
    checkpoint_bytes,
    generation_room,
    shape_of,
    training_memory,
)
from flows.capacity.planner import CapacityPlan, plan
from flows.capacity.speed import GPUS
from flows.cli.main import run
from flows.settings.configuration import load_configuration
from kernels_eval.errors import InputError
from tasks.models.config import ModelConfig
from tasks.training.config import check_heads

CONFIGS = Path("deployments/configs")
ON_GPUS = sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem.startswith(("qwen", "kernelllm")))
QWEN3 = KNOWN["Qwen/Qwen3-8B"]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", 7_615_616_512),
        ("facebook/KernelLLM", 8_030_261_248),
    ],
)
def test_parameters_are_as_published(name: str, parameters: int):
    assert KNOWN[name].parameters == parameters


def test_a_folder_tells_its_sizes(tmp_path: Path):
    stored = {
        "model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12288,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert shape_of(ModelConfig(pretrained=str(tmp_path))) == QWEN3
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 4}))
    with pytest.raises(InputError, match="expected the sizes of a decoder"):
        shape_of(ModelConfig(pretrained=str(tmp_path)))
    with pytest.raises(InputError, match="are not known"):
        shape_of(ModelConfig(pretrained="someone/else"))


def test_zero_divides_what_the_paper_says():
    job = TrainingJob(QWEN3, "bfloat16", 0, 4, 1, True)
    count = QWEN3.parameters
    shares = {0: (1, 1, 1), 1: (1, 1, 4), 2: (1, 4, 4), 3: (4, 4, 4)}
    for stage, (weights, gradients, optimizer) in shares.items():
        used = training_memory(replace(job, stage=stage))
        assert used["weights"] == pytest.approx(2 * count / weights)
        assert used["gradients"] == pytest.approx(4 * count / gradients)
        assert used["optimizer"] == pytest.approx(12 * count / optimizer)
    assert training_memory(replace(job, dtype="float32"))["optimizer"] == pytest.approx(8 * count)


@given(st.sampled_from(STAGES), st.integers(1, 32), st.integers(64, 8192), st.booleans())
def test_more_ranks_and_fewer_tokens_never_take_more(stage: int, ranks: int, tokens: int, checkpointing: bool):
    def used(**changes: object) -> float:
        job = TrainingJob(QWEN3, "bfloat16", stage, max(ranks, 2), tokens, checkpointing, reference=True)
        return sum(training_memory(replace(job, **changes)).values())

    assert used(ranks=max(ranks, 2) * 2) <= used()
    assert used(tokens=tokens // 2) <= used()
    assert used(checkpointing=True) <= used(checkpointing=False)
    assert used(reference=False) < used() < used(critic=True)


def test_a_server_holds_what_its_weights_leave():
    tiny = Shape(2, 128, 384, 8, 4, 32, 2048)
    assert tiny.cache_bytes() == 2 * 2 * 4 * 32 * 2
    assert generation_room(tiny, 10 * BUCKET_VALUES, 0.5, 1) == int((5e8 - 2 * tiny.parameters) / tiny.cache_bytes())
    assert generation_room(QWEN3, 8e9, 0.9, 1) < 0


@pytest.mark.parametrize("name", ON_GPUS)
def test_what_ships_fits_the_gpus_that_it_says(name: str):
    config = load_configuration(CONFIGS / f"{name}.yaml")
    found = plan(config, GPUS["h100"])
    assert found.fits
    assert found.gpus == (8 if "cuda" in name else 6)
    assert found.share_of_longest <= config.update.tokens_per_rank
    check_heads(found.shape.heads, found.shape.key_value_heads, config.update.context_parallel)


def test_a_checkpoint_holds_weights_and_optimizer():
    whole = TrainingJob(QWEN3, "bfloat16", 3, 4, 4096, True, reference=True)
    count = QWEN3.parameters
    assert checkpoint_bytes(whole) == (2 * count, (4 + 8) * count)
    assert checkpoint_bytes(replace(whole, dtype="float32")) == (4 * count, 8 * count)
    assert checkpoint_bytes(replace(whole, critic=True)) == (4 * count, 24 * count)
    assert checkpoint_bytes(replace(whole, trained=1000)) == (2 * count, 12 * 1000)


@pytest.mark.parametrize(("interval", "whole"), [(1, 200), (50, 6), (60, 5), (1000, 2)])
def test_some_checkpoints_keep_their_optimizer(interval: int, whole: int):
    settings = [f"update.checkpoint_interval={interval}"]
    found = plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", settings), GPUS["h100"])
    assert found.disk_bytes == (200 * 2 + whole * 12) * QWEN3.parameters


def test_ranks_that_share_a_sequence_hold_a_share_of_it():
    def planned(*settings: str) -> CapacityPlan:
        return plan(load_configuration(CONFIGS / "qwen3-8b-multi-turn.yaml", settings), GPUS["h100"])

    alone, shared = planned("update.context_parallel=1"), planned("update.context_parallel=4")
    assert alone.share_of_longest == alone.longest == 4 * shared.share_of_longest
    assert alone.training["activations"] > shared.training["activations"] > 0
    within = planned("update.context_parallel=2")  # here a full micro-batch decides, and no longer the sequence
    assert within.training["activations"] == shared.training["activations"]


@pytest.mark.parametrize(
    ("name", "problems", "samples", "batch", "tokens", "rate", "kl", "entropy"),
    [
        ("qwen3-8b-multi-turn", 4, 4, 16, 4096, 1e-6, 0.01, 0.001),
        ("qwen3-8b-multi-turn-debug", 2, 4, 8, 2048, 1e-6, 0.01, 0.001),
        ("qwen3-8b-single-turn", 4, 4, 16, 4096, 1e-6, 0.01, 0.001),
        ("qwen3-8b-single-turn-debug", 4, 4, 16, 2048, 1e-6, 0.01, 0.001),
        ("kernelllm-8b", 4, 8, 32, 4096, 5e-7, 0.0, 0.0),
        ("qwen2.5-coder-7b-cuda", 8, 4, 8, 2048, 1e-5, 0.02, 0.0),
    ],
)
def test_the_settings_are_those_that_were_asked_for(
    name: str, problems: int, samples: int, batch: int, tokens: int, rate: float, kl: float, entropy: float
):
    config = load_configuration(CONFIGS / f"{name}.yaml")
    update, rollout = config.update, config.rollout
    assert (rollout.problems_per_iteration, rollout.samples_per_problem) == (problems, samples)
    assert problems * samples / update.optimizer_steps == batch
    assert (update.tokens_per_rank, update.learning_rate) == (tokens, rate)
    assert (update.kl_coefficient, update.entropy_coefficient) == (kl, entropy)
    turns = {"qwen3-8b-single-turn": 1, "qwen3-8b-single-turn-debug": 1, "qwen2.5-coder-7b-cuda": 5}.get(name, 3)
    assert rollout.episode.max_turns == turns
    assert rollout.episode.gamma == (0.9 if "cuda" in name else 0.4)
    if name == "qwen3-8b-single-turn-debug":  # rollouts of 2 problems x 4 samples
        assert rollout.sglang.servers * rollout.sglang.concurrency == 2 * samples
    if name == "qwen2.5-coder-7b-cuda":
        assert (config.judge.backend, update.advantage, update.epochs) == ("cuda", "gae", 4)
        assert (update.clip_low, update.clip_high, rollout.episode.success_reward) == (0.2, 0.2, 0.8)


def test_the_command_says_it_and_fails_where_it_does_not_fit(capsys: pytest.CaptureFixture[str]):
    config = str(CONFIGS / "qwen3-8b-multi-turn.yaml")
    assert run(["plan", config]) == 0
    said = capsys.readouterr().out
    assert "8.19 billion weights on 6 × H100" in said
    assert "ZeRO-3 on 4 rank(s): fits" in said
    assert "tokens/s trained" in said
    assert "disk: 107 GiB a checkpoint; 3.5 TiB of 200 iterations stay in runs/store" in said
    assert "update.context_parallel" not in said
    assert run(["plan", config, "--set", "update.context_parallel=1"]) == 0
    assert "puts 7,644 tokens on a rank, more than update.tokens_per_rank = 4,096" in capsys.readouterr().out
    assert run(["plan", config, "--set", "update.ranks=1", "--set", "update.context_parallel=1"]) == 1
    assert "it does not fit; try in this order: --set rollout.problems_per_iteration=1" in capsys.readouterr().out
    assert run(["plan", config, "--gpu", "tpu"]) == 2
    assert run(["plan", str(CONFIGS / "local.yaml")]) == 0
    assert "no GPU: fits where" in capsys.readouterr().out
