"""Weight files written by the project's own hand: to the byte the library's, with a digest and without a second read."""

import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import modeling_utils

from tasks.models import weight_files
from tasks.models.config import ModelConfig
from tasks.models.policy import new_policy, save_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.models.weight_files import hashed_weight_files, write_weights
from tasks.pipeline.digests import hand_over

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
CONFIG = ModelConfig(vocabulary=300, hidden=16, intermediate=32, heads=2, key_value_heads=1, head_dim=8)
NAMES = st.text("abz._0éZ", min_size=1, max_size=6)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    return train_tokenizer(["x = 1\n"] * 9, 300, tmp_path_factory.mktemp("tokenizer"))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        NAMES, st.tuples(st.sampled_from(TYPES), st.lists(st.integers(1, 5), max_size=3)), min_size=1, max_size=8
    )
)
def test_a_file_is_to_the_byte_the_librarys(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, tuple[torch.dtype, list[int]]]
) -> None:
    folder = tmp_path_factory.mktemp("weights")
    tensors = {name: torch.randn(shape).to(dtype) for name, (dtype, shape) in drawn.items()}
    write_weights(tensors, folder / "ours", {"format": "pt"})
    save_file(tensors, folder / "theirs", {"format": "pt"})
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()
    assert hand_over(folder)["ours"][2] == hashlib.sha256((folder / "theirs").read_bytes()).hexdigest()[:32]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_policy_is_saved_as_transformers_saves_it(tmp_path: Path, tokenizer, tied: bool, dtype: str) -> None:
    model = new_policy(CONFIG, tokenizer)
    if not tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach() + 1)
    model.to(getattr(torch, dtype))
    save_policy(model, None, tmp_path / "ours")
    model.save_pretrained(str(tmp_path / "theirs"))
    written = {file.name: file.read_bytes() for file in (tmp_path / "theirs").iterdir()}
    assert {file.name: file.read_bytes() for file in (tmp_path / "ours").iterdir()} == written
    known = hand_over(tmp_path / "ours")
    assert known["model.safetensors"][2] == hashlib.sha256(written["model.safetensors"]).hexdigest()[:32]
    assert modeling_utils.safe_save_file is save_file


def test_what_models_do_not_train_in_is_left_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {"a": torch.arange(6), "b": torch.ones(2)}
    write_weights(tensors, tmp_path / "ours", {"format": "pt"})
    save_file(tensors, tmp_path / "theirs", {"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert hand_over(tmp_path) == {}
    shared = torch.ones(4)
    with pytest.raises(RuntimeError, match="share memory"):
        write_weights({"a": shared, "b": shared}, tmp_path / "shared", {"format": "pt"})


def test_the_library_writes_again_after_an_error() -> None:
    def fail() -> None:
        with hashed_weight_files():
            assert modeling_utils.safe_save_file is weight_files.write_weights
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        fail()
    assert modeling_utils.safe_save_file is save_file
