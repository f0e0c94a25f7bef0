"""Megatron's arguments and config.json say the same of a model, and a model of another kind is refused by name."""

from argparse import Namespace
from typing import Any

import pytest

from extras.convert.architecture import architecture_in
from extras.convert.arguments import arguments_for, check_agreement, check_arguments, config_from
from kernels_eval.errors import InputError

SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000, "tie_word_embeddings": False,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "dtype": "bfloat16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
CONFIGS = {
    "llama": SIZES,
    "qwen2": SIZES | {"tie_word_embeddings": True},
    "qwen3": SIZES | {"num_key_value_heads": 8},
    "qwen3_moe": SIZES | EXPERTS,
}


def arguments_of(family: str) -> tuple[dict[str, Any], Namespace]:
    config = {"model_type": family, **CONFIGS[family]}
    return config, arguments_for(config, architecture_in(config, "config.json"), 1024, 128, {"world_size": 1})


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_arguments_give_back_the_configuration(family: str) -> None:
    config, arguments = arguments_of(family)
    check_arguments(arguments, "here")
    check_agreement(arguments, architecture_in(config, "config.json"), "here")
    found = config_from(arguments, 1000, "here")
    assert {name: found.get(name) for name in config} == config
    assert (arguments.padded_vocab_size, arguments.world_size) == (1024, 1)


@pytest.mark.parametrize(
    ("name", "value"), [("normalization", "LayerNorm"), ("swiglu", False), ("multi_latent_attention", True)]
)
def test_other_models_are_refused_by_the_argument(name: str, value: Any) -> None:
    _, arguments = arguments_of("llama")
    setattr(arguments, name, value)
    with pytest.raises(InputError, match=rf"here: args\.{name}: found {value}"):
        check_arguments(arguments, "here")


def test_a_size_that_differs_from_the_configuration_is_named() -> None:
    config, arguments = arguments_of("qwen3")
    arguments.num_layers = 4
    with pytest.raises(InputError, match=r"args\.num_layers: found 4, but config\.json says 3"):
        check_agreement(arguments, architecture_in(config, "config.json"), "here")


def test_a_missing_argument_and_an_unknown_mixture_are_named() -> None:
    _, arguments = arguments_of("llama")
    del arguments.num_layers
    with pytest.raises(InputError, match=r"args\.num_layers: found none"):
        config_from(arguments, 1000, "here")
    _, arguments = arguments_of("qwen2")
    arguments.qk_layernorm = True
    with pytest.raises(InputError, match="qk_layernorm True, add_qkv_bias True and 0 experts"):
        config_from(arguments, 1000, "here")
