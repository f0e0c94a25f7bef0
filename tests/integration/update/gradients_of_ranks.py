"""One rank of a process group: takes optimizer steps in different ways on one batch, and writes loss and gradients.

    python gradients_of_ranks.py RANK WORLD_SIZE FOLDER

FOLDER/variants.json: {name: {setting of UpdateConfig: value, "order": seed, "offload": keys of zero_optimization,
"experts": true for a mixture of experts}}.
Rank 0 writes FOLDER/<name>.safetensors, gradients by parameter with the loss and the gradient norm in the metadata.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import distributed
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from tasks.training.batches import TrainedSequence
from tasks.training.checkpoint import OPTIMIZER_FILE, save_optimizer
from tasks.training.deepspeed_config import import_deepspeed
from tasks.training.engine import PolicyEngine, engine_settings
from tasks.update.config import UpdateConfig
from tasks.update.credit_assignment import Sample
from tasks.update.precompute import Prepared
from tasks.update.step import optimizer_step

LENGTHS = ((3, 9), (3, 2), (5, 17), (5, 1), (2, 30), (4, 6), (7, 7), (3, 3), (2, 12))
VOCABULARY = 61


def main(rank: int, world_size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(str(folder / "store"), world_size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    import os

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size)}
    import_deepspeed().init_distributed(auto_mpi_discovery=False, verbose=False)
    for name, variant in json.loads((folder / "variants.json").read_text()).items():
        order = variant.pop("order", None)
        offload = variant.pop("offload", None)
        model = new_model(variant.pop("experts", False))
        if offload is not None:
            variant["deepspeed"] = offload_file(folder, **offload)
        take_step(rank, folder / name, UpdateConfig(ranks=world_size, **variant), order, model)
    distributed.destroy_process_group()


def take_step(rank: int, folder: Path, settings: UpdateConfig, order: int | None, model: PreTrainedModel) -> None:
    config = settings.model_copy(
        update={"kl_coefficient": 0.05, "entropy_coefficient": 0.01, "gradient_clip": 1e9, "betas": (0.5, 0.5)}
    )
    samples, prepared = batch()
    places = np.arange(len(samples)) if order is None else np.random.default_rng(order).permutation(len(samples))
    engine = PolicyEngine(model, engine_settings(config, "float32"))
    longest = max(sample.responded for sample in samples)
    rows = places.tolist()
    imitated = [samples[row].sequence for row in rows if row % 2] if config.imitation else []
    figures = optimizer_step(
        engine, None, config, [samples[row] for row in rows], list(range(len(rows))), _in(prepared, rows), 0.0, longest,
        imitated=imitated,
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    save_optimizer(engine, folder)
    if rank == 0:
        moments = load_file(folder / OPTIMIZER_FILE)
        gradients = {
            name.removeprefix("exp_avg/"): value / 0.5 for name, value in moments.items() if name.startswith("exp_avg/")
        }
        said = {name: repr(figures[name]) for name in ("loss", "kl", "entropy", "gradient_norm", "clip_fraction")}
        save_file(gradients, folder.with_suffix(".safetensors"), metadata=said)


def offload_file(folder: Path, ratio: float = 1.0, **zero: int) -> str:
    """Write a DeepSpeed file that keeps optimizer state in the host's memory; on a CPU, parts of both kinds lie there."""
    settings = {"zero_optimization": zero | {"offload_optimizer": {"device": "cpu", "ratio": ratio}}}
    file = folder / "offload.json"
    file.write_text(json.dumps(settings))
    return str(file)


def new_model(experts: bool) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "tie_word_embeddings": True,
        "attn_implementation": "sdpa",
    }
    of_experts: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    model = (
        Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **of_experts))
        if experts
        else Qwen3ForCausalLM(Qwen3Config(**sizes))
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    return model


def batch() -> tuple[list[Sample], Prepared]:
    random = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    samples = [
        Sample(
            sequence=TrainedSequence(
                random.integers(0, VOCABULARY, prompt + response).astype(np.int32),
                np.arange(prompt + response) >= prompt,
            ),
            sampler_log_probs=np.full(response, -4.0, dtype=np.float32),
            return_=0.0,
            score=0.0,
            group=(str(place), 0, "solver"),
            trajectory=str(place),
        )
        for place, (prompt, response) in enumerate(LENGTHS)
    ]

    def drawn() -> list[torch.Tensor]:
        return [-4 + torch.randn(sample.responded, generator=generator) for sample in samples]

    advantages = [torch.randn(1, generator=generator).expand(sample.responded) for sample in samples]
    return samples, Prepared(drawn(), advantages, drawn(), None, None, corrected=True, mismatch=None)


def _in(prepared: Prepared, rows: list[int]) -> Prepared:
    assert prepared.old_log_probs is not None
    assert prepared.reference_log_probs is not None
    return Prepared(
        [prepared.old_log_probs[row] for row in rows],
        [prepared.advantages[row] for row in rows],
        [prepared.reference_log_probs[row] for row in rows],
        None,
        None,
        corrected=True,
        mismatch=None,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
