"""`model.pretrained: megatron:PATH`: converted once, found again, made anew where the checkpoint changed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extras.convert.convert import ConvertOptions, prepare
from flows.capacity.memory import shape_of
from flows.checks.preflight import check_pretrained
from flows.run.run import with_converted_model
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError
from tasks.models.config import ModelConfig
from tests.unit.extras.convert.conftest import MakeModel, assert_same_tensors


@pytest.fixture
def megatron(make_model: MakeModel, family_tokenizer: Callable[[str], Any], tmp_path: Path) -> Path:
    model = tmp_path / "model"
    shutil.copytree(make_model("qwen3"), model)
    family_tokenizer("qwen3").save_pretrained(model)
    prepare(model, ConvertOptions.model_validate({"to": "torch_dist"})).write(tmp_path / "megatron")
    return tmp_path / "megatron"


def configured(tmp_path: Path, checkpoint: Path, like: Path | None = None) -> RunConfig:
    model = ModelConfig(pretrained=f"megatron:{checkpoint}", like=None if like is None else str(like))
    return RunConfig(model=model, runs_dir=str(tmp_path / "runs"))


def test_converted_once_and_anew_where_the_weights_changed(
    make_model: MakeModel, megatron: Path, tmp_path: Path
) -> None:
    config = configured(tmp_path, megatron)
    check_pretrained(config)
    ready = with_converted_model(config).model
    folder = Path(str(ready.pretrained))
    assert_same_tensors(folder, make_model("qwen3"))
    assert (folder / "tokenizer.json").read_bytes() == (tmp_path / "model/tokenizer.json").read_bytes()
    made = (folder / "manifest.json").stat().st_mtime_ns
    assert with_converted_model(config).model == ready
    assert (folder / "manifest.json").stat().st_mtime_ns == made
    other = tmp_path / "other"
    prepare(make_model("qwen3", seed=1), ConvertOptions.model_validate({"to": "torch_dist"})).write(other)
    shutil.copytree(megatron / "hf", other / "hf", dirs_exist_ok=True)
    shutil.rmtree(megatron)
    other.rename(megatron)
    changed = Path(str(with_converted_model(config).model.pretrained))
    assert changed != folder
    assert_same_tensors(changed, make_model("qwen3", seed=1))


def test_other_models_are_left_alone(tmp_path: Path) -> None:
    for config in (RunConfig(), RunConfig(model=ModelConfig(pretrained="Qwen/Qwen3-8B"))):
        assert with_converted_model(config) is config
        assert config.model.megatron is None


def test_the_plan_knows_the_sizes(megatron: Path, tmp_path: Path) -> None:
    assert shape_of(configured(tmp_path, megatron).model).layers == 4


def test_what_is_missing_is_named(megatron: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.pretrained: no such folder: /nowhere"):
        check_pretrained(configured(tmp_path, Path("/nowhere")))
    for file in (megatron / "hf").glob("tokenizer*"):
        file.unlink()
    with pytest.raises(InputError, match=r"expected a tokenizer beside it, found none.*model\.like"):
        check_pretrained(configured(tmp_path, megatron))
    check_pretrained(configured(tmp_path, megatron, like=tmp_path / "model"))
