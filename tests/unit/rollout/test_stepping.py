"""The written-out decoding step computes what the library's forward computes, for every architecture that it takes."""

import copy
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tasks.rollout.engines.cache import new_cache, select_rows
from tasks.rollout.engines.decoding import _prefill  # pyright: ignore[reportPrivateUsage]
from tasks.rollout.engines.stepping import WrittenOut, is_plain_decoder, library_step, step_of

SHAPE: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
MODELS: dict[str, Any] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "llama with scaled positions": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=LLAMA3_ROPE)),
    "llama with biases": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True)),
    "qwen3, a head for each": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE | {"num_key_value_heads": 6}, head_dim=8)),
}


def made(name: str) -> Any:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms' weights and biases too: they are 1 and 0 in a new model, which would hide a mistake.
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + (1.0 if "norm" in name and parameter.ndim == 1 else 0))
    return model


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", list(MODELS))
@torch.inference_mode()
def test_it_computes_what_the_library_computes(name: str, padded: bool) -> None:
    model = made(name)
    written, library = step_of(model), library_step(model)
    assert isinstance(written, WrittenOut)
    lengths = [5, 9, 30, 12] if padded else [9, 9, 9, 9]
    generator = torch.Generator().manual_seed(1)
    prompts = [tuple(torch.randint(0, 97, (length,), generator=generator).tolist()) for length in lengths]
    cache = new_cache(3)
    _, valid = _prefill(model, prompts, cache)
    other = copy.deepcopy(cache)
    rows, positions = torch.arange(4), torch.tensor(lengths)
    # Past the room of the cache (64 positions), and with a row dropped on the way.
    for step in range(70):
        if step == 20:
            rows = torch.tensor([0, 2, 3])
            valid, positions = valid[rows], positions[rows]
            select_rows(cache, rows)
            select_rows(other, rows)
        token = torch.randint(0, 97, (len(rows),), generator=generator)
        valid = torch.cat([valid, valid.new_ones((len(rows), 1))], dim=1)
        found = written(token, positions, valid if padded else None, cache)
        expected = library(token, positions, valid, other)
        torch.testing.assert_close(found.log_softmax(-1), expected.log_softmax(-1), atol=2e-5, rtol=0)
        positions = positions + 1


def test_what_is_not_of_this_shape_goes_through_the_library() -> None:
    assert is_plain_decoder(made("qwen3"))
    others = [
        MistralForCausalLM(MistralConfig(**SHAPE)),
        LlamaForCausalLM(LlamaConfig(**SHAPE, hidden_act="gelu")),
        LlamaForCausalLM(LlamaConfig(**SHAPE)).to(torch.bfloat16),
        LlamaForCausalLM(
            LlamaConfig(**SHAPE, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
        ),
    ]
    adapted: Any = made("qwen3")
    adapted.model.layers[1].mlp.up_proj = torch.nn.Sequential(adapted.model.layers[1].mlp.up_proj)
    for model in (*others, adapted):
        assert not isinstance(step_of(model.eval()), WrittenOut)
