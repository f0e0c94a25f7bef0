"""Measured memory of conversions: it grows with the largest weight, not with the model, and keeps to the plan."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

GIB = 2**30


def model(folder: Path, layers: int) -> Path:
    """Write a Llama of 16 MiB a layer."""
    hidden, width, vocabulary = 512, 2048, 1024
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": vocabulary,
        "tie_word_embeddings": True,
    }
    tensors = {"model.embed_tokens.weight": torch.ones(vocabulary, hidden), "model.norm.weight": torch.ones(hidden)}
    for layer in range(layers):
        of = f"model.layers.{layer}."
        tensors |= {of + f"self_attn.{name}_proj.weight": torch.ones(hidden, hidden) for name in "qkvo"}
        tensors |= {of + f"mlp.{name}_proj.weight": torch.ones(width, hidden) for name in ("gate", "up")}
        tensors[of + "mlp.down_proj.weight"] = torch.ones(hidden, width)
        tensors |= {of + f"{name}_layernorm.weight": torch.ones(hidden) for name in ("input", "post_attention")}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def convert(source: Path, destination: Path, *options: str) -> tuple[float, float]:
    """Return planned and measured peak memory in bytes."""
    command = [sys.executable, "-m", "flows.cli.main", "policy", "convert", str(source), str(destination), *options]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True).stdout
    planned, measured = re.findall(r"peak memory ([\d.]+) GiB", printed)
    return float(planned) * GIB, float(measured) * GIB


@pytest.mark.slow
@pytest.mark.parametrize("to", ["torch_dist", "mp_rank"])
def test_memory_does_not_grow_with_the_model(tmp_path: Path, to: str) -> None:
    options = ["--tensor-parallel", "2"] if to == "mp_rank" else []
    _, small = convert(model(tmp_path / "small", 1), tmp_path / "small-there", "--to", to, *options)
    deep = model(tmp_path / "deep", 24)
    bytes_of = (deep / "model.safetensors").stat().st_size
    planned, there = convert(deep, tmp_path / "there", "--to", to, *options)
    planned_back, back = convert(tmp_path / "there", tmp_path / "back")
    assert there - small < 0.25 * bytes_of
    assert back - small < 0.25 * bytes_of
    assert there < planned
    assert back < planned_back
