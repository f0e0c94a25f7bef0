"""Optimizer state of which ZeRO-3 keeps a part on the GPU: `offload_optimizer.ratio` under 1 in a DeepSpeed file.

DeepSpeed lets only its own Adam for CPUs begin so, which is compiled on the spot, and gives the GPU's part to a second optimizer that hears neither of a
new learning rate nor of a checkpoint: that part would go on untrained, in silence. PyTorch's AdamW steps a tensor wherever it lies: one for both parts.
"""

import contextlib
from collections.abc import Generator
from typing import Any
from unittest import mock

import torch


@contextlib.contextmanager
def allowed_for_adamw() -> Generator[None]:
    """Let DeepSpeed build a ZeRO-3 optimizer with partial offload around PyTorch's AdamW."""
    with mock.patch("deepspeed.runtime.zero.stage3.DeepSpeedCPUAdam", torch.optim.AdamW):
        yield


def use_one_optimizer(zero_optimizer: Any) -> None:
    """Have DeepSpeed's optimizer step the GPU's part with the optimizer that steps the host's."""
    if hasattr(zero_optimizer, "backup_optimizer"):
        zero_optimizer.backup_optimizer = zero_optimizer.optimizer
