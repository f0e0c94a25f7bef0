"""`mp_rank_*` shards as Megatron's other spellings and divisions make them, built here with loops of their own."""

from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from extras.convert.convert import ConvertOptions, prepare
from kernels_eval.errors import InputError
from tests.unit.extras.convert.conftest import MakeModel, assert_same_tensors, tensors_in

State = OrderedDict[str, Tensor]
HEADS, GROUPS, HEAD_DIM = 8, 4, 6


def fused(tensors: dict[str, Tensor], layer: int) -> Tensor:
    """Return queries, keys and values row by row, as Megatron orders them."""
    q, k, v = (tensors[f"model.layers.{layer}.self_attn.{name}_proj.weight"] for name in "qkv")
    blocks = [
        block[begin * HEAD_DIM : (begin + count) * HEAD_DIM]
        for group in range(GROUPS)
        for block, begin, count in ((q, group * HEADS // GROUPS, HEADS // GROUPS), (k, group, 1), (v, group, 1))
    ]
    return torch.cat(blocks)


def share(tensor: Tensor, axis: int, rank: int, ranks: int) -> Tensor:
    size = tensor.shape[axis] // ranks
    return tensor.narrow(axis, rank * size, size).clone()


def shard(tensors: dict[str, Tensor], layers: list[int], rank: int, ranks: int) -> State:
    """Return one rank's layers of a Llama with the names of Transformer Engine's layers."""
    state: State = OrderedDict()
    for local, layer in enumerate(layers):
        of, to = f"model.layers.{layer}.", f"decoder.layers.{local}."
        state[to + "self_attention.linear_qkv.layer_norm_weight"] = tensors[of + "input_layernorm.weight"]
        state[to + "self_attention.linear_qkv.weight"] = share(fused(tensors, layer), 0, rank, ranks)
        state[to + "self_attention.linear_proj.weight"] = share(tensors[of + "self_attn.o_proj.weight"], 1, rank, ranks)
        state[to + "mlp.linear_fc1.layer_norm_weight"] = tensors[of + "post_attention_layernorm.weight"]
        gate, up = (share(tensors[of + f"mlp.{name}_proj.weight"], 0, rank, ranks) for name in ("gate", "up"))
        state[to + "mlp.linear_fc1.weight"] = torch.cat([gate, up])
        state[to + "mlp.linear_fc2.weight"] = share(tensors[of + "mlp.down_proj.weight"], 1, rank, ranks)
        state[to + "mlp.linear_fc2._extra_state"] = torch.zeros(0)
    return state


def outer(tensors: dict[str, Tensor], state: State, rank: int, ranks: int, *, first: bool, last: bool) -> None:
    padding = torch.full((3, 16), 7.0)
    if first:
        whole = torch.cat([tensors["model.embed_tokens.weight"], padding])
        state["embedding.word_embeddings.weight"] = share(whole, 0, rank, ranks)
    if last:
        state["decoder.final_layernorm.weight"] = tensors["model.norm.weight"]
        state["output_layer.weight"] = share(torch.cat([tensors["lm_head.weight"], padding]), 0, rank, ranks)


def save(folder: Path, name: str, content: dict[str, object]) -> None:
    (folder / name).mkdir(parents=True)
    torch.save({"checkpoint_version": 3.0, "iteration": 5} | content, folder / name / "model_optim_rng.pt")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ranks=st.sampled_from([1, 2, 4]),
    pipeline=st.sampled_from([[[0, 1, 2, 3]], [[0], [1, 2, 3]], [[0, 1], [2, 3]], [[0], [1, 2], [3]]]),
)
def test_uneven_pipelines(
    make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory, ranks: int, pipeline: list[list[int]]
) -> None:
    model, folder = make_model("llama"), tmp_path_factory.mktemp("megatron")
    tensors = tensors_in(model)
    (folder / "latest_checkpointed_iteration.txt").write_text("5")
    for stage, layers in enumerate(pipeline):
        for rank in range(ranks):
            state = shard(tensors, layers, rank, ranks)
            outer(tensors, state, rank, ranks, first=stage == 0, last=stage == len(pipeline) - 1)
            name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if len(pipeline) > 1 else "")
            save(folder / "iter_0000005", name, {"model": state, "args": Namespace(num_layers=4)})
    prepare(folder, ConvertOptions(like=model)).write(folder / "back")
    assert_same_tensors(folder / "back", model)


def test_interleaved_pipelines(make_model: MakeModel, tmp_path: Path) -> None:
    """Two stages, two chunks each: the first stage has layers 0 and 2, the second 1 and 3."""
    model = make_model("llama")
    tensors = tensors_in(model)
    for stage in (0, 1):
        chunks = [shard(tensors, [stage], 0, 1), shard(tensors, [2 + stage], 0, 1)]
        outer(tensors, chunks[0], 0, 1, first=stage == 0, last=False)
        outer(tensors, chunks[1], 0, 1, first=False, last=stage == 1)
        save(tmp_path / "checkpoint", f"mp_rank_00_{stage:03d}", {"model0": chunks[0], "model1": chunks[1]})
    prepare(tmp_path / "checkpoint", ConvertOptions(like=model)).write(tmp_path / "back")
    assert_same_tensors(tmp_path / "back", model)


@pytest.mark.parametrize("spelling", ["grouped", "packed"])
def test_other_spellings_of_experts(make_model: MakeModel, tmp_path: Path, spelling: str) -> None:
    model = make_model("qwen3_moe")
    there = tmp_path / "there"
    prepare(model, ConvertOptions.model_validate({"to": "mp_rank", "expert_parallel": 2})).write(there)
    for rank in (0, 1):
        file = there / f"release/mp_rank_00_{rank:03d}/model_optim_rng.pt"
        content = torch.load(file, weights_only=False)
        content["model"] = respelled(content["model"], spelling)
        torch.save(content, file)
    prepare(there, ConvertOptions()).write(tmp_path / "back")
    assert_same_tensors(tmp_path / "back", model)


def respelled(state: State, spelling: str) -> State:
    """Return the weights with two experts a rank under the names of grouped experts."""
    found: State = OrderedDict((name, value) for name, value in state.items() if "local_experts" not in name)
    for layer in range(4):
        prefix = f"decoder.layers.{layer}.mlp.experts."
        for linear, number in (("linear_fc1", 1), ("linear_fc2", 2)):
            experts = [state[f"{prefix}local_experts.{expert}.{linear}.weight"] for expert in (0, 1)]
            if spelling == "grouped":
                found |= {f"{prefix}{linear}.weight{expert}": value for expert, value in enumerate(experts)}
            elif number == 1:  # [hidden, experts × 2 widths]: each expert's matrix transposed, flattened by rows
                found[f"{prefix}weight1"] = torch.stack([value.T for value in experts]).reshape(16, -1)
            else:
                found[f"{prefix}weight2"] = torch.stack([value.T for value in experts]).reshape(-1, 16)
    return found


def test_missing_ranks_weights_and_strangers_are_named(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model("llama")
    tensors = tensors_in(model)
    state = shard(tensors, [0, 1, 2, 3], 0, 1)
    outer(tensors, state, 0, 1, first=True, last=True)
    like = ConvertOptions(like=model)

    def checkpoint(name: str, changed: dict[str, Tensor | None]) -> Path:
        content = {key: value for key, value in {**state, **changed}.items() if value is not None}
        save(tmp_path / name, "mp_rank_00", {"model": content})
        return tmp_path / name

    without = checkpoint("without", {"decoder.layers.2.mlp.linear_fc2.weight": None})
    with pytest.raises(InputError, match=r"expected a weight decoder\.layers\.2\.mlp\.linear_fc2\.weight, found none"):
        prepare(without, like).write(tmp_path / "new")
    stranger = checkpoint("stranger", {"decoder.layers.2.mlp.shared_experts.linear_fc1.weight": torch.zeros(2)})
    with pytest.raises(InputError, match=r"shared_experts.*a weight of no architecture"):
        prepare(stranger, like)
    narrow = checkpoint("narrow", {"decoder.layers.1.self_attention.linear_qkv.weight": torch.zeros(96, 15)})
    with pytest.raises(InputError, match=r"layers\.1\..*found the shape \(96, 15\), expected \(96, 16\)"):
        prepare(narrow, like).write(tmp_path / "new")
    (tmp_path / "narrow/mp_rank_00/model_optim_rng.pt").write_bytes(b"PK\x03\x04 damaged")
    with pytest.raises(InputError, match=r"model_optim_rng\.pt: cannot be read"):
        prepare(tmp_path / "narrow", like)
    assert not (tmp_path / "new").exists()
