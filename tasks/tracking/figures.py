"""What is logged of a checkpoint and of an evaluation."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from tasks.pipeline.references import CheckpointRef, EvaluationRef
from tasks.tracking.wandb_run import Tracker


def log_metrics(tracker: Tracker, checkpoint: CheckpointRef, prefix: str, first_step: int = 0) -> int:
    """Log every row of the checkpoint's `metrics.parquet` as `<prefix>/<column>`; return the next free step."""
    path = checkpoint.path / "metrics.parquet"
    metrics = pl.read_parquet(path)
    numeric = [name for name, kind in metrics.schema.items() if kind.is_numeric()]
    for row_number, row in enumerate(metrics.select(numeric).iter_rows(named=True)):
        tracker.log(first_step + row_number, {f"{prefix}/{name}": value for name, value in row.items()})
    return first_step + metrics.height


def log_evaluation(tracker: Tracker, evaluation: EvaluationRef, step: int) -> None:
    """Log the figures of a held-out evaluation as `heldout/<figure>`, with the ends of their intervals."""
    content = json.loads((evaluation.path / "evaluation.json").read_text(encoding="utf-8"))
    tracker.log(step, _flat(content["overall"]))


def _flat(figures: Mapping[str, Any]) -> dict[str, float | None]:
    flat: dict[str, float | None] = {}
    for name, value in figures.items():
        if isinstance(value, list):
            flat[f"heldout/{name}_low"], flat[f"heldout/{name}_high"] = value
        else:
            flat[f"heldout/{name}"] = value
    return flat
