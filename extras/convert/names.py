"""Names of weights in Megatron checkpoints, and the weight and part of it that each stands for."""

import re
from dataclasses import dataclass
from typing import Literal

from extras.convert.weights import Part

_PREFIX = re.compile(r"^(?:(?:module|model\d*)\.)+")
_LAYER = re.compile(r"^decoder\.layers\.(?:(\d+)\.)?(.+)$")
_DISTRIBUTED_EXPERT = re.compile(r"^mlp\.experts\.experts\.(?:(\d+)\.)?(linear_fc[12]\.weight)$")
_LOCAL_EXPERT = re.compile(r"^mlp\.experts\.local_experts\.(\d+)\.(linear_fc[12]\.weight)$")
_GROUPED_EXPERT = re.compile(r"^mlp\.experts\.(linear_fc[12]\.weight)(\d+)$")
_HALF = re.compile(r"^(.*linear_fc1\.weight)_([wv])$")

ALIASES: dict[str, Part] = {
    "input_layernorm.weight": Part.INPUT_NORM,
    "pre_mlp_layernorm.weight": Part.MLP_NORM,
}
"""Names of layers without Transformer Engine, and of layers with experts."""
PACKED_EXPERTS: dict[str, Part] = {
    "mlp.experts.weight1": Part.EXPERT_GATE_UP,
    "mlp.experts.weight2": Part.EXPERT_DOWN,
}
"""Names of the older grouped experts: all of a rank's in one transposed matrix."""
_EXPERT_PARTS = {"linear_fc1.weight": Part.EXPERT_GATE_UP, "linear_fc2.weight": Part.EXPERT_DOWN}
_BESIDE = re.compile(
    r"(_extra_state(/.*)?$)|(^(chained_\d+\.)?optimizer\b)|^(rng_state|rerun_state_machine_state)|(rotary_pos_emb\.inv_freq$)"
)

Half = Literal["w", "v"]


@dataclass(frozen=True, slots=True)
class StoredName:
    """Meaning of a stored name. `layer` or `expert` None: the stored tensor has all of them along its first axes."""

    part: Part
    layer: int | None = None
    expert: int | None = None
    half: Half | None = None
    """Of a gated feed-forward layer: `w`, the gate's rows, or `v`, those of up; None: both."""


def is_beside(name: str) -> bool:
    """True for stored names that are no weights: optimizer, random states, states of Transformer Engine."""
    return _BESIDE.search(_PREFIX.sub("", name)) is not None


def parse_name(name: str) -> StoredName | None:
    """Return the meaning of a stored name; None if it is of no supported model."""
    name = _PREFIX.sub("", name)
    half: Half | None = None
    if found := _HALF.match(name):
        name, half = found[1], "w" if found[2] == "w" else "v"
    found = _LAYER.match(name)
    if not found:
        return StoredName(Part(name)) if name in _OUTER else None
    layer = None if found[1] is None else int(found[1])
    return _layer_name(layer, found[2], half)


_OUTER = {Part.EMBEDDING.value, Part.FINAL_NORM.value, Part.OUTPUT.value}


def _layer_name(layer: int | None, rest: str, half: Half | None) -> StoredName | None:
    if found := _DISTRIBUTED_EXPERT.match(rest):
        return StoredName(_EXPERT_PARTS[found[2]], layer, None if found[1] is None else int(found[1]), half)
    if found := _LOCAL_EXPERT.match(rest):
        return StoredName(_EXPERT_PARTS[found[2]], layer, int(found[1]), half)
    if found := _GROUPED_EXPERT.match(rest):
        return StoredName(_EXPERT_PARTS[found[1]], layer, int(found[2]), half)
    if rest in PACKED_EXPERTS:
        return StoredName(PACKED_EXPERTS[rest], layer)
    part = ALIASES.get(rest) or next((part for part in Part if part.value == rest), None)
    return None if part is None or rest in _OUTER else StoredName(part, layer, half=half)


def shard_name(part: Part, layer: int | None, expert: int | None, *, transformer_engine: bool, moe: bool) -> str:
    """Return the name of a weight in the model of one rank; `layer` and `expert` are those of the rank."""
    if layer is None:
        return part.value
    return f"decoder.layers.{layer}." + module_name(part, expert, transformer_engine=transformer_engine, moe=moe)


def module_name(part: Part, expert: int | None, *, transformer_engine: bool, moe: bool) -> str:
    """Return the name of a weight in the modules of one layer."""
    if part.is_expert:
        return f"mlp.experts.local_experts.{expert}." + part.value.removeprefix("mlp.experts.experts.")
    if part is Part.MLP_NORM and (moe or not transformer_engine):
        return "pre_mlp_layernorm.weight"
    if part is Part.INPUT_NORM and not transformer_engine:
        return "input_layernorm.weight"
    return part.value
