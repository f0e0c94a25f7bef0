"""Round trips between Hugging Face and both Megatron formats, at any division, to the bit."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from extras.convert.convert import ConvertOptions, prepare
from kernels_eval.errors import InputError
from tests.unit.extras.convert.conftest import FAMILIES, MakeModel, assert_same_tensors, tensors_in

MANY = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def convert(source: Path, destination: Path, **options: object) -> Path:
    prepare(source, ConvertOptions.model_validate(options)).write(destination)
    return destination


@MANY
@given(
    family=st.sampled_from(FAMILIES),
    tied=st.booleans(),
    to=st.sampled_from(["torch_dist", "mp_rank"]),
    tensor=st.sampled_from([1, 2, 4]),
    pipeline=st.sampled_from([1, 2, 4]),
    expert=st.sampled_from([1, 2, 4]),
    divisor=st.integers(1, 16),
    implementation=st.sampled_from(["transformer_engine", "local"]),
    then=st.sampled_from(["torch_dist", "mp_rank"]),
)
def test_there_and_back_to_the_bit(
    make_model: MakeModel,
    tmp_path_factory: pytest.TempPathFactory,
    family: str,
    tied: bool,
    to: str,
    tensor: int,
    pipeline: int,
    expert: int,
    divisor: int,
    implementation: str,
    then: str,
) -> None:
    model, folder = make_model(family, tied=tied), tmp_path_factory.mktemp("there")
    expert = expert if family == "qwen3_moe" else 1
    division = {"tensor_parallel": tensor, "pipeline_parallel": pipeline, "expert_parallel": expert}
    options = {**division, "vocabulary_divisor": divisor, "transformer_impl": implementation}
    there = convert(model, folder / "there", to=to, **options)
    assert_same_tensors(convert(there, folder / "back"), model)
    # Another division and format, made of the first: no way through Hugging Face.
    resharded = convert(there, folder / "resharded", to=then, tensor_parallel=2, pipeline_parallel=2)
    assert_same_tensors(convert(resharded, folder / "again"), model)


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_loads_the_result(make_model: MakeModel, tmp_path: Path, family: str) -> None:
    model = make_model(family)
    there = convert(model, tmp_path / "there", to="mp_rank", tensor_parallel=2)
    back = convert(there, tmp_path / "back", dtype="bfloat16")
    loaded, report = AutoModelForCausalLM.from_pretrained(back, output_loading_info=True)
    assert loaded.dtype is torch.bfloat16
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    expected = AutoModelForCausalLM.from_pretrained(model).to(torch.bfloat16).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("to", ["torch_dist", "mp_rank"])
def test_a_configuration_is_made_of_the_arguments(make_model: MakeModel, tmp_path: Path, family: str, to: str) -> None:
    """Of a checkpoint that has neither config.json nor tokenizer beside it."""
    model = make_model(family, rope_parameters={"rope_type": "default", "rope_theta": 5e5}, rms_norm_eps=3e-6)
    there = convert(model, tmp_path / "there", to=to)
    back = convert(there / "release", tmp_path / "back")
    assert_same_tensors(back, model)
    tokens = torch.tensor([[1, 5, 2, 9]])
    with torch.no_grad():
        found, expected = (AutoModelForCausalLM.from_pretrained(folder)(tokens).logits for folder in (back, model))
    assert torch.equal(found, expected)


def test_padding_is_zero_and_cut_off(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model("qwen3")
    there = convert(model, tmp_path / "there", to="mp_rank", tensor_parallel=2, vocabulary_divisor=8)
    shards = [
        torch.load(there / f"release/mp_rank_{rank:02d}/model_optim_rng.pt", weights_only=False)["model"]
        for rank in (0, 1)
    ]
    embedding = torch.cat([shard["embedding.word_embeddings.weight"] for shard in shards])
    assert embedding.shape == (48, 16)
    assert torch.equal(embedding[:37], tensors_in(model)["model.embed_tokens.weight"])
    assert not embedding[37:].any()


def test_a_tied_model_has_its_embedding_in_the_last_stage_too(make_model: MakeModel, tmp_path: Path) -> None:
    there = convert(make_model("qwen3", tied=True), tmp_path / "there", to="mp_rank", pipeline_parallel=2)
    first, last = (
        torch.load(there / f"release/mp_rank_00_{stage:03d}/model_optim_rng.pt", weights_only=False)["model"]
        for stage in (0, 1)
    )
    assert torch.equal(first["embedding.word_embeddings.weight"], last["output_layer.weight"])


def test_the_plan_covers_what_is_read_and_written(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model("llama", num_hidden_layers=8)
    plan = prepare(model, ConvertOptions.model_validate({"to": "torch_dist"})).memory
    stored = sum(value.nbytes for value in tensors_in(model).values())
    assert plan.weights >= stored, "with padding"
    assert plan.shard_set >= stored
    # A layer as it is read, fused and written, not the model.
    layer = sum(value.nbytes for name, value in tensors_in(model).items() if ".layers.0." in name)
    embedding = 128 * 16 * 4
    assert max(layer, embedding) < plan.working < 5 * max(layer, embedding)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gemma3"}, "model_type: found gemma3, expected one of llama"),
        ({"attention_bias": True}, "attention_bias: found True, expected False"),
        ({"num_hidden_layers": 5}, "args.num_layers: found 4, but config.json says 5"),
        ({"vocab_size": 400}, r"found the shape \(128, 16\), expected \(400, 16\)"),
    ],
)
def test_a_configuration_that_does_not_fit_is_named(
    make_model: MakeModel, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    there = convert(make_model("llama"), tmp_path / "there", to="torch_dist")
    config = json.loads((there / "hf/config.json").read_text())
    (there / "hf/config.json").write_text(json.dumps(config | change))
    with pytest.raises(InputError, match=message):
        convert(there, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel": 3}, "--tensor-parallel: found 3, expected a divisor of 4, key-value heads"),
        ({"pipeline_parallel": 3}, "--pipeline-parallel: found 3, expected a divisor of 4, layers"),
        ({"expert_parallel": 2}, "--expert-parallel: found 2, expected 1: the model has no experts"),
    ],
)
def test_a_division_that_does_not_fit_is_named(
    make_model: MakeModel, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        convert(make_model("llama"), tmp_path / "there", to="mp_rank", **options)
    assert not list(tmp_path.iterdir())


def test_missing_tensors_and_folders_are_named(make_model: MakeModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a checkpoint: config\.json with"):
        prepare(tmp_path, ConvertOptions())
    with pytest.raises(InputError, match="no such folder"):
        prepare(tmp_path / "nothing", ConvertOptions())
    tied = make_model("qwen3", tied=True)
    untied = tmp_path / "untied"
    untied.mkdir()
    (untied / "model.safetensors").write_bytes((tied / "model.safetensors").read_bytes())
    config = json.loads((tied / "config.json").read_text())
    (untied / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(InputError, match=r"expected a tensor lm_head\.weight, found none"):
        convert(untied, tmp_path / "there", to="torch_dist")
