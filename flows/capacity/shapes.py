"""The sizes of a model: from its configuration file, from those of well-known models, or from the run's own settings."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from tasks.models.config import ModelConfig


@dataclass(frozen=True)
class Shape:
    """A decoder of the Llama and Qwen kind: grouped attention, gated feed-forward, RMS norms."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False
    """The head is the embedding."""
    query_key_norm: bool = False
    attention_bias: bool = False
    """Of queries, keys and values."""

    @property
    def parameters(self) -> int:
        """Number of weights."""
        width, shared = self.heads * self.head_dim, self.key_value_heads * self.head_dim
        attention = 2 * self.hidden * width + 2 * self.hidden * shared
        norms = 2 * self.hidden + (2 * self.head_dim if self.query_key_norm else 0)
        biases = width + 2 * shared if self.attention_bias else 0
        layer = attention + 3 * self.hidden * self.intermediate + norms + biases
        return self.layers * layer + self.hidden + self.embedding * (1 if self.tied else 2)

    @property
    def embedding(self) -> int:
        """Weights of the embedding."""
        return self.vocabulary * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer."""
        return (self.parameters - self.hidden - self.embedding * (1 if self.tied else 2)) // self.layers

    def cache_bytes(self, bytes_per_value: int = 2) -> int:
        """Bytes of keys and values that one token takes up while it is generated from."""
        return 2 * self.layers * self.key_value_heads * self.head_dim * bytes_per_value


KNOWN = {
    "Qwen/Qwen3-8B": Shape(36, 4096, 12288, 32, 8, 128, 151936, query_key_norm=True),
    "Qwen/Qwen2.5-Coder-7B-Instruct": Shape(28, 3584, 18944, 28, 4, 128, 152064, attention_bias=True),
    "facebook/KernelLLM": Shape(32, 4096, 14336, 32, 8, 128, 128256),
}
"""By hub name, from each model's published config.json."""


def shape_of(model: ModelConfig) -> Shape:
    """Return the sizes of the configured model. InputError where they can be read nowhere."""
    if model.pretrained is None:
        return Shape(
            model.layers,
            model.hidden,
            model.intermediate,
            model.heads,
            model.key_value_heads,
            model.head_dim,
            model.vocabulary,
            tied=True,
            query_key_norm=True,
        )
    file = Path(model.pretrained) / "config.json"
    if file.is_file():
        return _from_file(file)
    if model.pretrained in KNOWN:
        return KNOWN[model.pretrained]
    raise InputError(
        f"model.pretrained: the sizes of {model.pretrained} are not known: expected a folder with config.json, "
        f"or one of {', '.join(sorted(KNOWN))}"
    )


def _from_file(file: Path) -> Shape:
    try:
        stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        heads = int(stored["num_attention_heads"])
        hidden = int(stored["hidden_size"])
        kind = str(stored.get("model_type", ""))
        return Shape(
            layers=int(stored["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(stored["intermediate_size"]),
            heads=heads,
            key_value_heads=int(stored.get("num_key_value_heads") or heads),
            head_dim=int(stored.get("head_dim") or hidden // heads),
            vocabulary=int(stored["vocab_size"]),
            tied=bool(stored.get("tie_word_embeddings", False)),
            query_key_norm=kind.startswith("qwen3"),
            attention_bias=bool(stored.get("attention_bias", kind == "qwen2")),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: expected the sizes of a decoder: {type(error).__name__}: {error}") from error
