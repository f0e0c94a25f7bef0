"""Small models of every family, as transformers writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

SIZES: dict[str, Any] = {
    "vocab_size": 37,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 6,
    "max_position_embeddings": 64,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "norm_topk_prob": True}
FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe")

MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Return a function that writes a random model: `make_model("qwen3", tied=True, num_hidden_layers=2)`."""
    made: dict[Any, Path] = {}

    def make(family: str, *, tied: bool = False, seed: int = 0, **changes: Any) -> Path:
        from transformers import AutoConfig, AutoModelForCausalLM

        key = (family, tied, seed, json.dumps(changes, sort_keys=True))
        if key not in made:
            extra = EXPERTS if family == "qwen3_moe" else {}
            config = AutoConfig.for_model(family, **(SIZES | extra | {"tie_word_embeddings": tied} | changes))
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                model = AutoModelForCausalLM.from_config(config)
                for parameter in model.parameters():  # norms and biases differ from 1 and 0
                    torch.nn.init.normal_(parameter)
            made[key] = tmp_path_factory.mktemp("model")
            model.save_pretrained(made[key])
        return made[key]

    return make


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a Hugging Face folder, read by the safetensors library."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as stored:
            found |= {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    return found


def assert_same_tensors(found: Path, expected: Path) -> None:
    """Compare two Hugging Face folders to the bit."""
    left, right = tensors_in(found), tensors_in(expected)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in right)
