"""Conversions against megatron-core itself: logits of its own random checkpoints, and of ours that it reads.

Needs megatron-core beside transformers and this package in one environment: docs/how-to/checkpoints.md.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from extras.convert.convert import ConvertOptions, prepare

pytest.importorskip("megatron.core")

PEER = Path(__file__).parent / "megatron_peer.py"
TOKENS = [[1, 2, 3, 4, 5, 6, 7, 8], [9, 8, 7, 6, 31, 30, 29, 28]]
VOCABULARY, PADDED = 37, 48
SEPARATE = {"non_homogeneous_layers": True}
SINGLE = {"singleton_local_shards": True}


@dataclass(frozen=True)
class Case:
    """A model, how megatron-core divides and stores it, and how it is divided when it is converted back."""

    family: str
    grid: dict[str, int]
    format: str = "torch_dist"
    metadata: dict[str, bool] | None = None
    tied: bool = False
    back: str = "torch_dist"
    back_grid: tuple[int, int, int] = (1, 1, 1)


def grid(tp: int, pp: int, ep: int = 1, etp: int | None = None, dp: int = 1) -> dict[str, int]:
    return {"tp": tp, "pp": pp, "ep": ep, "etp": etp or tp, "dp": dp}


CASES = {
    "llama": Case("llama", grid(2, 2), back="mp_rank", back_grid=(2, 2, 1)),
    "llama-mp_rank": Case("llama", grid(2, 2), "mp_rank", back_grid=(2, 1, 1)),
    "qwen2": Case("qwen2", grid(2, 2), metadata=SEPARATE, back_grid=(1, 2, 1)),
    "qwen2-tied-mp_rank": Case("qwen2", grid(2, 2), "mp_rank", tied=True, back="mp_rank", back_grid=(2, 2, 1)),
    "qwen3": Case("qwen3", grid(2, 2), metadata=SINGLE, back_grid=(2, 2, 1)),
    "qwen3-tied": Case("qwen3", grid(4, 1), tied=True, back="mp_rank", back_grid=(1, 4, 1)),
    "qwen3-mp_rank": Case("qwen3", grid(1, 4), "mp_rank", back="mp_rank", back_grid=(4, 1, 1)),
    "moe": Case("qwen3_moe", grid(2, 2, ep=2, etp=1), back="mp_rank", back_grid=(2, 1, 1)),
    "moe-separate": Case("qwen3_moe", grid(2, 1, ep=2, etp=2, dp=2), metadata=SINGLE, back_grid=(2, 2, 1)),
    "moe-mp_rank": Case("qwen3_moe", grid(2, 2, ep=2, etp=1), "mp_rank", back="mp_rank", back_grid=(1, 2, 2)),
    "moe-mp_rank-tensor": Case("qwen3_moe", grid(2, 2), "mp_rank", back_grid=(1, 2, 2)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_logits_are_megatrons_there_and_back(tmp_path: Path, case: Case) -> None:
    like = huggingface_model(case, tmp_path / "like")
    reference = run_peer(tmp_path, case, "write", case.format, case.grid, tmp_path / "megatron", case.metadata)

    prepare(tmp_path / "megatron", ConvertOptions(like=like)).write(tmp_path / "huggingface")
    torch.testing.assert_close(transformers_logits(tmp_path / "huggingface"), reference, atol=2e-5, rtol=1e-5)

    tensor, pipeline, expert = case.back_grid
    options = {"to": case.back, "tensor_parallel": tensor, "pipeline_parallel": pipeline, "expert_parallel": expert}
    options |= {"vocabulary_divisor": PADDED // tensor, "transformer_impl": "local"}
    prepare(tmp_path / "huggingface", ConvertOptions.model_validate(options)).write(tmp_path / "back")
    back_grid = grid(tensor, pipeline, expert, tensor, dp=expert)
    again = run_peer(tmp_path, case, "read", case.back, back_grid, tmp_path / "back/release", None)
    torch.testing.assert_close(again, reference, atol=2e-5, rtol=1e-5)


def huggingface_model(case: Case, folder: Path) -> Path:
    from transformers import AutoConfig

    extra = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
    config = AutoConfig.for_model(
        case.family,
        architectures=[type_name(case.family)],
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=8,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=case.tied,
        max_position_embeddings=64,
        **(extra if case.family == "qwen3_moe" else {}),
    )
    config.save_pretrained(folder)
    return folder


def type_name(family: str) -> str:
    from transformers import AutoConfig, AutoModelForCausalLM

    return AutoModelForCausalLM._model_mapping[type(AutoConfig.for_model(family))].__name__


def transformers_logits(folder: Path) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        return model(torch.tensor(TOKENS)).logits


def run_peer(
    folder: Path, case: Case, action: str, form: str, division: dict[str, int], checkpoint: Path, metadata: Any
) -> torch.Tensor:
    moe = case.family == "qwen3_moe"
    architecture = {
        "layers": 4,
        "hidden": 32,
        "intermediate": 48,
        "heads": 8,
        "key_value_heads": 4,
        "head_dim": 8,
        "norm_epsilon": 1e-6,
        "qkv_bias": case.family == "qwen2",
        "query_key_norm": case.family.startswith("qwen3"),
        "tied": case.tied,
        "experts": 4 if moe else 0,
        "experts_per_token": 2,
        "expert_intermediate": 16,
        "padded_vocabulary": PADDED,
        "rope_theta": 10000,
    }
    spec = {
        "architecture": architecture,
        "grid": division,
        "action": action,
        "seed": 1,
        "checkpoint": str(checkpoint),
        "format": form,
        "metadata": metadata,
        "arguments": {"num_layers": 4, "pipeline_model_parallel_size": division["pp"]},
        "tokens": TOKENS,
        "logits": str(folder / f"{action}.pt"),
    }
    file = folder / f"{action}.json"
    file.write_text(json.dumps(spec))
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", str(PEER), str(file)], capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return torch.load(spec["logits"])[..., :VOCABULARY]
