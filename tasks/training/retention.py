"""Retention of checkpoints: the newest and best interim ones; all published ones, some without optimizer state.

Interim checkpoints are published folders `step-<n>` whose manifests hold, as metadata, the `fingerprint` of what is
being trained and `figures`, the metrics at that step. Those of another fingerprint are removed, and folders whose
manifest cannot be read: they are no checkpoints. `rows.json` in them holds the rows of `metrics.parquet` so far.
"""

import json
import logging
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import polars as pl

from kernels_eval.errors import InputError, first_line
from tasks.agents.team import members_of
from tasks.pipeline.integrity import OPTIMIZER_FILES, damage_of
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import discard, publish, read_manifest
from tasks.pipeline.tables import METRICS_FILE

_LOGGER = logging.getLogger("kernelmill.training")
STEP_PREFIX = "step-"
ROWS_FILE = "rows.json"
WEIGHT_FILES = ("*.safetensors", "*/*.safetensors")
"""Weights of a policy, its critic and its adapter."""
_WHOLE = 2
"""Newest policies that keep everything: the last one, and the one that it was trained from. With stale rollouts their
weights stay longer: rollouts and evaluations of older ones may still go on, or begin again."""
Metric = Literal["loss", "validation_loss", "kl", "return_mean"]
_HIGHER_IS_BETTER: frozenset[Metric] = frozenset({"return_mean"})


@dataclass(frozen=True)
class Interim:
    """Folder of one training's interim checkpoints, and the newest one that is there."""

    folder: Path
    fingerprint: str
    resume: Path | None
    steps: int
    """Optimizer steps that the checkpoint to resume from has seen."""
    rows: tuple[dict[str, Any], ...]

    def after(self, steps: int) -> Path:
        """Return the folder of the checkpoint after so many steps."""
        return self.folder / f"{STEP_PREFIX}{steps:08d}"

    @contextmanager
    def save(
        self, rank: int, rows: Sequence[dict[str, Any]], steps: int, keep: int, metric: Metric | None
    ) -> Generator[Path]:
        """Publish the checkpoint that is written to the folder yielded, then remove those that are not to be kept.

        Every rank enters, because engines are saved by all ranks together; rank 0 alone writes files.
        """
        if rank != 0:
            yield self.after(steps)
            return
        with publish(self.after(steps), checkpoint_metadata(self.fingerprint, steps, rows[-1])) as partial:
            yield partial
            (partial / ROWS_FILE).write_text(json.dumps(list(rows)), encoding="utf-8")
        keep_newest_and_best(self.folder, self.fingerprint, keep, metric)


def find_interim(folder: Path, fingerprint: str) -> Interim:
    """Return the newest interim checkpoint of a training, or the beginning."""
    found, steps = find_newest(folder, fingerprint)
    rows = () if found is None else tuple(json.loads((found / ROWS_FILE).read_text(encoding="utf-8")))
    return Interim(folder, fingerprint, found, steps, rows)


def checkpoint_metadata(fingerprint: str, steps: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an interim checkpoint after so many steps, `row` being the last step's metrics."""
    return {
        "fingerprint": fingerprint,
        "steps": steps,
        "figures": {name: value for name, value in row.items() if isinstance(value, int | float)},
    }


def find_newest(folder: Path, fingerprint: str) -> tuple[Path | None, int]:
    """Return the newest undamaged interim checkpoint of this training and its steps; (None, 0) if there is none."""
    for steps, path, _ in reversed(_steps_of(folder, fingerprint)):
        damage = damage_of(path)
        if damage is None:
            return path, steps
        _LOGGER.warning("%s; training goes on from an earlier step", damage)
    return None, 0


def keep_newest_and_best(folder: Path, fingerprint: str, keep: int, metric: Metric | None) -> None:
    """Remove interim checkpoints but for the newest `keep` and the best by `metric` (of equals, the earliest)."""
    found = _steps_of(folder, fingerprint)
    kept = {path for _, path, _ in found[-keep:]}
    measured = [(figures[metric], path) for _, path, figures in found if metric is not None and metric in figures]
    place = None if metric is None else best_place([value for value, _ in measured], metric)
    if place is not None:
        kept.add(measured[place][1])
    for path in folder.glob(f"{STEP_PREFIX}*"):
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def keep_optimizers(policies: Mapping[int, CheckpointRef], interval: int) -> None:
    """Remove the optimizer state of a run's policies (by weight version) but the newest two and every `interval`-th."""
    for version in sorted(policies)[:-_WHOLE]:
        if version % interval:
            _discard(policies, version, OPTIMIZER_FILES)


def keep_weights(policies: Mapping[int, CheckpointRef], interval: int, staleness: int = 0) -> None:
    """Remove weights and optimizer state of a run's policies but those that the rule keeps.

    Kept are policy 0 (the reference of the KL term), every `interval`-th, the best, the newest two and as many more as
    `staleness` says, and the newest one that has its optimizer's state: later updates may have to be made again from it
    (tasks.update.past). A team has it if each agent that was updated has it.
    """
    best = best_policy(policies, staleness)
    whole = max((version for version, policy in policies.items() if _has_every_state(policy)), default=0)
    for version in sorted(policies)[: -_WHOLE - staleness]:
        if version % interval and version not in (best, whole):
            _discard(policies, version, (*OPTIMIZER_FILES, *WEIGHT_FILES))


def has_weights(policy: CheckpointRef) -> bool:
    """True unless weights of the policy, or of a member of the team, were removed (`update.weights_interval`)."""
    gone = [name for each in members_of(policy).values() for name in _discarded(each)]
    return not any(name.startswith("model") for name in gone)


def has_optimizer(policy: CheckpointRef) -> bool:
    """True if the optimizer's state is beside the policy, or beside each of a team."""
    return all(any(each.path.glob(OPTIMIZER_FILES[0])) for each in members_of(policy).values())


def _has_every_state(policy: CheckpointRef) -> bool:
    return all(has_optimizer(each) or each.weight_version == 0 for each in members_of(policy).values())


def _discarded(policy: CheckpointRef) -> list[str]:
    return list((read_manifest(policy.path) or {}).get("discarded", ()))


def _discard(policies: Mapping[int, CheckpointRef], version: int, patterns: Sequence[str]) -> None:
    """Remove files of a policy, or of those members of a team that are in no other one."""
    others = [policy for other, policy in policies.items() if other != version]
    shared = {each.uri for policy in others for each in members_of(policy).values()}
    for each in members_of(policies[version]).values():
        if each.uri not in shared:
            discard(each.path, patterns)


def best_policy(policies: Mapping[int, CheckpointRef], staleness: int = 0) -> int | None:
    """Return the weight version whose training batches had the highest mean return; None if no update recorded one.

    Its batch is what the policy `staleness + 1` versions later was trained on: the figure is in that one's metrics.
    """
    returns: dict[int, list[float]] = {}
    for version, policy in sorted(policies.items()):
        file, writer = policy.path / METRICS_FILE, max(version - 1 - staleness, 0)
        if version - 1 in policies and writer in policies and file.is_file():
            table = pl.read_parquet(file)
            if "return_mean" in table.columns and table.height:
                mean = float(table.get_column("return_mean").to_numpy().mean())
                returns.setdefault(writer, []).append(mean)
    place = best_place([fmean(found) for found in returns.values()], "return_mean")
    return None if place is None else list(returns)[place]


def best_place(values: Sequence[float], metric: Metric) -> int | None:
    """Return the place of the best value, the first one of equals; None if there are no values."""
    if not values:
        return None
    sign = -1 if metric in _HIGHER_IS_BETTER else 1
    return min(range(len(values)), key=lambda place: sign * values[place])


def _steps_of(folder: Path, fingerprint: str) -> list[tuple[int, Path, dict[str, float]]]:
    """Return (steps, folder, figures) of the interim checkpoints of one training, oldest first.

    Raises OSError where the disk fails: what it holds may be sound, and must not be taken for no checkpoint.
    """
    found: list[tuple[int, Path, dict[str, float]]] = []
    for path in sorted(folder.glob(f"{STEP_PREFIX}*")):
        try:
            metadata = (read_manifest(path) or {}).get("metadata", {})
            if metadata.get("fingerprint") == fingerprint:
                found.append((int(metadata["steps"]), path, dict(metadata.get("figures", {}))))
        except (InputError, PermissionError, IsADirectoryError, KeyError, ValueError, TypeError) as error:
            _LOGGER.warning("%s: no interim checkpoint, its manifest cannot be read: %s", path, first_line(error))
    return sorted(found, key=lambda entry: entry[0])
