"""The embedded engine before it is opened."""

from typing import Any

from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.engines import Engine
from tasks.rollout.engines.kind import EngineKind


def open_transformers(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    """Return the engine with this policy loaded."""
    from tasks.rollout.engines.local.engine import load_engine

    return load_engine(policy.path, tokenizer, config.batch_size)


ENGINE = EngineKind(open_transformers)
