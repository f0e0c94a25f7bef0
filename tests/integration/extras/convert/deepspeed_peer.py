"""One rank of DeepSpeed engines that save checkpoints: `python deepspeed_peer.py RANK WORLD_SIZE FOLDER`.

FOLDER/variants.json: {name: {"stage", "dtype", "tied", "frozen", "pieces"}}. Writes FOLDER/<name>/ with DeepSpeed's
checkpoint after one optimizer step, and FOLDER/<name>.like/, the model's Hugging Face folder.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from transformers import Qwen3Config, Qwen3ForCausalLM

from tasks.training.deepspeed_config import import_deepspeed


def main(rank: int, world_size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(str(folder / "store"), world_size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size)}
    import_deepspeed().init_distributed(auto_mpi_discovery=False, verbose=False)
    for name, variant in json.loads((folder / "variants.json").read_text()).items():
        save(rank, folder / name, variant)
    distributed.barrier()
    # Without the interpreter's shutdown: where the other rank has gone first, gloo's threads may abort it.
    os._exit(0)


def save(rank: int, folder: Path, variant: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=37,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=6,
            tie_word_embeddings=variant["tied"],
        )
    )
    if rank == 0:
        model.save_pretrained(folder.with_suffix(".like"))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(variant["frozen"] not in name if variant["frozen"] else True)
    if variant["dtype"] == "bfloat16":
        model.to(torch.bfloat16)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # Two groups, as with and without weight decay; an odd number of weights in the first.
    groups = [{"params": trained[:3], "weight_decay": 0.1}, {"params": trained[3:], "weight_decay": 0.0}]
    zero: dict[str, Any] = {"stage": variant["stage"], "overlap_comm": False}
    if variant["pieces"]:
        zero["sub_group_size"] = 200
    engine, *_ = import_deepspeed().initialize(
        model=model,
        optimizer=torch.optim.AdamW(groups, lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": zero,
            "bf16": {"enabled": variant["dtype"] == "bfloat16"},
            "zero_allow_untested_optimizer": True,
        },
        dist_init_required=False,
    )
    tokens = torch.tensor([[1, 2, 3, 4 + rank]])
    engine.backward(engine(input_ids=tokens, labels=tokens).loss)
    engine.step()
    engine.save_checkpoint(str(folder), tag="step1")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
