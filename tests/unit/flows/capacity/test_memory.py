"""Published sizes of models, ZeRO's arithmetic, and the memory of a rank and of a server."""

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
from kernels_eval.errors import InputError
from tasks.models.config import ModelConfig

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


def test_a_checkpoint_holds_weights_and_optimizer():
    whole = TrainingJob(QWEN3, "bfloat16", 3, 4, 4096, True, reference=True)
    count = QWEN3.parameters
    assert checkpoint_bytes(whole) == (2 * count, (4 + 8) * count)
    assert checkpoint_bytes(replace(whole, dtype="float32")) == (4 * count, 8 * count)
    assert checkpoint_bytes(replace(whole, critic=True)) == (4 * count, 24 * count)
    assert checkpoint_bytes(replace(whole, trained=1000)) == (2 * count, 12 * 1000)
