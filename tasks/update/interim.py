"""Interim checkpoints of one update: what a killed update goes on from, to the same bits.

`step-<n>` in a work folder: policy (or adapter), critic, optimizer states, `prepared.safetensors` and the rows of `metrics.parquet` so far, as JSON. The
newest `keep` stay; those of other settings or data are not looked at.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import distributed

from tasks.store import publish, read_manifest
from tasks.update.critic import CRITIC_FOLDER, CriticEngine
from tasks.update.engine import PolicyEngine
from tasks.update.preparation import Prepared, save_prepared
from tasks.update.state import save_optimizer, save_weights

if TYPE_CHECKING:  # PEFT takes two seconds to import
    from tasks.update.lora import AdapterBase

STEP_PREFIX = "step-"
ROWS_FILE = "rows.json"


@dataclass(frozen=True)
class Interim:
    """Where interim checkpoints of one update go, and the newest one that is there."""

    folder: Path
    fingerprint: str
    every: int
    keep: int
    resume: Path | None = None
    steps: int = 0
    """Optimizer steps that the checkpoint to resume from has seen."""
    rows: tuple[dict[str, Any], ...] = ()

    def due(self, steps: int, total: int) -> bool:
        """True after every so many steps, but not after the last."""
        return steps % self.every == 0 and steps < total


def find_interim(folder: Path, fingerprint: str, every: int, keep: int) -> Interim:
    """Return where to go on: the newest interim checkpoint of this very update, or the beginning."""
    for found in sorted(folder.glob(f"{STEP_PREFIX}*"), reverse=True):
        manifest = read_manifest(found)
        if manifest is not None and manifest["metadata"].get("fingerprint") == fingerprint:
            rows = tuple(json.loads((found / ROWS_FILE).read_text(encoding="utf-8")))
            return Interim(folder, fingerprint, every, keep, found, int(manifest["metadata"]["steps"]), rows)
    return Interim(folder, fingerprint, every, keep)


def save_interim(
    interim: Interim,
    engine: PolicyEngine,
    critic: CriticEngine | None,
    base: "AdapterBase | None",
    prepared: Prepared,
    rows: Sequence[dict[str, Any]],
    steps: int,
) -> None:
    """Publish an interim checkpoint, then remove those beyond the newest. Every rank calls it; rank 0 writes."""
    folder = interim.folder / f"{STEP_PREFIX}{steps:08d}"
    if distributed.get_rank() != 0:
        _save_engines(engine, critic, base, folder)
        return
    with publish(folder, {"fingerprint": interim.fingerprint, "steps": steps}) as partial:
        _save_engines(engine, critic, base, partial)
        save_prepared(prepared, partial)
        (partial / ROWS_FILE).write_text(json.dumps(list(rows)), encoding="utf-8")
    for older in sorted(interim.folder.glob(f"{STEP_PREFIX}*"), reverse=True)[interim.keep :]:
        shutil.rmtree(older, ignore_errors=True)


def _save_engines(engine: PolicyEngine, critic: CriticEngine | None, base: "AdapterBase | None", folder: Path) -> None:
    save_weights(engine, None, folder, base)
    save_optimizer(engine, folder)
    if critic is not None:
        (folder / CRITIC_FOLDER).mkdir(parents=True, exist_ok=True)
        save_weights(critic, None, folder / CRITIC_FOLDER)
        save_optimizer(critic, folder / CRITIC_FOLDER)
