"""`kernelmill policy convert`: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest
import torch

from flows.cli.main import run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=11,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=4,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    return tmp_path / "model"


def test_there_and_back_with_the_tokenizer(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    assert run(["policy", "convert", str(model), str(there), "--to", "mp_rank", "--tensor-parallel", "2"]) == 0
    printed = capsys.readouterr().out
    assert "huggingface → mp_rank" in printed
    assert "planned peak memory" in printed
    assert "written; peak memory" in printed
    assert (there / "latest_checkpointed_iteration.txt").read_text() == "release"
    assert run(["policy", "convert", str(there), str(back), "--dtype", "bfloat16"]) == 0
    assert (back / "tokenizer.json").read_text() == "{}"
    assert json.loads((back / "config.json").read_text())["dtype"] == "bfloat16"
    from safetensors.torch import load_file

    found, expected = (load_file(folder / "model.safetensors") for folder in (back, model))
    assert all(torch.equal(found[name], value.bfloat16()) for name, value in expected.items())


def test_the_plan_writes_nothing(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert run(["policy", "convert", str(model), "--to", "torch_dist", "--plan"]) == 0
    assert "the largest set of shards has" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{model}"], "DESTINATION: found none"),
        (["{model}", "{model}"], "exists; expected the name of a new folder"),
        (["{model}/nothing", "{model}/new"], "no such folder"),
        (["{model}", "{model}/new", "--to", "mp_rank", "--pipeline-parallel", "3"], "expected a divisor of 2, layers"),
        (["{model}", "{model}/new", "--like", "/nowhere"], "--like (model.like): /nowhere: expected a folder"),
    ],
)
def test_wrong_arguments_are_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["policy", "convert", *(argument.format(model=model) for argument in arguments)]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
