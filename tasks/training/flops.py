"""How many floating-point operations an optimizer step of a causal language model takes, and what share of a device that is.

Counted: two for each weight of the body and token, those of causal attention, and the head on trained tokens; thrice that with the backward pass.
Not counted: anything computed again (checkpointing, the chunked head), so that a share says what was achieved, not what was spent.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
"""Dense bfloat16 operations a second by a part of the device's name, from the makers' data sheets."""


def step_flops(model: PreTrainedModel, lengths: Sequence[int], trained_tokens: int) -> float:
    """Return the operations of forward and backward over sequences of these lengths, of which so many tokens are learnt.

    Frozen weights need no gradient of their own: they count twice, not thrice.
    """
    body: Any = model.base_model
    embedding = model.get_input_embeddings().weight  # pyright: ignore[reportOptionalMemberAccess]
    passes = 0.0
    for parameter in body.parameters():
        if parameter is not embedding:
            passes += (3 if parameter.requires_grad else 2) * getattr(parameter, "ds_numel", parameter.numel())
    head: Any = model.get_output_embeddings()
    head_size = getattr(head.weight, "ds_numel", head.weight.numel())
    head_passes = (3 if head.weight.requires_grad else 2) * head_size
    config: Any = model.config
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    attention = 6.0 * config.num_hidden_layers * width * sum(float(length) ** 2 for length in lengths)
    return 2.0 * (passes * sum(lengths) + head_passes * trained_tokens) + attention


def peak_flops(device: torch.device) -> float | None:
    """Return a GPU's peak in bfloat16; None where it is not known, as for CPUs."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAKS.items() if part in name), None)
