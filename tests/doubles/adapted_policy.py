"""Policies that are adapters on another one, as updates of adapted agents leave them."""

from pathlib import Path
from typing import Any

import torch

from tasks.models.policy import load_policy, save_policy
from tasks.pipeline.references import CheckpointRef
from tasks.training.adapter_files import AdapterBase
from tasks.training.config import LoraConfig


def save_adapted(base: CheckpointRef, tokenizer: Any, folder: Path, lora: LoraConfig, seed: int) -> CheckpointRef:
    """Write a policy that is an adapter on `base`, with normally distributed second factors."""
    from tasks.training.lora import add_adapters, merged_state, save_adapter

    model = load_policy(base.path)
    add_adapters(model, lora, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    save_policy(model, tokenizer, folder, merged_state(model))
    save_adapter(model, lora, AdapterBase(uri=base.uri, digest=base.digest, lora=lora), folder)
    return CheckpointRef(uri=str(folder), digest=f"{folder.name}-{'0' * 20}")
