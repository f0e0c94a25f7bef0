"""Low-rank adapters (PEFT): added, switched off for the reference, saved beside the merged policy, loaded again."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import get_peft_model_state_dict, inject_adapter_in_model, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from kernels_eval.errors import InputError
from tasks.models.disk_errors import disk_errors
from tasks.training.adapter_files import ADAPTER_FOLDER, BASE_FILE, WEIGHTS_FILE, AdapterBase
from tasks.training.config import LoraConfig

_NAME = "default"


def add_adapters(model: PreTrainedModel, config: LoraConfig, seed: int = 0) -> None:
    """Add adapters to a model in place, drawn from `seed`, and freeze all else. Their second factor starts at 0."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(_peft_config(model, config), model, _NAME)


@contextmanager
def adapters_off(model: nn.Module) -> Generator[None]:
    """Reduce the model to its base while the block runs: the adapters' part is multiplied by 0."""
    layers = adapter_layers(model)
    for layer in layers.values():
        layer.set_scale(_NAME, 0.0)
    try:
        yield
    finally:
        for layer in layers.values():
            layer.set_scale(_NAME, 1.0)


def adapter_layers(model: nn.Module) -> dict[str, Any]:
    """Return a model's adapted layers by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}


def merged_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights of the ordinary model that equals the adapted one, by the ordinary names, on the CPU."""
    layers = adapter_layers(model)
    state: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        owner, _, leaf = name.rpartition(".base_layer.")
        if ".lora_" in name:
            continue
        if not owner:
            state[name] = value.detach().cpu()
            continue
        if leaf == "weight":
            value = value + layers[owner].get_delta_weight(_NAME).to(value.dtype)
        state[f"{owner}.{leaf}"] = value.detach().cpu()
    return state


def save_adapter(model: PreTrainedModel, config: LoraConfig, base: AdapterBase, folder: Path) -> None:
    """Write `adapter/` into a checkpoint."""
    target = folder / ADAPTER_FOLDER
    target.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in get_peft_model_state_dict(model).items()}  # pyright: ignore[reportUnknownVariableType, reportAttributeAccessIssue]
    with disk_errors(target):
        save_file(state, target / WEIGHTS_FILE)
    _peft_config(model, config).save_pretrained(str(target))
    relative = base.model_copy(update={"uri": os.path.relpath(base.uri, folder.resolve())})  # runs can be moved
    (target / BASE_FILE).write_text(relative.model_dump_json(indent=1), encoding="utf-8")


def load_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Load `adapter/` of a checkpoint into a model that has adapters of the same shape, if the checkpoint has one."""
    file = folder / ADAPTER_FOLDER / WEIGHTS_FILE
    if not file.exists():
        return
    try:
        state = load_file(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file}: expected the weights of an adapter: {error}") from error
    result = set_peft_model_state_dict(model, state, _NAME)
    if result.unexpected_keys:
        raise InputError(f"{file}: weights of another adapter: {', '.join(list(result.unexpected_keys)[:3])}")


def _peft_config(model: PreTrainedModel, config: LoraConfig) -> Any:
    targets: Any = config.targets if config.targets == "all-linear" else list(config.targets)
    if targets == "all-linear":
        head = model.get_output_embeddings()
        targets = sorted(
            {
                name.rpartition(".")[2]
                for name, module in model.named_modules()
                if isinstance(module, nn.Linear | LoraLayer) and module is not head
            }
            - {"base_layer", "default"}
        )
    return PeftLoraConfig(
        r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=targets, bias="none"
    )
