"""The training engine: a model under DeepSpeed, with AdamW, for SFT, RL and the critic alike. One instance a rank.

Gradients accumulate in float32. The loss passed to `backward` is already divided by the normaliser of the whole
optimizer step (all micro-batches, all ranks): DeepSpeed only adds up. The caller initialises `torch.distributed`.
Weights and optimizer state leave the engine as full tensors by parameter name: the ZeRO stage and the number of ranks
may change between two iterations.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from transformers import PreTrainedModel

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.training.attention import SequenceGroup, join_sequence_group, use_packed_attention
from tasks.training.batches import MicroBatch, TrainedSequence
from tasks.training.config import EngineConfig, LoraConfig, check_compiled
from tasks.training.deepspeed_config import (
    deepspeed_config,
    initialize,
)
from tasks.training.deepspeed_file import stage_of, stage_on
from tasks.training.layout import Layout, Packing
from tasks.training.scoring import HeadMode, TokenScorer, score

_PACKED_MULTIPLE = 128
"""Packed rows on a GPU are a multiple of this long: matrix products are fastest there, and shapes are few."""
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
"""Dense bfloat16 operations a second by a part of the device's name, from the makers' data sheets."""


class EngineSettings(FrozenModel):
    """Settings of one engine; two engines of equal settings are interchangeable."""

    betas: tuple[float, float]
    weight_decay: float
    gradient_clip: float
    zero_stage: Literal[0, 1, 2, 3]
    deepspeed: str | None
    """A DeepSpeed JSON file; what it does not set is generated."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    packing: Literal["auto", "packed", "padded", "shared"] = "auto"
    head: HeadMode = "auto"
    activation_checkpointing: bool = False
    compile: bool = False
    context_parallel: int = 1
    lora: LoraConfig | None = None
    """The model's adapters (tasks.training.lora), if any; the engine trains every weight that is not frozen."""


def engine_settings(config: EngineConfig, dtype: str, **of_optimizer: Any) -> EngineSettings:
    """Return the settings of one engine: the fields of `config` by their names, and those of one model's optimizer."""
    found = {name: getattr(config, name) for name in EngineSettings.model_fields if hasattr(config, name)}
    found["dtype"] = "bfloat16" if dtype == "bfloat16" else "float32"
    found["zero_stage"] = stage_on(config.ranks, config.deepspeed, config.zero_stage)
    return EngineSettings(**(found | of_optimizer))


class TrainingEngine:
    """A module around a model that is being trained. `model` is saved; `module` is called."""

    def __init__(self, model: PreTrainedModel, module: nn.Module, settings: EngineSettings) -> None:
        self.settings = settings
        self.model = model
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.group = join_sequence_group(settings.context_parallel)
        prepare_model(model, settings, self.group)
        module.to(self.device)
        model.train()
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            self.trained,
            lr=0.0,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True if self.device.type == "cuda" else None,
        )
        config = deepspeed_config(
            settings.deepspeed,
            settings.zero_stage,
            settings.gradient_clip,
            settings.dtype,
            sum(parameter.numel() for parameter in self.trained),
            self.world_size,
        )
        self.deepspeed = initialize(module, optimizer, self.trained, config)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return distributed.get_world_size()

    @property
    def stage(self) -> int:
        """The ZeRO stage in force."""
        return stage_of(self.settings.deepspeed, self.settings.zero_stage)

    def layout(self, token_budget: int) -> Layout:
        """Return the layout of this engine's micro-batches; `token_budget` is one rank's."""
        multiple = _PACKED_MULTIPLE if self.device.type == "cuda" else 1
        return Layout(token_budget * self.group.size, packing_of(self.settings), multiple * self.group.size)

    def micro_batches(self, sequences: Sequence[TrainedSequence], token_budget: int) -> list[MicroBatch]:
        """Return the micro-batches of this rank, or of its group; all ranks have equally many (SequenceGroup)."""
        return list(self.group.micro_batches(self.layout(token_budget), sequences, self.device))

    def score(self, batch: MicroBatch) -> Any:
        """Return the module's result for the trained tokens, one tensor [N] or several, with gradients."""
        return score(self.deepspeed, batch, self.group)

    def sum_over_ranks(self, sums: Tensor) -> Tensor:
        """Add up sums over the micro-batches of all ranks; ranks that share sequences have each counted all of them."""
        if self.world_size > 1:
            if self.group.rank > 0:
                sums.zero_()
            distributed.all_reduce(sums)
        return sums

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradient of this rank's part of the loss; `last` marks the optimizer step's last micro-batch.

        Every rank calls this equally often. The factor: DeepSpeed averages over ranks, the parts are to be summed.
        """
        self.deepspeed.set_gradient_accumulation_boundary(last)
        self.deepspeed.backward(loss * self.world_size, scale_wrt_gas=False)

    def step(self, learning_rate: float) -> float:
        """Clip, update the weights, clear the gradients. Returns the gradient norm before clipping.

        Raises InputError if it is not finite: the weights are unusable from here on.
        """
        for group in self.deepspeed.optimizer.param_groups:
            group["lr"] = learning_rate
        norm: Any = None
        # ZeRO-0 in float32: DeepSpeed wraps no optimizer, and clips without returning the norm.
        if isinstance(self.deepspeed.optimizer, torch.optim.Optimizer):
            norm = gradient_norm(self.trained)
            nn.utils.clip_grads_with_norm_(self.trained, self.settings.gradient_clip, norm)
        self.deepspeed.step()
        found = float(norm if norm is not None else self.deepspeed.get_global_grad_norm())
        if not math.isfinite(found) or found < 0:  # DeepSpeed returns −1 for a norm that is not finite
            raise InputError(
                "gradients are not finite: the weights that training started from are not, "
                "or the learning rate is too high"
            )
        return found


class PolicyEngine(TrainingEngine):
    """A policy that is being trained."""

    def __init__(self, model: PreTrainedModel, settings: EngineSettings) -> None:
        super().__init__(model, TokenScorer(model, settings.head), settings)

    def score(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies of the trained tokens, [N] each, with gradients."""
        return super().score(batch)


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return the norm of all gradients in float32. Summed in float64: float32 loses the fifth digit over millions."""
    squares = [
        torch.linalg.vector_norm(parameter.grad, dtype=torch.float64) ** 2
        for parameter in parameters
        if parameter.grad is not None
    ]
    return torch.stack(squares).sum().sqrt().float()


def packing_of(settings: EngineSettings) -> Packing:
    """Return the layout of micro-batches: as set; by default packed on a GPU, and if ranks share them."""
    if settings.packing != "auto":
        return settings.packing
    return "packed" if torch.cuda.is_available() or settings.context_parallel > 1 else "padded"


def prepare_model(model: PreTrainedModel, settings: EngineSettings, group: SequenceGroup) -> None:
    """Set a model's attention, checkpointing and compilation."""
    if packing_of(settings) != "padded":
        use_packed_attention(model, group)
    if settings.activation_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if settings.compile:
        check_compiled(stage_of(settings.deepspeed, settings.zero_stage), settings.context_parallel, "update.compile")
        body: Any = model.base_model
        for layer in body.layers:
            layer.compile(dynamic=True)


def step_flops(
    model: PreTrainedModel, lengths: Sequence[int], trained_tokens: int, shared_fraction: float = 0.0
) -> float:
    """Return the floating-point operations of an optimizer step over sequences of these lengths.

    Counted: two for each pass, weight of the body and token, those of causal attention, and the head on trained tokens.
    Of a layer's experts those that a token passes through; of tokens that sequences share (`shared_fraction` of all)
    none. Recomputation (checkpointing, the chunked head) is not useful work and not counted.
    """
    body: Any = model.base_model
    embedding = model.get_input_embeddings().weight  # pyright: ignore[reportOptionalMemberAccess]
    head: Any = model.get_output_embeddings()
    config: Any = model.config
    active = config.num_experts_per_tok / config.num_experts if getattr(config, "num_experts", None) else 1.0
    body_passes = sum(
        _passes(weight) * (active if ".experts." in name else 1.0)
        for name, weight in body.named_parameters()
        if weight is not embedding
    )
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    attention = 6.0 * config.num_hidden_layers * width * sum(float(length) ** 2 for length in lengths)
    body_flops = 2.0 * body_passes * sum(lengths) + attention
    return (1 - shared_fraction) * body_flops + 2.0 * _passes(head.weight) * trained_tokens


def _passes(weight: Tensor) -> float:
    """Return a weight's size times its passes: forward, backward, and one for its own gradient."""
    return (3.0 if weight.requires_grad else 2.0) * getattr(weight, "ds_numel", weight.numel())


def peak_flops(device: torch.device) -> float | None:
    """Return a GPU's peak in bfloat16; None if it is not known, as for CPUs."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAKS.items() if part in name), None)
