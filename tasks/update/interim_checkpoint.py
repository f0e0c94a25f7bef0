"""Interim checkpoints of one update: a killed update goes on from the newest, to the same bits.

`step-<n>` in a work folder: policy (or adapter), critic, optimizer states, `prepared.safetensors` and the rows of
`metrics.parquet` so far, as JSON. The newest `keep` and the best one stay (tasks.training.retention).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import distributed

from tasks.pipeline.store import publish
from tasks.training.checkpoint import save_optimizer, save_weights
from tasks.training.engine import PolicyEngine
from tasks.training.retention import STEP_PREFIX, checkpoint_metadata, find_newest, keep_newest_and_best
from tasks.update.config import UpdateConfig
from tasks.update.critic import CRITIC_FOLDER, CriticEngine
from tasks.update.precompute import Prepared, save_prepared

if TYPE_CHECKING:  # PEFT takes two seconds to import
    from tasks.training.lora import AdapterBase

ROWS_FILE = "rows.json"


@dataclass
class Engines:
    """Objects that a rank trains, and keeps from one update to the next."""

    policy: PolicyEngine
    critic: CriticEngine | None
    tokenizer: Any
    base: "AdapterBase | None"


@dataclass(frozen=True)
class Interim:
    """Folder of one update's interim checkpoints, and the newest one that is there."""

    folder: Path
    fingerprint: str
    resume: Path | None
    steps: int
    """Optimizer steps that the checkpoint to resume from has seen."""
    rows: tuple[dict[str, Any], ...]


def find_interim(folder: Path, fingerprint: str) -> Interim:
    """Return the newest interim checkpoint of this update, or the beginning."""
    found, steps = find_newest(folder, fingerprint)
    rows = () if found is None else tuple(json.loads((found / ROWS_FILE).read_text(encoding="utf-8")))
    return Interim(folder, fingerprint, found, steps, rows)


def save_interim(
    interim: Interim,
    engines: Engines,
    config: UpdateConfig,
    prepared: Prepared,
    rows: Sequence[dict[str, Any]],
    steps: int,
) -> None:
    """Publish an interim checkpoint, then remove those that are not to be kept. Every rank calls it; rank 0 writes."""
    folder = interim.folder / f"{STEP_PREFIX}{steps:08d}"
    if distributed.get_rank() != 0:
        save_engines(engines, folder)
        return
    with publish(folder, checkpoint_metadata(interim.fingerprint, steps, rows[-1])) as partial:
        save_engines(engines, partial)
        save_prepared(prepared, partial)
        (partial / ROWS_FILE).write_text(json.dumps(list(rows)), encoding="utf-8")
    keep_newest_and_best(interim.folder, interim.fingerprint, config.keep_checkpoints, config.best_metric)


def save_engines(engines: Engines, folder: Path, tokenizer: Any = None) -> None:
    """Write the policy, the critic if there is one, and their optimizer states. Every rank calls it; rank 0 writes."""
    save_weights(engines.policy, tokenizer, folder, engines.base)
    save_optimizer(engines.policy, folder)
    if engines.critic is not None:
        save_weights(engines.critic, None, folder / CRITIC_FOLDER)
        save_optimizer(engines.critic, folder / CRITIC_FOLDER)
