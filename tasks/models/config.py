"""Settings of the policy's model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from kernels_eval.frozen import FileContent, FrozenModel

MEGATRON = "megatron:"
"""Prefix of a Megatron checkpoint's path in `model.pretrained`."""
COMPANIONS = "hf"
"""Folder that a converted Megatron checkpoint has for config.json and the tokenizer."""


class ModelConfig(FrozenModel):
    """A Qwen3-architecture model from scratch, or a pretrained Hugging Face causal language model."""

    pretrained: Annotated[str | None, FileContent] = None
    """Hugging Face folder or hub name to start from, or `megatron:PATH`, a Megatron checkpoint, which is converted
    once (extras.convert.pretrained); none: a new model of the shape below, with a tokenizer trained on the corpus."""
    like: Annotated[str | None, FileContent] = None
    """Hugging Face folder with the config.json and tokenizer of a `megatron:` checkpoint; none: those in its folder
    `hf`."""
    template: (
        Literal["chatml", "qwen", "qwen2.5", "qwen3", "llama", "llama3", "llama3.1", "kernelllm", "generic"] | None
    ) = None
    """Family that the chat template must be of (tasks.models.chat_templates); `generic`: any whose answers can be found
    (tasks.models.generic_template); none: a known one, else generic."""
    vocabulary: int = Field(default=2048, ge=300, le=2**24)
    """Tokens of the trained byte-level BPE."""
    layers: int = Field(default=2, ge=1, le=1024)
    hidden: int = Field(default=128, ge=8, le=65536)
    intermediate: int = Field(default=384, ge=8, le=1_048_576)
    heads: int = Field(default=4, ge=1, le=1024)
    key_value_heads: int = Field(default=2, ge=1, le=1024)
    head_dim: int = Field(default=32, ge=4, le=1024, multiple_of=2)
    """Even: rotary positions turn pairs of channels."""
    rope_theta: float = Field(default=1e4, gt=0)
    max_positions: int = Field(default=2048, ge=64)
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights. bfloat16 is refused on CPUs without its instructions: it is 200 times slower there."""

    @property
    def megatron(self) -> Path | None:
        """Folder of the Megatron checkpoint in `pretrained`; None if that is something else."""
        name = self.pretrained or ""
        return Path(name.removeprefix(MEGATRON)) if name.startswith(MEGATRON) else None


def expert_count(stored: Mapping[str, Any]) -> int:
    """Return the number of experts of a layer in the fields of a `config.json`; 0: its layers are dense."""
    # Published files say num_experts, transformers 5 writes num_local_experts, DeepSeek's n_routed_experts.
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return next((int(stored[name]) for name in names if stored.get(name)), 0)
