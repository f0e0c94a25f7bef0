"""Policies: made from a seed, saved and loaded to the bit, refused where they are of another shape."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernels_eval.errors import InputError
from tasks.models import policy
from tasks.models.config import ModelConfig
from tasks.models.policy import (
    architecture_of,
    check_architecture,
    check_dtype,
    check_same_architecture,
    dtype_of,
    load_policy,
    new_policy,
    save_policy,
)
from tasks.models.tokenizer import train_tokenizer

CONFIG = ModelConfig(vocabulary=300, hidden=16, intermediate=32, heads=2, key_value_heads=1, head_dim=8)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    return train_tokenizer(["x = 1\n"] * 9, 300, tmp_path_factory.mktemp("tokenizer"))


def test_a_seed_decides_the_weights(tokenizer) -> None:
    first, same, other = (new_policy(CONFIG, tokenizer, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_loads_as_saved_and_is_of_its_own_shape(tokenizer, tmp_path: Path) -> None:
    model = new_policy(CONFIG, tokenizer)
    save_policy(model, tokenizer, tmp_path)
    loaded = load_policy(tmp_path)
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())
    assert architecture_of(tmp_path)["vocab_size"] == len(tokenizer)
    assert dtype_of(tmp_path) == "float32"
    check_architecture(tmp_path, CONFIG)
    check_same_architecture(tmp_path, tmp_path)


def test_another_shape_is_named(tokenizer, tmp_path: Path) -> None:
    save_policy(new_policy(CONFIG, tokenizer), tokenizer, tmp_path)
    with pytest.raises(InputError, match="num_hidden_layers: found 2, expected 3"):
        check_architecture(tmp_path, CONFIG.model_copy(update={"layers": 3}))
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stored | {"hidden_size": 24}))
    with pytest.raises(InputError, match=r"(?s)expected a Hugging Face causal language model|another shape"):
        load_policy(tmp_path)


def test_missing_and_broken_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no file"):
        architecture_of(tmp_path)
    with pytest.raises(InputError, match="expected a Hugging Face causal language model"):
        load_policy(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        architecture_of(tmp_path)


def test_bfloat16_is_refused_where_it_crawls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(policy, "_cpu_has_bfloat16", lambda: False)
    with pytest.raises(InputError, match="set float32"):
        check_dtype("bfloat16")
    check_dtype("float32")


def test_bfloat16_leaves_rotary_frequencies_in_float32(tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_cpu_has_bfloat16", lambda: True)
    model = new_policy(CONFIG.model_copy(update={"dtype": "bfloat16"}), tokenizer)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert {buffer.dtype for buffer in model.buffers()} == {torch.float32}


def test_experts_belong_to_the_shape(tmp_path: Path, save_experts: Callable[..., None]) -> None:
    save_experts(tmp_path / "eight")
    save_experts(tmp_path / "four", num_experts=4)
    check_same_architecture(tmp_path / "eight", tmp_path / "eight")
    with pytest.raises(InputError, match="num_experts: found 8, expected 4"):
        check_same_architecture(tmp_path / "eight", tmp_path / "four")
    stored = json.loads((tmp_path / "eight/config.json").read_text())
    stored["num_experts"] = stored.pop("num_local_experts")  # as published files say it
    (tmp_path / "four/config.json").write_text(json.dumps(stored))
    check_same_architecture(tmp_path / "eight", tmp_path / "four")
