"""Names of Megatron's weights: every spelling of its layers and formats."""

import pytest

from extras.convert.names import StoredName, is_beside, parse_name, shard_name
from extras.convert.weights import Part

SPELLINGS = {
    "embedding.word_embeddings.weight": StoredName(Part.EMBEDDING),
    "module.embedding.word_embeddings.weight": StoredName(Part.EMBEDDING),
    "model0.output_layer.weight": StoredName(Part.OUTPUT),
    "decoder.final_layernorm.weight": StoredName(Part.FINAL_NORM),
    # Transformer Engine's layers keep the norm in the linear module, Megatron's own layers apart.
    "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight": StoredName(Part.INPUT_NORM, 3),
    "decoder.layers.3.input_layernorm.weight": StoredName(Part.INPUT_NORM, 3),
    "decoder.layers.3.mlp.linear_fc1.layer_norm_weight": StoredName(Part.MLP_NORM, 3),
    "decoder.layers.3.pre_mlp_layernorm.weight": StoredName(Part.MLP_NORM, 3),
    "decoder.layers.self_attention.linear_qkv.bias": StoredName(Part.QKV_BIAS),
    "decoder.layers.12.self_attention.q_layernorm.weight": StoredName(Part.QUERY_NORM, 12),
    # torch_dist: layers and experts stacked or apart, gate and up together or apart.
    "decoder.layers.mlp.linear_fc1.weight": StoredName(Part.GATE_UP),
    "decoder.layers.0.mlp.linear_fc1.weight_w": StoredName(Part.GATE_UP, 0, half="w"),
    "decoder.layers.0.mlp.linear_fc1.weight_v": StoredName(Part.GATE_UP, 0, half="v"),
    "decoder.layers.mlp.experts.experts.linear_fc2.weight": StoredName(Part.EXPERT_DOWN),
    "decoder.layers.1.mlp.experts.experts.linear_fc1.weight": StoredName(Part.EXPERT_GATE_UP, 1),
    "decoder.layers.1.mlp.experts.experts.7.linear_fc1.weight_v": StoredName(Part.EXPERT_GATE_UP, 1, 7, "v"),
    # mp_rank: experts one by one, grouped by Transformer Engine, and in one matrix.
    "decoder.layers.1.mlp.experts.local_experts.5.linear_fc2.weight": StoredName(Part.EXPERT_DOWN, 1, 5),
    "decoder.layers.1.mlp.experts.linear_fc1.weight11": StoredName(Part.EXPERT_GATE_UP, 1, 11),
    "decoder.layers.1.mlp.experts.weight2": StoredName(Part.EXPERT_DOWN, 1),
}


@pytest.mark.parametrize(("name", "meaning"), SPELLINGS.items(), ids=SPELLINGS)
def test_spellings(name: str, meaning: StoredName) -> None:
    assert parse_name(name) == meaning
    assert not is_beside(name)


@pytest.mark.parametrize(
    "name",
    [
        "decoder.layers.0.mlp.linear_fc1._extra_state",
        "decoder.layers.mlp.linear_fc1._extra_state/shard_0_4",
        "optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight",
        "chained_0.optimizer.state.fp32_param.output_layer.weight",
        "rng_state/shard_0.0_1.1",
        "rotary_pos_emb.inv_freq",
    ],
)
def test_what_is_no_weight(name: str) -> None:
    assert is_beside(name)


@pytest.mark.parametrize(
    "name",
    [
        "decoder.layers.0.cross_attention.linear_q.weight",
        "decoder.layers.0.mlp.shared_experts.linear_fc1.weight",
        "decoder.layers.0.mlp.router.expert_bias",
        "decoder.layers.0.self_attention.linear_proj.bias",
        "decoder.layers.0.embedding.word_embeddings.weight",
        "embedding.position_embeddings.weight",
        "mtp.layers.0.eh_proj.weight",
        "encoder.layers.0.mlp.linear_fc1.weight",
    ],
)
def test_weights_of_other_architectures_are_not_taken_for_something_else(name: str) -> None:
    assert parse_name(name) is None
    assert not is_beside(name)


@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.parametrize("moe", [True, False])
@pytest.mark.parametrize("part", [part for part in Part if part not in (Part.EMBEDDING, Part.OUTPUT, Part.FINAL_NORM)])
def test_names_that_are_written_are_read(part: Part, engine: bool, moe: bool) -> None:
    expert = 2 if part.is_expert else None
    name = shard_name(part, 1, expert, transformer_engine=engine, moe=moe)
    assert parse_name(name) == StoredName(part, 1, expert)
