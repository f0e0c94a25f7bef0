"""Policy 0 without SFT: a given model's weights to the bit, in a folder of the run's own."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kernels_eval.errors import InputError
from tasks.models.config import ModelConfig
from tasks.models.policy import dtype_of, load_policy, new_policy, save_policy
from tasks.models.tokenizer import load_tokenizer, train_tokenizer
from tasks.sft.given import publish_given_policy


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train_tokenizer(["x = 1\n"], 320, tmp_path_factory.mktemp("tokenizer"))
    shape = ModelConfig(vocabulary=320, layers=1, hidden=16, intermediate=32, heads=2, key_value_heads=1, head_dim=8)
    folder = tmp_path_factory.mktemp("given")
    save_policy(new_policy(shape, tokenizer, seed=5), tokenizer, folder)
    (folder / "optimizer.pt").write_bytes(b"not the model's")
    return folder


def published(source: Path, folder: Path, **settings: Any) -> Any:
    return publish_given_policy(ModelConfig(pretrained=str(source), **settings), folder)


def test_the_weights_are_those_given_and_nothing_else_is_copied(given: Path, tmp_path: Path):
    policy = published(given, tmp_path / "policy")
    assert policy.weight_version == 0
    expected, found = (load_file(folder / "model.safetensors") for folder in (given, policy.path))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert load_tokenizer(policy.path).chat_template == load_tokenizer(given).chat_template
    assert not (policy.path / "optimizer.pt").exists()
    assert policy.digest == published(given, tmp_path / "again").digest


def test_weights_of_another_type_are_converted(given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tasks.models.policy._cpu_has_bfloat16", lambda: True)
    policy = published(given, tmp_path / "policy", dtype="bfloat16")
    assert dtype_of(policy.path) == "bfloat16"
    (weight,) = {value.dtype for value in load_file(policy.path / "model.safetensors").values()}
    assert weight == torch.bfloat16
    assert load_tokenizer(policy.path)


def test_weights_in_several_files_are_complete_or_refused(given: Path, tmp_path: Path):
    source, weights = tmp_path / "source", load_file(given / "model.safetensors")
    source.mkdir()
    for file in given.glob("*.json"):
        (source / file.name).write_bytes(file.read_bytes())
    for file in given.glob("*.jinja"):
        (source / file.name).write_bytes(file.read_bytes())
    names = sorted(weights)
    parts = {f"model-0000{n}-of-00002.safetensors": names[n - 1 :: 2] for n in (1, 2)}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, source / file, metadata={"format": "pt"})
    index = {name: file for file, part in parts.items() for name in part}
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    policy = published(source, tmp_path / "policy")
    state = load_policy(policy.path).state_dict()
    assert all(torch.equal(state[name], weights[name]) for name in names)
    (source / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match=r"model-00002-of-00002\.safetensors is missing"):
        published(source, tmp_path / "other")


def test_an_index_names_files_beside_it_only(given: Path, tmp_path: Path):
    """A hub's model could write over any file of the person who loads it."""
    source = tmp_path / "source"
    shutil.copytree(given, source)
    (source / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "../outside.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"index\.json: names '\.\./outside\.safetensors'"):
        published(source, tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


def test_a_template_of_another_family_is_refused(given: Path, tmp_path: Path):
    with pytest.raises(InputError, match="llama3"):
        published(given, tmp_path / "policy", template="llama3")
    with pytest.raises(InputError, match="expected the policy"):
        publish_given_policy(ModelConfig(), tmp_path / "none")
