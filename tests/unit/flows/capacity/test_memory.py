"""Published sizes of models, ZeRO's arithmetic, and the memory of a rank and of a server."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    served_share,
    shape_of,
    training_memory,
)
from kernels_eval.errors import InputError
from tasks.models.config import ModelConfig

QWEN3 = KNOWN["Qwen/Qwen3-8B"]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", 7_615_616_512),
        ("facebook/KernelLLM", 8_030_261_248),
        ("Qwen/Qwen3-30B-A3B", 30_532_122_624),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
    ],
)
def test_parameters_are_as_published(name: str, parameters: int):
    assert KNOWN[name].parameters == parameters


def test_a_folder_that_is_not_here_yet_is_known_by_its_name(tmp_path: Path):
    known = KNOWN["HuggingFaceTB/SmolLM2-135M-Instruct"]
    assert shape_of(ModelConfig(pretrained="models/SmolLM2-135M-Instruct")) == known
    assert shape_of(ModelConfig(pretrained=str(tmp_path / "SmolLM2-135M-Instruct"))) == known
    with pytest.raises(InputError, match="by their names alone too"):
        shape_of(ModelConfig(pretrained="models/SmolLM3"))


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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mlp_only_layers": [], "tie_word_embeddings": False},
        {"mlp_only_layers": [0], "decoder_sparse_step": 2, "num_hidden_layers": 5, "attention_bias": True},
        {"mlp_only_layers": [0, 1, 2]},
    ],
)
def test_the_experts_of_a_folder_are_counted(
    tmp_path: Path, save_experts: Callable[..., None], changes: dict[str, Any]
):
    from tasks.models.policy import load_policy

    save_experts(tmp_path / "policy", **changes)
    model = load_policy(tmp_path / "policy")
    shape = shape_of(ModelConfig(pretrained=str(tmp_path / "policy")))
    assert shape.parameters == sum(weight.numel() for weight in model.parameters())
    of_experts = sum(weight.numel() for name, weight in model.named_parameters() if ".experts." in name)
    assert shape.parameters - shape.active_parameters == of_experts * 6 / 8
    assert shape.read_parameters(1) == shape.active_parameters
    assert shape.active_parameters <= shape.read_parameters(3) <= shape.read_parameters(1000) <= shape.parameters


def test_a_token_passes_through_its_experts_alone():
    """Qwen3-30B-A3B by hand: attention, router and norms of a layer, 8 of 128 experts, final norm, both embeddings."""
    layer = 2 * 2048 * 4096 + 2 * 2048 * 512 + 2048 * 128 + 2 * 2048 + 2 * 128 + 8 * 3 * 2048 * 768
    found = KNOWN["Qwen/Qwen3-30B-A3B"]
    assert found.active_parameters == 48 * layer + 2048 + 2 * 151936 * 2048 == 3_353_032_704
    assert found.read_parameters(64) == pytest.approx(found.parameters, rel=0.02)  # 64 tokens need nearly all experts
    job = TrainingJob(found, "bfloat16", 3, 8, 4096, True)
    assert training_memory(job)["weights"] == 2 * found.parameters / 8


def test_other_models_with_experts_and_published_names_are_told_apart(tmp_path: Path):
    stored = {
        "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "intermediate_size": 6144,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert shape_of(ModelConfig(pretrained=str(tmp_path))) == KNOWN["Qwen/Qwen3-30B-A3B"]
    (tmp_path / "config.json").write_text(json.dumps(stored | {"model_type": "mixtral"}))
    with pytest.raises(InputError, match="model_type: found mixtral with 128 experts, expected qwen3_moe"):
        shape_of(ModelConfig(pretrained=str(tmp_path)))


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


def test_a_checkpoint_holds_weights_and_optimizer():
    whole = TrainingJob(QWEN3, "bfloat16", 3, 4, 4096, True, reference=True)
    count = QWEN3.parameters
    assert checkpoint_bytes(whole) == (2 * count, (4 + 8) * count)
    assert checkpoint_bytes(replace(whole, dtype="float32")) == (4 * count, 8 * count)
    assert checkpoint_bytes(replace(whole, critic=True)) == (4 * count, 24 * count)
    assert checkpoint_bytes(replace(whole, trained=1000)) == (2 * count, 12 * 1000)


def test_a_critic_beside_adapters_trains_whole_weights():
    job = TrainingJob(QWEN3, "bfloat16", 3, 4, 4096, True, reference=True, critic=True, trained=1000)
    count = QWEN3.parameters
    assert checkpoint_bytes(job) == (4 * count, 12 * (1000 + count))
    used = training_memory(job)
    assert used["gradients"] == 4 * (1000 + count) / 4
    assert used["optimizer"] == 12 * (1000 + count) / 4


def test_a_server_with_a_limited_cache_takes_no_more_of_the_gpu_than_that() -> None:
    gpu = 80e9
    assert served_share(QWEN3, gpu, 0.24, 1, math.inf) == 0.24
    assert served_share(QWEN3, gpu, 0.9, 1, 1000) * gpu == pytest.approx(
        2 * QWEN3.parameters + 1000 * QWEN3.cache_bytes()
    )
    limited = served_share(QWEN3, gpu, 0.9, 2, 5000)
    assert generation_room(QWEN3, gpu, limited, 2) == 5000
