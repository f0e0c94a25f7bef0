"""One decoding step: the next logits of a batch, from its last tokens and its cache.

On a CPU, a small model's step is mostly overhead: a module call for every norm and projection, keys repeated for grouped heads. So the
step is written out here for the architectures that are the same plain decoder (Llama, Qwen2, Qwen3), with projections that share an
input made one product. What it computes is what the library's forward computes, up to rounding (tests/unit/rollout/test_stepping.py); a
model that is not exactly of this shape goes through the library's.

The joint projections are copies: models above `LARGEST_BYTES` are not written out, their products outweigh the overhead anyway.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

LARGEST_BYTES = 1 << 30
_CLASSES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_ROPES = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding whose angles depend on the position alone, not on how long the sequence is."""

Step = Callable[[Tensor, Tensor, Tensor | None, Cache], Tensor]
"""(last tokens (B,), their positions (B,), cache positions that may be looked at (B, K) or None for all, cache) → logits (B, V)."""


def step_of(model: PreTrainedModel) -> Step:
    """Return the model's decoding step."""
    return WrittenOut(model) if is_plain_decoder(model) else library_step(model)


def library_step(model: PreTrainedModel) -> Step:
    """Return the step through the library's forward."""

    def step(token: Tensor, positions: Tensor, visible: Tensor | None, cache: Cache) -> Tensor:
        return model(
            input_ids=token.unsqueeze(1),
            position_ids=positions.unsqueeze(1),
            attention_mask=None if visible is None else visible[:, None, None],
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]

    return step


def is_plain_decoder(model: Any) -> bool:
    """True where a model is one of those that `WrittenOut` computes: on a CPU, in float32, small, with nothing added."""
    config = model.config
    if type(model).__name__ not in _CLASSES or model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    linear = [module for layer in model.model.layers for module in _projections(layer)]
    return (
        config.hidden_act == "silu"
        and rope.get("rope_type", "default") in _ROPES
        and all(type(module) is nn.Linear for module in (*linear, model.lm_head))
        and sum(parameter.nbytes for parameter in model.parameters()) <= LARGEST_BYTES
    )


def _projections(layer: Any) -> tuple[Any, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    return (
        attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Affine:
    weight: Tensor
    bias: Tensor | None

    def __call__(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class _Layer:
    before_attention: Tensor
    queries_keys_values: _Affine
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: _Affine
    before_mlp: Tensor
    gate_up: _Affine
    down: _Affine


class WrittenOut:
    """The step of a plain decoder. Weights are those at the time it is made."""

    def __init__(self, model: Any) -> None:
        config, inner = model.config, model.model
        attention = inner.layers[0].self_attn
        self._heads = int(config.num_attention_heads)
        self._groups = int(config.num_key_value_heads)
        self._size = int(attention.head_dim)
        self._scale = float(attention.scaling)
        self._epsilon = float(config.rms_norm_eps)
        self._embedding: Tensor = inner.embed_tokens.weight.detach()
        self._norm: Tensor = inner.norm.weight.detach()
        self._head = _joined(model.lm_head)
        self._layers = [_layer(layer) for layer in inner.layers]
        positions = torch.arange(int(config.max_position_embeddings)).unsqueeze(0)
        with torch.inference_mode():
            cosine, sine = inner.rotary_emb(self._embedding[:1].unsqueeze(0), positions)
        self._cosine, self._sine = cosine[0], sine[0]

    def __call__(self, token: Tensor, positions: Tensor, visible: Tensor | None, cache: Cache) -> Tensor:
        """See `Step`."""
        batch, size, epsilon = len(token), self._size, self._epsilon
        cosine, sine = self._cosine[positions].unsqueeze(1), self._sine[positions].unsqueeze(1)
        mask = None
        if visible is not None:
            mask = torch.zeros(visible.shape, dtype=self._embedding.dtype)
            mask = mask.masked_fill_(~visible, -torch.inf)[:, None, None]
        hidden = self._embedding[token]
        width = (hidden.shape[-1],)
        cut = [self._heads * size, self._groups * size, self._groups * size]
        stores: list[Any] = list(cache.layers)
        for layer, stored in zip(self._layers, stores, strict=True):
            joint = layer.queries_keys_values(functional.rms_norm(hidden, width, layer.before_attention, epsilon))
            query, key, value = (part.view(batch, -1, size) for part in joint.split(cut, dim=-1))
            if layer.query_norm is not None and layer.key_norm is not None:
                query = functional.rms_norm(query, (size,), layer.query_norm, epsilon)
                key = functional.rms_norm(key, (size,), layer.key_norm, epsilon)
            query, key = _rotated(query, cosine, sine), _rotated(key, cosine, sine)
            keys, values = stored.update(key.unsqueeze(2), value.unsqueeze(2))
            # The heads of a group are queries to the same keys: nothing is repeated.
            grouped = query.view(batch, self._groups, -1, size)
            seen = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=self._scale)
            hidden = hidden + layer.output(seen.reshape(batch, -1))
            gate, up = layer.gate_up(functional.rms_norm(hidden, width, layer.before_mlp, epsilon)).chunk(2, dim=-1)
            hidden = hidden + layer.down(functional.silu(gate) * up)
        return self._head(functional.rms_norm(hidden, width, self._norm, epsilon))


def _rotated(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate (B, heads, size) by the angles of each sequence's position, (B, 1, size) each."""
    first, second = states.chunk(2, dim=-1)
    return states * cosine + torch.cat((-second, first), dim=-1) * sine


def _layer(layer: Any) -> _Layer:
    query, key, value, output, gate, up, down = _projections(layer)
    norms = (getattr(layer.self_attn, name, None) for name in ("q_norm", "k_norm"))
    query_norm, key_norm = (None if norm is None else norm.weight.detach() for norm in norms)
    return _Layer(
        before_attention=layer.input_layernorm.weight.detach(),
        queries_keys_values=_joined(query, key, value),
        query_norm=query_norm,
        key_norm=key_norm,
        output=_joined(output),
        before_mlp=layer.post_attention_layernorm.weight.detach(),
        gate_up=_joined(gate, up),
        down=_joined(down),
    )


def _joined(*modules: nn.Linear) -> _Affine:
    """Return one product for projections of the same input."""
    if len(modules) == 1:
        (module,) = modules
        return _Affine(module.weight.detach(), None if module.bias is None else module.bias.detach())  # pyright: ignore[reportUnnecessaryComparison]
    weight = torch.cat([module.weight.detach() for module in modules])
    if all(module.bias is None for module in modules):  # pyright: ignore[reportUnnecessaryComparison]
        return _Affine(weight, None)
    return _Affine(weight, torch.cat([_bias(module) for module in modules]))


def _bias(module: Any) -> Tensor:
    return torch.zeros(module.out_features) if module.bias is None else module.bias.detach()
