"""The training engine: a policy under DeepSpeed, with AdamW, for SFT and RL alike. One instance a rank.

What is particular: gradients accumulate in float32; the loss that `backward` is given is already divided by the
normaliser of the whole optimizer step (all micro-batches, all ranks), so that DeepSpeed must only add up; on a CPU the
shared-memory communication op, which would be compiled for 40 s, is not built. `torch.distributed` is initialised by the
caller. Weights and optimizer state leave the engine as full tensors by parameter name, whatever the ZeRO
stage and the number of ranks, so that either may change between two iterations.
"""

import json
import logging
import os
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, distributed
from transformers import PreTrainedModel

from kernels_eval.errors import InputError
from kernels_eval.settings import FrozenModel
from tasks.update.batches import MicroBatch
from tasks.update.scoring import TokenScorer, score


class EngineSettings(FrozenModel):
    """What an engine is built from; two engines of equal settings are interchangeable."""

    betas: tuple[float, float]
    weight_decay: float
    gradient_clip: float
    zero_stage: Literal[0, 1, 2, 3]
    deepspeed: str | None
    """A DeepSpeed JSON file; what it does not set is generated."""
    dtype: Literal["float32", "bfloat16"] = "float32"


class PolicyEngine:
    """A policy that is being trained."""

    def __init__(self, model: PreTrainedModel, settings: EngineSettings) -> None:
        deepspeed = import_deepspeed()
        self.settings = settings
        self.model = model
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model.to(self.device)  # pyright: ignore[reportArgumentType]
        model.train()
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=0.0, betas=settings.betas, weight_decay=settings.weight_decay
        )
        self.deepspeed, *_ = deepspeed.initialize(
            model=TokenScorer(model),
            optimizer=optimizer,
            config=_deepspeed_config(settings, sum(parameter.numel() for parameter in model.parameters())),
            dist_init_required=False,
        )

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return distributed.get_world_size()

    def score(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Return (log_probs [N], entropies [N]) with gradients."""
        return score(self.deepspeed, batch)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradient of this rank's part of the loss; `last` marks the optimizer step's last micro-batch.

        Every rank calls this equally often. DeepSpeed averages over ranks; the parts are to be summed, hence the factor.
        """
        self.deepspeed.set_gradient_accumulation_boundary(last)
        self.deepspeed.backward(loss * self.world_size, scale_wrt_gas=False)

    def step(self, learning_rate: float) -> float:
        """Clip, update the weights, clear the gradients. Returns the gradient norm before clipping."""
        for group in self.deepspeed.optimizer.param_groups:
            group["lr"] = learning_rate
        norm: Any = None
        if self._clips_itself:
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.gradient_clip)
        self.deepspeed.step()
        return float(norm if norm is not None else self.deepspeed.get_global_grad_norm())

    @property
    def _clips_itself(self) -> bool:
        """ZeRO-0 in float32 wraps no optimizer, clips without saying the norm: then we do both."""
        return isinstance(self.deepspeed.optimizer, torch.optim.Optimizer)


def import_deepspeed() -> Any:
    """Import DeepSpeed for this process's device, quietly, without the op that a CPU does not need."""
    on_cpu = not torch.cuda.is_available()
    if on_cpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    import deepspeed
    from deepspeed.utils import logger

    logger.setLevel(logging.WARNING)
    if on_cpu:
        # The attribute is probed lazily, with compiler runs; setting it first skips the probe as well as the op.
        deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})["deepspeed_shm_comm"] = False
    return deepspeed


def _deepspeed_config(settings: EngineSettings, parameters: int) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if settings.deepspeed is not None:
        try:
            config = json.loads(Path(settings.deepspeed).read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(
                f"update.deepspeed: {settings.deepspeed}: expected a DeepSpeed JSON file: {error}"
            ) from error
    clips_itself = settings.zero_stage == 0 and settings.dtype == "float32"
    bucket = min(max(parameters, 1), 500_000_000)  # DeepSpeed allocates the whole bucket: 2 GB at its default
    generated: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0 if clips_itself else settings.gradient_clip,
        "zero_optimization": {
            "stage": settings.zero_stage,
            "overlap_comm": torch.cuda.is_available(),
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
        },
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1_000_000_000,
    }
    return generated | config
