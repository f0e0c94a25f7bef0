"""Checkpoints of DeepSpeed's own engines, compared with DeepSpeed's own script `zero_to_fp32`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from extras.convert.convert import ConvertOptions, prepare
from kernels_eval.errors import InputError

pytestmark = pytest.mark.long

PEER = Path(__file__).parent / "deepspeed_peer.py"
RANKS = 2


def variant(stage: int, dtype: str = "float32", *, tied: bool = False, frozen: str = "", pieces: bool = False) -> Any:
    return {"stage": stage, "dtype": dtype, "tied": tied, "frozen": frozen, "pieces": pieces}


VARIANTS = {
    "zero0": variant(0, tied=True),
    "zero1": variant(1, "bfloat16", tied=True),
    "zero2": variant(2, frozen="embed_tokens"),
    "zero3": variant(3, frozen="o_proj"),
    "zero3-pieces": variant(3, "bfloat16", tied=True, pieces=True),
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deepspeed")
    (folder / "variants.json").write_text(json.dumps(VARIANTS))
    command = [sys.executable, str(PEER)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(RANKS), str(folder)], stderr=subprocess.PIPE, text=True)
        for rank in range(RANKS)
    ]
    for rank in ranks:
        _, printed = rank.communicate(timeout=280)
        assert rank.returncode == 0, printed[-3000:]
    return folder


@pytest.mark.parametrize("name", VARIANTS)
def test_weights_are_deepspeeds(checkpoints: Path, tmp_path: Path, name: str) -> None:
    like = checkpoints / f"{name}.like"
    prepare(checkpoints / name, ConvertOptions(like=like)).write(tmp_path / "new")
    found = load_file(tmp_path / "new/model.safetensors")
    expected = reference(checkpoints / name, VARIANTS[name])
    before = load_file(like / "model.safetensors")
    assert found.keys() == expected.keys() == before.keys()
    assert all(torch.equal(found[key], value.float()) for key, value in expected.items())
    frozen = VARIANTS[name]["frozen"]
    for key, value in before.items():
        assert torch.equal(found[key], value) == (bool(frozen) and frozen in key), f"{key}: trained or not"


def reference(folder: Path, variant: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the weights by DeepSpeed's script; by the module's state without ZeRO."""
    if variant["stage"] == 0:
        found = torch.load(folder / "step1/mp_rank_00_model_states.pt", weights_only=False)["module"]
    else:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        found = get_fp32_state_dict_from_zero_checkpoint(str(folder))
    return {name: value for name, value in found.items() if not (variant["tied"] and name == "lm_head.weight")}


def test_to_megatron_and_back(checkpoints: Path, tmp_path: Path) -> None:
    like = ConvertOptions(like=checkpoints / "zero3.like")
    prepare(checkpoints / "zero3", like).write(tmp_path / "direct")
    there = ConvertOptions.model_validate({"to": "torch_dist", "like": checkpoints / "zero3.like"})
    prepare(checkpoints / "zero3", there).write(tmp_path / "megatron")
    prepare(tmp_path / "megatron", ConvertOptions()).write(tmp_path / "back")
    direct, back = (load_file(tmp_path / name / "model.safetensors") for name in ("direct", "back"))
    assert direct.keys() == back.keys()
    assert all(torch.equal(value, back[name]) for name, value in direct.items())


def test_what_is_missing_is_named(checkpoints: Path, tmp_path: Path) -> None:
    import shutil

    with pytest.raises(InputError, match=r"expected a config\.json and a tokenizer, found none"):
        prepare(checkpoints / "zero2", ConvertOptions())
    shutil.copytree(checkpoints / "zero2", tmp_path / "lost")
    next((tmp_path / "lost/step1").glob("*rank_1_*optim_states.pt")).unlink()
    with pytest.raises(InputError, match=r"found 1 files \*_optim_states\.pt, expected 2"):
        prepare(tmp_path / "lost", ConvertOptions(like=checkpoints / "zero2.like"))
