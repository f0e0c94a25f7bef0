"""Settings of the training engine, shared by SFT and the policy update. Keys in a configuration: `update.*`."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from kernels_eval.errors import InputError
from kernels_eval.frozen import FileContent, FrozenModel, Operational

ATTENTION_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
"""Linear modules of a model with experts that take adapters."""
MLP_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
"""Those of the other half of a dense layer."""
SMALL_SHARE = 0.05
"""Share of a GPU's memory that engines may leave behind on a rank: small ones stay when another one starts."""


Beta = Annotated[float, Field(ge=0, lt=1)]
"""Decay of one of AdamW's moments."""


class LoraConfig(FrozenModel):
    """Low-rank adapters: the base stays as it is, and is the reference policy with the adapters off."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the linear modules that get adapters; `all-linear`: all but the head. A model with experts takes them
    on `q_proj`, `k_proj`, `v_proj` and `o_proj` alone."""


class EngineConfig(FrozenModel):
    """The ranks that train, and how each computes: memory, micro-batches, DeepSpeed."""

    tokens_per_rank: Annotated[int, Operational] = Field(default=8192, ge=64)
    """Token budget of one micro-batch. Halved once if memory does not suffice."""
    packing: Literal["auto", "packed", "padded", "shared"] = "auto"
    """Layout of a micro-batch's sequences. `auto`: packed without padding on a GPU, padded on a CPU, where packing pays
    for short sequences alone.
    `shared`: packed, and what sequences have in common at their beginning (a group's prompt) is computed once."""
    head: Literal["auto", "plain", "chunked"] = "auto"
    """`chunked`: logits for one slice of the vocabulary at a time. `auto`: chunked if they exceed 256 MiB."""
    activation_checkpointing: Annotated[bool, Operational] = False
    """Recompute activations in the backward pass: a third more time, a fraction of the memory."""
    compile: bool = False
    """Compile each decoder layer with torch.compile: about 40 s at the start, then about 1.5 times as fast on a GPU."""
    context_parallel: Annotated[int, Operational] = Field(default=1, ge=1)
    """Ranks that share each sequence (DeepSpeed Ulysses), for contexts too long for one: their number divides `ranks`
    and the model's attention heads. A micro-batch then has `tokens_per_rank` times as many tokens as there are ranks
    to share it."""
    ranks: Annotated[int, Operational] = Field(default=1, ge=1, validate_default=True)
    """Workers, each a Ray actor; data-parallel but for those that share sequences."""
    zero_stage: Annotated[Literal[0, 1, 2, 3], Operational] = 2
    """Shared by the ranks: 1: the optimizer's state; 2: gradients; 3: weights, which one rank alone keeps whole."""
    deepspeed: Annotated[str | None, FileContent] = None
    """A DeepSpeed JSON (deployments/deepspeed); missing keys are generated, its ZeRO stage replaces `zero_stage`."""
    keep_checkpoints: Annotated[int, Operational] = Field(default=2, ge=1)
    """Interim checkpoints that are kept, the newest ones; the best one is kept besides."""
    gpus_per_rank: Annotated[float, Operational] = Field(default=0, ge=0)
    threads_per_rank: Annotated[int, Operational] = Field(default=2, ge=1)
    """CPU threads of one rank (fixed: ranks that share cores slow each other down)."""

    @field_validator("context_parallel")
    @classmethod
    def _shared_in_packed_rows(cls, found: int, info: ValidationInfo) -> int:
        if found > 1 and info.data.get("packing") == "padded":
            raise ValueError("1 with update.packing = padded: ranks share packed rows only")
        if found > 1 and info.data.get("packing") == "shared":
            raise ValueError("1 with update.packing = shared: beginnings are not shared between ranks")
        if found > 1 and info.data.get("compile"):
            raise ValueError("1 with update.compile: the exchange between ranks in each layer is not compiled")
        return found

    @field_validator("ranks")
    @classmethod
    def _whole_groups(cls, found: int, info: ValidationInfo) -> int:
        size = info.data.get("context_parallel", 1)
        if found % size:
            raise ValueError(f"a multiple of update.context_parallel = {size}")
        return found


def check_compiled(zero_stage: int, context_parallel: int, setting: str) -> None:
    """Raise InputError if no rank holds whole layers of whole sequences, which `setting` would compile."""
    if zero_stage == 3:
        raise InputError(f"{setting}: found true, but ZeRO-3 gathers weights in each layer; set update.zero_stage=2")
    if context_parallel > 1:
        raise InputError(f"{setting}: found true, but an exchange between ranks in layers is not compiled; set false")


def check_heads(heads: int, key_value_heads: int, size: int) -> None:
    """Raise InputError if a model's attention heads cannot be dealt to `size` ranks.

    Key-value heads that are fewer than the ranks are held by several of them.
    """
    if heads % size:
        raise InputError(
            f"update.context_parallel: found {size}, expected a divisor of the model's {heads} attention heads"
        )
    if key_value_heads % size and size % key_value_heads:
        raise InputError(
            f"update.context_parallel: found {size}, expected a divisor or a multiple of "
            f"the model's {key_value_heads} key-value heads"
        )


def check_adapters(lora: LoraConfig | None, experts: int, field: str = "update.lora") -> None:
    """Raise InputError if adapters are asked for on the experts or the router of a model with experts (0: none).

    A layer's experts are one tensor of three axes: adapters know matrices, and could not be merged into it.
    """
    if lora is None or not experts:
        return
    wrong = [lora.targets] if isinstance(lora.targets, str) else [*{*lora.targets} - {*ATTENTION_PROJECTIONS}]
    if wrong:
        raise InputError(
            f"{field}.targets: found {', '.join(sorted(wrong))} for a model with {experts} experts, expected names "
            f"among {', '.join(ATTENTION_PROJECTIONS)}: experts and router take no adapters"
        )
