"""Decoding step written out for architectures that are the same plain decoder (Llama, Qwen2, Qwen3), on a CPU.

On a CPU a small model's step is mostly overhead and memory traffic: a module call for every norm and projection,
weights packed again at every step, keys repeated for grouped heads and for the sequences of a group. Here projections
with the same input are one product with weights packed once (`torch.ops.mkldnn`, as Inductor packs them), and attention
reads a prompt once for its whole group (`kv_cache.AttentionCache`). The result equals the library's forward up to
rounding. The packed weights are copies; models above `LARGEST_BYTES` gain nothing, and use the library's forward.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.rollout.engines.local.kv_cache import AttentionCache, Prefilled

LARGEST_BYTES = 1 << 30
_PACKED_FROM = 1 << 16
"""Numbers in a weight from which packing pays: a product with packed weights costs 10 µs more to call."""
_CLASSES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_ROPES = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding whose angles depend on the position alone, not on how long the sequence is."""

Product = Callable[[Tensor], Tensor]
"""Inputs (B, inner) → outputs (B, outer)."""


def is_plain(model: Any) -> bool:
    """True if `PlainDecoder` computes this model: on a CPU, in float32, small, of a known class without additions."""
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


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's products: norm weights are folded into the following product, the queries' scale into theirs."""

    queries_keys_values: Product
    head_norms: Tensor | None
    """(query heads + key heads, size)"""
    output: Product
    gate_up: Product
    down: Product


class PlainDecoder:
    """Weights of a plain decoder at the time of construction (implements `decoding.Decoder`)."""

    def __init__(self, model: Any) -> None:
        config, inner = model.config, model.model
        self.query_heads = int(config.num_attention_heads)
        self.key_heads = int(config.num_key_value_heads)
        self.size = int(inner.layers[0].self_attn.head_dim)
        self.hidden_floor, self.head_floor = (
            torch.tensor(math.sqrt(size * config.rms_norm_eps)) for size in (config.hidden_size, self.size)
        )
        self.embedding: Tensor = inner.embed_tokens.weight.detach()
        self.layers = [self._layer(layer) for layer in inner.layers]
        self.head = _product(model.lm_head, norm=inner.norm)
        positions = torch.arange(int(config.max_position_embeddings)).unsqueeze(0)
        with torch.inference_mode():
            cosine, sine = inner.rotary_emb(self.embedding[:1].unsqueeze(0), positions)
        half = self.size // 2
        self.cosine: Tensor = cosine[0]
        """(positions, size)"""
        self.sine: Tensor = torch.cat((-sine[0, :, :half], sine[0, :, half:]), dim=-1)
        """(positions, size), for the halves exchanged"""

    def __call__(self, prefilled: Prefilled, prompts: Tensor, steps: int) -> "_PlainBatch":
        """Begin a batch."""
        return _PlainBatch(self, prefilled, prompts, steps)

    def _layer(self, layer: Any) -> _Layer:
        query, key, value, output, gate, up, down = _projections(layer)
        attention = layer.self_attn
        scale, head_norms = float(attention.scaling), None
        if hasattr(attention, "q_norm"):
            queries = (_norm_weight(attention.q_norm) * scale).expand(self.query_heads, -1)
            head_norms = torch.cat([queries, _norm_weight(attention.k_norm).expand(self.key_heads, -1)])
        return _Layer(
            queries_keys_values=_product(
                query, key, value, norm=layer.input_layernorm, first=1.0 if head_norms is not None else scale
            ),
            head_norms=head_norms,
            output=_product(output),
            gate_up=_product(gate, up, norm=layer.post_attention_layernorm),
            down=_product(down),
        )


class _PlainBatch:
    def __init__(self, decoder: PlainDecoder, prefilled: Prefilled, prompts: Tensor, steps: int) -> None:
        self._decoder = decoder
        self._cache = AttentionCache(prefilled, prompts, steps)
        self._positions = prefilled.valid.sum(dim=1)[prompts]

    def step(self, tokens: Tensor) -> Tensor:
        """See `Batch`."""
        decoder = self._decoder
        floor, head_floor = decoder.hidden_floor, decoder.head_floor
        queries, rotated = decoder.query_heads, decoder.query_heads + decoder.key_heads
        cosine, sine = decoder.cosine[self._positions].unsqueeze(1), decoder.sine[self._positions].unsqueeze(1)
        self._positions = self._positions + 1
        self._cache.advance()
        hidden = decoder.embedding[tokens]
        for number, layer in enumerate(decoder.layers):
            heads = layer.queries_keys_values(_normalised(hidden, floor)).view(len(tokens), -1, decoder.size)
            states = heads[:, :rotated]
            if layer.head_norms is not None:
                states = _normalised(states, head_floor) * layer.head_norms
            first, second = states.chunk(2, dim=-1)
            states = torch.addcmul(states * cosine, torch.cat((second, first), dim=-1), sine)
            seen = self._cache.attend(number, states[:, :queries], states[:, queries:], heads[:, rotated:])
            hidden = hidden + layer.output(seen)
            gate, up = layer.gate_up(_normalised(hidden, floor)).chunk(2, dim=-1)
            hidden = hidden + layer.down(functional.silu(gate) * up)
        return decoder.head(_normalised(hidden, floor))

    def keep(self, rows: Tensor) -> None:
        """See `Batch`."""
        self._positions = self._positions[rows]
        self._cache.keep(rows)


def _normalised(states: Tensor, floor: Tensor) -> Tensor:
    """Return states (…, N) as RMSNorm makes them, but for its weight and √N: x / √(|x|² + floor²), floor = √(N·ε)."""
    return states / torch.hypot(torch.linalg.vector_norm(states, dim=-1, keepdim=True), floor)


def _norm_weight(norm: Any) -> Tensor:
    """Return the factor that `_normalised` leaves out."""
    return norm.weight.detach() * math.sqrt(norm.weight.shape[-1])


def _projections(layer: Any) -> tuple[Any, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    projected = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
    return (*projected, mlp.gate_proj, mlp.up_proj, mlp.down_proj)


def _product(*modules: nn.Linear, norm: Any = None, first: float = 1.0) -> Product:
    """Return one product for projections of the same input, with the norm's weight; `first` scales the first one."""
    weights = [module.weight.detach() for module in modules]
    given: list[Any] = [module.bias for module in modules]
    bias = None
    if any(each is not None for each in given):
        biases = [
            weight.new_zeros(len(weight)) if each is None else each.detach()
            for weight, each in zip(weights, given, strict=True)
        ]
        bias = torch.cat([first * biases[0], *biases[1:]])
    weight = torch.cat([first * weights[0], *weights[1:]])
    if norm is not None:
        weight = weight * _norm_weight(norm)
    if weight.numel() < _PACKED_FROM or not torch.backends.mkldnn.is_available():
        return lambda inputs: functional.linear(inputs, weight, bias)
    operators: Any = torch.ops.mkldnn
    product = operators._linear_pointwise.default
    with torch.inference_mode():
        packed = operators._reorder_linear_weight(weight)
    return lambda inputs: product(inputs, packed, bias, "none", [], "")
