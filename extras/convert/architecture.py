"""Architecture of a checkpoint: the numbers that decide names, shapes and the order of its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError


class Family(StrEnum):
    """Supported architectures, by `model_type` of Hugging Face's config.json."""

    LLAMA = "llama"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"
    QWEN3_MOE = "qwen3_moe"

    @property
    def class_name(self) -> str:
        """Name of the transformers class, as `architectures` in config.json has it."""
        return {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe"}[self] + "ForCausalLM"


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of a decoder with grouped-query attention, RMS norms and gated feed-forward layers or experts."""

    family: Family
    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_dim: int
    vocabulary: int
    """Rows of the Hugging Face embedding; Megatron's has padding after them."""
    tied: bool
    """The output layer is the embedding."""
    experts: int = 0
    """0: dense feed-forward layers."""
    expert_intermediate: int = 0

    @property
    def query_key_norm(self) -> bool:
        """Queries and keys are normalised per head."""
        return self.family in (Family.QWEN3, Family.QWEN3_MOE)

    @property
    def qkv_bias(self) -> bool:
        """Queries, keys and values have biases."""
        return self.family is Family.QWEN2


def architecture_in(stored: Mapping[str, Any], where: Path | str) -> Architecture:
    """Return the architecture in the fields of a config.json; raises InputError if it cannot be converted."""
    family = stored.get("model_type")
    if family not in set(Family):
        raise InputError(f"{where}: model_type: found {family}, expected one of {', '.join(Family)}")
    _refuse_variants(where, stored)
    try:
        heads, hidden = int(stored["num_attention_heads"]), int(stored["hidden_size"])
        moe = family == Family.QWEN3_MOE
        return Architecture(
            family=Family(family),
            layers=int(stored["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(stored["intermediate_size"]),
            heads=heads,
            key_value_heads=int(stored.get("num_key_value_heads") or heads),
            head_dim=int(stored.get("head_dim") or hidden // heads),
            vocabulary=int(stored["vocab_size"]),
            tied=bool(stored.get("tie_word_embeddings", False)),
            # Published files say num_experts, transformers 5 writes num_local_experts.
            experts=int(stored.get("num_experts") or stored["num_local_experts"]) if moe else 0,
            expert_intermediate=int(stored["moe_intermediate_size"]) if moe else 0,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: expected the sizes of a decoder: {type(error).__name__}: {error}") from error


_PLAIN: dict[str, tuple[Any, ...]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "hidden_act": (None, "silu"),
    "mlp_only_layers": (None, []),
    "decoder_sparse_step": (None, 1),
}
"""Fields of config.json, and the values of the plain architectures."""


def _refuse_variants(where: Path | str, stored: Mapping[str, Any]) -> None:
    for name, plain in _PLAIN.items():
        if stored.get(name) not in plain:
            raise InputError(
                f"{where}: {name}: found {stored[name]}, expected {plain[-1]}; other values are not converted"
            )
