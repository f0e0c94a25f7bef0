"""Loss and gradients do not depend on ranks, sharing of sequences, ZeRO's stage, micro-batches, order or packing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

PROGRAM = Path(__file__).with_name("gradients_of_ranks.py")
OF_SEQUENCES = {
    "policy_loss": "gspo",
    "clip_low": 0.2,
    "clip_high": 0.28,
    "aggregation": "seq_mean_token_mean",
    "correction": {"weights": "sequence_tis", "upper": 5.0, "rejection": "geometric", "rejection_upper": 3.0},
}
"""A loss and corrections that look at whole sequences."""
VARIANTS: dict[int, dict[str, dict[str, Any]]] = {
    1: {
        "plain": {"zero_stage": 0},
        "zero-1": {"zero_stage": 1},
        "zero-2": {"zero_stage": 2},
        "zero-3": {"zero_stage": 3},
        "zero-2-offload": {"offload": {"stage": 2}},
        "zero-3-offload-partly": {"offload": {"stage": 3, "sub_group_size": 1000, "ratio": 0.5}},
        "small-micro-batches": {"tokens_per_rank": 64, "order": 1},
        "packed": {"packing": "packed", "tokens_per_rank": 64, "order": 2},
        "chunked-head": {"head": "chunked", "packing": "packed", "activation_checkpointing": True},
        "sequences: plain": OF_SEQUENCES,
        "experts: plain": {"zero_stage": 0, "experts": True},
        "imitation: plain": {"zero_stage": 0, "imitation": 0.5},
        "experts: packed": {"packing": "packed", "tokens_per_rank": 64, "order": 2, "experts": True},
    },
    2: {
        "zero-0": {"zero_stage": 0, "order": 3},
        "zero-1": {"zero_stage": 1, "tokens_per_rank": 64},
        "zero-2-packed": {"zero_stage": 2, "packing": "packed"},
        "zero-3": {"zero_stage": 3},
        "shared-zero-0": {"zero_stage": 0, "context_parallel": 2},
        "shared-zero-1": {"zero_stage": 1, "context_parallel": 2, "tokens_per_rank": 64, "order": 5},
        "shared-zero-2": {"zero_stage": 2, "context_parallel": 2, "head": "chunked", "activation_checkpointing": True},
        "shared-zero-3": {"zero_stage": 3, "context_parallel": 2, "activation_checkpointing": True},
        "sequences: shared": OF_SEQUENCES | {"context_parallel": 2},
        "experts: zero-2": {"zero_stage": 2, "experts": True},
        "imitation: zero-2": {"zero_stage": 2, "imitation": 0.5, "tokens_per_rank": 64, "order": 7},
        "imitation: shared-zero-3": {"zero_stage": 3, "context_parallel": 2, "imitation": 0.5},
        "experts: zero-3": {"zero_stage": 3, "packing": "packed", "activation_checkpointing": True, "experts": True},
        "experts: shared-zero-1": {"zero_stage": 1, "context_parallel": 2, "tokens_per_rank": 64, "experts": True},
    },
    3: {"does-not-divide": {"zero_stage": 2}},
    4: {
        "zero-0": {"zero_stage": 0},
        "zero-2": {"zero_stage": 2, "tokens_per_rank": 64, "order": 4},
        "imitation: zero-3-packed": {"zero_stage": 3, "packing": "packed", "imitation": 0.5},
        "zero-3-packed": {"zero_stage": 3, "packing": "packed"},
        "shared-zero-0": {"zero_stage": 0, "context_parallel": 4},
        "shared-by-two-zero-1": {"zero_stage": 1, "context_parallel": 2, "tokens_per_rank": 64},
        "shared-zero-2": {"zero_stage": 2, "context_parallel": 4, "tokens_per_rank": 64, "order": 6},
        "shared-zero-3": {"zero_stage": 3, "context_parallel": 4},
        "shared-by-two-zero-3": {"zero_stage": 3, "context_parallel": 2, "tokens_per_rank": 64},
        "sequences: shared": OF_SEQUENCES | {"context_parallel": 4},
    },
}
"""By the number of processes. The model has 4 attention heads and 2 key-value heads, each of which two of four
sharing ranks hold. Names with a colon are compared with those that begin alike."""

Found = tuple[dict[str, float], dict[str, torch.Tensor]]


def steps_of(world_size: int, folder: Path) -> dict[str, Found]:
    """Start the processes of a group and return what they found, by variant."""
    folder.mkdir()
    (folder / "variants.json").write_text(json.dumps(VARIANTS[world_size]))
    root = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(world_size), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        outputs = [process.communicate(timeout=600)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes), "\n".join(outputs)[-3000:]
    return {name: _read(folder / f"{name}.safetensors") for name in VARIANTS[world_size]}


def _read(file: Path) -> Found:
    with safe_open(file, framework="pt") as stored:
        figures = {name: float(value) for name, value in stored.metadata().items()}
        return figures, {name: stored.get_tensor(name) for name in list(stored.keys())}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_neither_ranks_nor_stages_nor_layout_change_the_step(tmp_path: Path) -> None:
    found = {
        f"{name} on {world_size}": step
        for world_size in VARIANTS
        for name, step in steps_of(world_size, tmp_path / str(world_size)).items()
    }
    for where, (other, others) in found.items():
        figures, gradients = found[f"{where.partition(':')[0]}: plain on 1" if ":" in where else "plain on 1"]
        assert figures["gradient_norm"] > 0.1
        assert figures["clip_fraction"] > 0.05
        for name, value in figures.items():
            assert other[name] == pytest.approx(value, abs=1e-6, rel=2e-6), f"{name}: {where}"
        assert others.keys() == gradients.keys()
        for name, gradient in gradients.items():
            apart = float((others[name] - gradient).abs().max())
            assert apart <= 1e-6 * max(1.0, float(gradient.abs().max())), f"{name}: {where}: {apart}"
