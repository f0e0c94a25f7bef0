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
from tasks.training.retention import STEP_PREFIX, Metric, checkpoint_metadata, find_newest, keep_newest_and_best
from tasks.update.critic import CRITIC_FOLDER, CriticEngine
from tasks.update.precompute import Prepared, save_prepared

if TYPE_CHECKING:  # PEFT takes two seconds to import
    from tasks.training.lora import AdapterBase

ROWS_FILE = "rows.json"


@dataclass(frozen=True)
class Interim:
    """Folder and retention of one update's interim checkpoints, and the newest one that is there."""

    folder: Path
    fingerprint: str
    every: int
    keep: int
    best_metric: Metric | None = None
    resume: Path | None = None
    steps: int = 0
    """Optimizer steps that the checkpoint to resume from has seen."""
    rows: tuple[dict[str, Any], ...] = ()

    def due(self, steps: int, total: int) -> bool:
        """True after every so many steps, but not after the last."""
        return steps % self.every == 0 and steps < total


def find_interim(folder: Path, fingerprint: str, every: int, keep: int, best_metric: Metric | None = None) -> Interim:
    """Return the newest interim checkpoint of this update, or the beginning."""
    found, steps = find_newest(folder, fingerprint)
    rows = () if found is None else tuple(json.loads((found / ROWS_FILE).read_text(encoding="utf-8")))
    return Interim(folder, fingerprint, every, keep, best_metric, found, steps, rows)


def save_interim(
    interim: Interim,
    engine: PolicyEngine,
    critic: CriticEngine | None,
    base: "AdapterBase | None",
    prepared: Prepared,
    rows: Sequence[dict[str, Any]],
    steps: int,
) -> None:
    """Publish an interim checkpoint, then remove those that are not to be kept. Every rank calls it; rank 0 writes."""
    folder = interim.folder / f"{STEP_PREFIX}{steps:08d}"
    if distributed.get_rank() != 0:
        save_engines(engine, critic, base, folder)
        return
    with publish(folder, checkpoint_metadata(interim.fingerprint, steps, rows[-1])) as partial:
        save_engines(engine, critic, base, partial)
        save_prepared(prepared, partial)
        (partial / ROWS_FILE).write_text(json.dumps(list(rows)), encoding="utf-8")
    keep_newest_and_best(interim.folder, interim.fingerprint, interim.keep, interim.best_metric)


def save_engines(
    engine: PolicyEngine,
    critic: CriticEngine | None,
    base: "AdapterBase | None",
    folder: Path,
    tokenizer: Any = None,
) -> None:
    """Write the policy, the critic if there is one, and their optimizer states. Every rank calls it; rank 0 writes."""
    save_weights(engine, tokenizer, folder, base)
    save_optimizer(engine, folder)
    if critic is not None:
        (folder / CRITIC_FOLDER).mkdir(parents=True, exist_ok=True)
        save_weights(critic, None, folder / CRITIC_FOLDER)
        save_optimizer(critic, folder / CRITIC_FOLDER)
