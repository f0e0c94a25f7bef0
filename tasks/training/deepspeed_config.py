"""DeepSpeed's configuration: the user's JSON file merged into a generated one; and two patches of DeepSpeed.

Partial offload (ZeRO-3, `offload_optimizer.ratio` below 1): DeepSpeed allows it only with its own Adam for CPUs,
which is compiled on the spot, and steps the GPU's part with a second optimizer that receives neither a new learning
rate nor a checkpoint: that part would stay untrained without an error. PyTorch's AdamW steps tensors on both devices.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
from torch import nn

from tasks.training.deepspeed_file import read_deepspeed_file, stage_of

_LARGEST_BUCKET = 100_000_000
_ALIGNMENT = 1024
SHARED_MEMORY_VARIABLE = "DS_BUILD_SHM_COMM"
"""DeepSpeed's variable: 1 asks for the shared-memory communication op, which is compiled on the spot (40 s)."""


def import_deepspeed() -> Any:
    """Import DeepSpeed quietly for this process's device; on a CPU without the shared-memory op unless asked for."""
    on_cpu = not torch.cuda.is_available()
    if on_cpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    import deepspeed
    from deepspeed.utils import logger

    logger.setLevel(logging.WARNING)
    if on_cpu and os.environ.get(SHARED_MEMORY_VARIABLE) != "1":
        # The attribute is probed lazily, with compiler runs; setting it first skips the probe as well as the op.
        deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})["deepspeed_shm_comm"] = False
    return deepspeed


def deepspeed_config(
    path: str | None, zero_stage: int, gradient_clip: float, dtype: str, parameters: int, ranks: int
) -> dict[str, Any]:
    """Return the whole configuration for a model of so many trained parameters on so many ranks."""
    given = {} if path is None else read_deepspeed_file(path)
    stage = stage_of(path, zero_stage)
    clips_itself = stage == 0 and dtype == "float32"
    # DeepSpeed allocates the whole bucket: 2 GB at its default. It must be a multiple of twice the ranks.
    bucket = -(-min(max(parameters, 1), _LARGEST_BUCKET) // _ALIGNMENT) * _ALIGNMENT
    overlap = torch.cuda.is_available() and ranks > 1  # doubles the bucket; nothing to overlap with on one rank
    generated: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0 if clips_itself else gradient_clip,
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": overlap,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
        },
        "bf16": {"enabled": dtype == "bfloat16"},
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1_000_000_000,
    }
    return _merged(generated, given)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def initialize(
    module: nn.Module, optimizer: torch.optim.Optimizer, trained: Sequence[nn.Parameter], config: dict[str, Any]
) -> Any:
    """Return DeepSpeed's engine, in which one optimizer steps the GPU's part and the offloaded part (see above)."""
    with mock.patch("deepspeed.runtime.zero.stage3.DeepSpeedCPUAdam", torch.optim.AdamW):  # the type that it allows
        engine, *_ = import_deepspeed().initialize(
            model=module, optimizer=optimizer, model_parameters=trained, config=config, dist_init_required=False
        )
    if hasattr(engine.optimizer, "backup_optimizer"):
        engine.optimizer.backup_optimizer = engine.optimizer.optimizer
    return engine
