"""Weights of a decoder as Megatron divides them, in the order of the layers, and their Hugging Face counterparts.

Megatron fuses queries, keys and values into one weight, and the gate and up projections into another. Its names here
are those of the layers with Transformer Engine, which `torch_dist` checkpoints of both layer kinds have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from extras.convert.architecture import Architecture


class Part(StrEnum):
    """Kinds of weights; the value is Megatron's name, after `decoder.layers.<n>.` for those of a layer."""

    EMBEDDING = "embedding.word_embeddings.weight"
    FINAL_NORM = "decoder.final_layernorm.weight"
    OUTPUT = "output_layer.weight"
    INPUT_NORM = "self_attention.linear_qkv.layer_norm_weight"
    QKV = "self_attention.linear_qkv.weight"
    QKV_BIAS = "self_attention.linear_qkv.bias"
    PROJECTION = "self_attention.linear_proj.weight"
    QUERY_NORM = "self_attention.q_layernorm.weight"
    KEY_NORM = "self_attention.k_layernorm.weight"
    MLP_NORM = "mlp.linear_fc1.layer_norm_weight"
    GATE_UP = "mlp.linear_fc1.weight"
    DOWN = "mlp.linear_fc2.weight"
    ROUTER = "mlp.router.weight"
    EXPERT_GATE_UP = "mlp.experts.experts.linear_fc1.weight"
    EXPERT_DOWN = "mlp.experts.experts.linear_fc2.weight"

    @property
    def is_vocabulary(self) -> bool:
        """Has one row a token, with padding after the last one."""
        return self in (Part.EMBEDDING, Part.OUTPUT)

    @property
    def is_expert(self) -> bool:
        """Belongs to one expert of a layer."""
        return self in (Part.EXPERT_GATE_UP, Part.EXPERT_DOWN)

    @property
    def is_gate_up(self) -> bool:
        """Holds the gate projection's rows and then the up projection's."""
        return self in (Part.GATE_UP, Part.EXPERT_GATE_UP)

    @property
    def parallel_axis(self) -> int | None:
        """Axis that tensor parallelism divides; None: each rank holds the whole weight."""
        if self in (Part.PROJECTION, Part.DOWN, Part.EXPERT_DOWN):
            return 1
        divided = self.is_vocabulary or self.is_gate_up or self in (Part.QKV, Part.QKV_BIAS)
        return 0 if divided else None


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight of a model."""

    part: Part
    layer: int | None = None
    expert: int | None = None

    def __str__(self) -> str:
        name = self.part.value if self.layer is None else f"decoder.layers.{self.layer}.{self.part.value}"
        return name if self.expert is None else f"{name} of expert {self.expert}"


def weights_of(architecture: Architecture) -> Iterator[Weight]:
    """Yield every weight of a model, from the embedding to the output layer."""
    yield Weight(Part.EMBEDDING)
    for layer in range(architecture.layers):
        for part in _layer_parts(architecture):
            yield Weight(part, layer)
        for expert in range(architecture.experts):
            yield Weight(Part.EXPERT_GATE_UP, layer, expert)
            yield Weight(Part.EXPERT_DOWN, layer, expert)
    yield Weight(Part.FINAL_NORM)
    if not architecture.tied:
        yield Weight(Part.OUTPUT)


def _layer_parts(architecture: Architecture) -> Iterator[Part]:
    yield Part.INPUT_NORM
    yield Part.QKV
    if architecture.qkv_bias:
        yield Part.QKV_BIAS
    if architecture.query_key_norm:
        yield Part.QUERY_NORM
        yield Part.KEY_NORM
    yield Part.PROJECTION
    yield Part.MLP_NORM
    if architecture.experts:
        yield Part.ROUTER
    else:
        yield Part.GATE_UP
        yield Part.DOWN


def shape_of(weight: Weight, architecture: Architecture, vocabulary: int | None = None) -> tuple[int, ...]:
    """Return a whole weight's shape; `vocabulary`: rows of the embedding, default those of Hugging Face."""
    hidden, head = architecture.hidden, architecture.head_dim
    fused = (architecture.heads + 2 * architecture.key_value_heads) * head
    shapes: dict[Part, tuple[int, ...]] = {
        Part.EMBEDDING: (vocabulary or architecture.vocabulary, hidden),
        Part.OUTPUT: (vocabulary or architecture.vocabulary, hidden),
        Part.FINAL_NORM: (hidden,),
        Part.INPUT_NORM: (hidden,),
        Part.MLP_NORM: (hidden,),
        Part.QKV: (fused, hidden),
        Part.QKV_BIAS: (fused,),
        Part.QUERY_NORM: (head,),
        Part.KEY_NORM: (head,),
        Part.PROJECTION: (hidden, architecture.heads * head),
        Part.GATE_UP: (2 * architecture.intermediate, hidden),
        Part.DOWN: (hidden, architecture.intermediate),
        Part.ROUTER: (architecture.experts, hidden),
        Part.EXPERT_GATE_UP: (2 * architecture.expert_intermediate, hidden),
        Part.EXPERT_DOWN: (hidden, architecture.expert_intermediate),
    }
    return shapes[weight.part]


_LAYER_NAMES: dict[Part, tuple[str, ...]] = {
    Part.INPUT_NORM: ("input_layernorm.weight",),
    Part.QKV: tuple(f"self_attn.{name}_proj.weight" for name in "qkv"),
    Part.QKV_BIAS: tuple(f"self_attn.{name}_proj.bias" for name in "qkv"),
    Part.PROJECTION: ("self_attn.o_proj.weight",),
    Part.QUERY_NORM: ("self_attn.q_norm.weight",),
    Part.KEY_NORM: ("self_attn.k_norm.weight",),
    Part.MLP_NORM: ("post_attention_layernorm.weight",),
    Part.GATE_UP: ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    Part.DOWN: ("mlp.down_proj.weight",),
    Part.ROUTER: ("mlp.gate.weight",),
    Part.EXPERT_GATE_UP: ("mlp.experts.{expert}.gate_proj.weight", "mlp.experts.{expert}.up_proj.weight"),
    Part.EXPERT_DOWN: ("mlp.experts.{expert}.down_proj.weight",),
}
_NAMES: dict[Part, str] = {
    Part.EMBEDDING: "model.embed_tokens.weight",
    Part.FINAL_NORM: "model.norm.weight",
    Part.OUTPUT: "lm_head.weight",
}


def huggingface_names(weight: Weight) -> tuple[str, ...]:
    """Return the Hugging Face names of the tensors that a weight is made of, in the order of `layout.split`."""
    if weight.layer is None:
        return (_NAMES[weight.part],)
    prefix = f"model.layers.{weight.layer}."
    return tuple(prefix + name.format(expert=weight.expert) for name in _LAYER_NAMES[weight.part])
