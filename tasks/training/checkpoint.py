"""Checkpoint of an engine: the policy's folder, and in it `optimizer/state.safetensors`. Runs on the ranks.

The file (in its own folder: inference servers read every `*.safetensors` beside the model's) holds full float32 tensors
`exp_avg/<parameter>` and `exp_avg_sq/<parameter>`, for weights of lower precision also `master/<parameter>`, and the
number of optimizer steps as metadata, whatever the ZeRO stage and the number of ranks. All functions are collective.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from kernels_eval.errors import InputError
from tasks.models.policy import save_policy
from tasks.models.safetensors_stream import Planned, SafetensorsFile
from tasks.training.adapter_files import AdapterBase
from tasks.training.deepspeed_config import import_deepspeed
from tasks.training.engine import TrainingEngine

OPTIMIZER_FILE = "optimizer/state.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def save_weights(engine: TrainingEngine, tokenizer: Any, folder: Path, base: AdapterBase | None = None) -> None:
    """Write the model in Hugging Face format into `folder`; rank 0 writes, the others take part in gathering.

    An adapted model is written merged; with `base`, which the adapter belongs to, the adapter lies beside it.
    """
    adapted = engine.settings.lora is not None
    weights = list(engine.model.parameters()) if adapted else []
    whole = _whole_weights(engine) if engine.stage == 3 and not adapted else None
    # Under ZeRO-3 each rank holds a part of each weight; merging an adapter takes all of them at once.
    with import_deepspeed().zero.GatheredParameters(weights, enabled=engine.stage == 3 and adapted):
        if torch.distributed.get_rank() == 0:
            if engine.settings.lora is None:
                save_policy(engine.model, tokenizer, folder, whole)
            else:
                from tasks.training.lora import merged_state, save_adapter  # PEFT takes two seconds to import

                save_policy(engine.model, tokenizer, folder, merged_state(engine.model))
                if base is not None:
                    save_adapter(engine.model, engine.settings.lora, base, folder)
    torch.distributed.barrier()


def _whole_weights(engine: TrainingEngine) -> dict[str, Tensor]:
    """Return all weights and buffers in rank 0's host memory, where ZeRO-3 has parted them; nothing on other ranks.

    They are gathered one at a time: together they would take as much of each GPU as the whole model.
    """
    writes = torch.distributed.get_rank() == 0
    known: dict[int, Tensor] = {}
    state: dict[str, Tensor] = {}
    for name, value in engine.model.state_dict(keep_vars=True).items():
        if id(value) not in known:  # tied weights have several names
            with import_deepspeed().zero.GatheredParameters([value], enabled=hasattr(value, "ds_id")):
                known[id(value)] = value.detach().to("cpu", copy=True) if writes else torch.empty(0)
        state[name] = known[id(value)]
    return state if writes else {}


def save_optimizer(engine: TrainingEngine, folder: Path) -> None:
    """Write the optimizer's state into `folder`, tensor by tensor; rank 0 writes, the others help to gather."""
    _ensure_state(engine, None)
    steps = int(next(iter(_inner_optimizer(engine).state.values()))["step"])
    planned = _planned_state(engine)
    writes = torch.distributed.get_rank() == 0
    file = folder / OPTIMIZER_FILE
    with SafetensorsFile(file, planned, {"steps": str(steps)}) if writes else nullcontext() as stream:
        for name, tensor in _gathered_state(engine):
            if stream is not None:
                stream.write(name, tensor.detach().to("cpu", torch.float32))
    torch.distributed.barrier()


def restore_optimizer(engine: TrainingEngine, folder: Path) -> bool:
    """Load the optimizer state beside a policy. Returns False if there is none; raises InputError on a mismatch."""
    file = folder / OPTIMIZER_FILE
    if not file.exists():
        return False
    try:
        with safe_open(file, framework="pt") as stored:
            steps = int(stored.metadata()["steps"])
            state = {name: stored.get_tensor(name) for name in list(stored.keys())}
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file}: expected the optimizer state of a checkpoint: {error}") from error
    _ensure_state(engine, steps)
    utilities = import_deepspeed().utils
    for name, parameter in _trained(engine):
        shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
        for moment in _MOMENTS:
            value = state.get(f"{moment}/{name}")
            if value is None or tuple(value.shape) != shape:
                found = "nothing" if value is None else f"shape {tuple(value.shape)}"
                raise InputError(f"{file}: {moment}/{name}: found {found}, expected shape {shape}")
            value = value.to(engine.device)
            if _is_partitioned(parameter):
                utilities.safe_set_full_optimizer_state(parameter, value, moment)
            else:
                engine.deepspeed.optimizer.state[parameter][moment].copy_(value)
        master = state.get(f"master/{name}")
        if master is not None and _is_partitioned(parameter):
            utilities.safe_set_full_fp32_param(parameter, master.to(engine.device))
    return True


def _planned_state(engine: TrainingEngine) -> list[Planned]:
    """Return the tensors of `_gathered_state`, in its order."""
    planned: list[Planned] = []
    for name, parameter in _trained(engine):
        shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
        names = [f"{moment}/{name}" for moment in _MOMENTS]
        names += [f"master/{name}"] if _has_master(parameter) else []
        planned += [Planned(each, torch.float32, shape) for each in names]
    return planned


def _gathered_state(engine: TrainingEngine) -> Iterator[tuple[str, Tensor]]:
    """Yield each full tensor of the state on every rank, one at a time: the state of 8B weights is 92 GiB."""
    utilities = import_deepspeed().utils
    for name, parameter in _trained(engine):
        for moment in _MOMENTS:
            yield (
                f"{moment}/{name}",
                utilities.safe_get_full_optimizer_state(parameter, moment)
                if _is_partitioned(parameter)
                else engine.deepspeed.optimizer.state[parameter][moment],
            )
        if _has_master(parameter):
            yield f"master/{name}", utilities.safe_get_full_fp32_param(parameter)


def _has_master(parameter: Tensor) -> bool:
    return _is_partitioned(parameter) and parameter.dtype != torch.float32


def _trained(engine: TrainingEngine) -> list[tuple[str, Any]]:
    return [(name, parameter) for name, parameter in engine.model.named_parameters() if parameter.requires_grad]


def _is_partitioned(parameter: Tensor) -> bool:
    return hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")


def _inner_optimizer(engine: TrainingEngine) -> Any:
    wrapped = engine.deepspeed.optimizer
    return wrapped if isinstance(wrapped, torch.optim.Optimizer) else wrapped.optimizer


def _ensure_state(engine: TrainingEngine, steps: int | None) -> None:
    """Make AdamW's state, which it would make in its first step; set its number of steps if one is given."""
    wrapped, inner = engine.deepspeed.optimizer, _inner_optimizer(engine)
    # ZeRO-3 swaps its parameter groups' contents during a step; the flat partitions are what has state.
    fused = bool(inner.param_groups[0].get("fused"))
    flat = getattr(wrapped, "fp32_partitioned_groups_flat", None)
    if flat is None:
        flat = [parameter for group in inner.param_groups for parameter in group["params"]]
    for parameter in flat:
        if not inner.state[parameter]:
            inner.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device if fused else "cpu"),
                **{moment: torch.zeros_like(parameter) for moment in _MOMENTS},
            }
        if steps is not None:
            inner.state[parameter]["step"].fill_(steps)
    link = getattr(wrapped, "_lazy_init_hp_params_optimizer_state", None)
    if link is not None:  # ZeRO-1 and 2 find a parameter's share of the flat state through this link
        link()
