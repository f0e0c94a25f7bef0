"""The written-out decoding step computes what the library's forward computes, for every architecture that it takes."""

from functools import partial
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

from tasks.rollout.engines.local import plain_decoder
from tasks.rollout.engines.local.decoding import LibraryBatch, decoder_of, prefill
from tasks.rollout.engines.local.plain_decoder import PlainDecoder, is_plain

SHAPE: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
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


PROMPTS: dict[str, tuple[list[int], list[int]]] = {
    "a sequence each": ([9, 9, 9, 9], [0, 1, 2, 3]),
    "a sequence each, padded": ([5, 9, 30, 12], [0, 1, 2, 3]),
    "groups": ([9, 9], [0, 0, 0, 1, 1, 1]),
    "groups, padded": ([5, 30, 12], [0, 0, 1, 1, 2, 2]),
    "groups of different sizes, not side by side": ([5, 30, 12], [0, 1, 0, 2, 1, 0, 1]),
    "few are shared": ([5, 30, 12, 7], [0, 1, 2, 2, 2, 3]),
    "one group": ([40], [0, 0, 0, 0]),
}
"""Lengths of prompts, and which of them each sequence answers."""


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, "groups of different sizes, not side by side") for name in MODELS]
    + [("qwen3", shape) for shape in PROMPTS],
)
@torch.inference_mode()
def test_it_computes_what_the_library_computes(name: str, shape: str) -> None:
    model = made(name)
    decoder = decoder_of(model)
    assert isinstance(decoder, PlainDecoder)
    lengths, asked = PROMPTS[shape][0], torch.tensor(PROMPTS[shape][1])
    generator = torch.Generator().manual_seed(1)
    prompts = [tuple(torch.randint(0, 97, (length,), generator=generator).tolist()) for length in lengths]
    written = decoder(prefill(model, prompts), asked, steps=40)
    library = LibraryBatch(model, prefill(model, prompts), asked, steps=40)
    # Longer than the room that a sequence has at first; sequences, and whole groups, leave on the way.
    left = len(asked)
    for step in range(40):
        if step in (10, 12, 30) and left > 1:
            rows = torch.arange(left)[torch.randperm(left, generator=generator)[: max(left - 2, 1)].sort().values]
            left = len(rows)
            written.keep(rows)
            library.keep(rows)
        tokens = torch.randint(0, 97, (left,), generator=generator)
        found, expected = written.step(tokens), library.step(tokens)
        torch.testing.assert_close(found.log_softmax(-1), expected.log_softmax(-1), atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ["llama with biases", "qwen3"])
def test_packed_weights_compute_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    model = made(name)
    plain = decoder_of(model)
    monkeypatch.setattr(plain_decoder, "_PACKED_FROM", 0)
    packed = decoder_of(model)
    with torch.inference_mode():
        logits = [
            decoder(prefill(model, [(1, 2, 3)]), torch.tensor([0, 0]), steps=1).step(torch.tensor([4, 5]))
            for decoder in (packed, plain)
        ]
    torch.testing.assert_close(*logits, atol=2e-5, rtol=0)


def test_what_is_not_of_this_shape_goes_through_the_library() -> None:
    assert is_plain(made("qwen3"))
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
        decoder = decoder_of(model.eval())
        assert isinstance(decoder, partial)
        assert decoder.func is LibraryBatch
