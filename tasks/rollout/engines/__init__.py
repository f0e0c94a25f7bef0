"""Engines: token ids in; token ids, log-probabilities and the reason to stop out. One file per engine.

`base` is the interface; `open_engine` the registry.
"""

from collections.abc import Callable
from typing import Any

from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.engines.base import Engine


def _open_transformers(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    from tasks.rollout.engines.local.engine import load_engine

    return load_engine(policy.path, tokenizer, config.batch_size)


def _open_sglang(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    from tasks.rollout.engines.sglang.engine import open_sglang

    return open_sglang(policy, tokenizer, config)


ENGINES: dict[str, Callable[[CheckpointRef, Any, RolloutConfig], Engine]] = {
    "sglang": _open_sglang,
    "transformers": _open_transformers,
}


def open_engine(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    """Return the configured engine with this policy loaded. Raises InputError where there is no such engine."""
    if config.engine not in ENGINES:
        raise InputError(f"rollout.engine: found {config.engine}, expected one of {', '.join(sorted(ENGINES))}")
    import torch

    # For SGLang's canary as well, which reads the checkpoint: an actor that reserves no CPUs is given one thread by Ray.
    torch.set_num_threads(config.threads)
    return ENGINES[config.engine](policy, tokenizer, config)
