"""Settings of PyTorch that reach beyond a kernel: its precision, its default type, its determinism. A candidate leaves them be."""

from typing import Any

import torch


def global_state() -> dict[str, Any]:
    """Return what is set now, by name."""
    return {
        "torch.get_default_dtype": torch.get_default_dtype(),
        "torch.get_float32_matmul_precision": torch.get_float32_matmul_precision(),
        "torch.backends.cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "torch.backends.cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled(),
        "torch.is_autocast_enabled": torch.is_autocast_enabled("cuda"),
        "torch.get_num_threads": torch.get_num_threads(),
    }
