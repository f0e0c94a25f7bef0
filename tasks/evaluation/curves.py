"""What happened during a run, from what it published: figures of each iteration's batch, and training metrics."""

from typing import Any

import polars as pl

from tasks.evaluation.inputs import IterationEntry
from tasks.evaluation.per_problem import faulty_trajectories, with_outcomes
from tasks.pipeline.references import ArtifactRef
from tasks.pipeline.store import read_manifest
from tasks.trajectories.reader import read_turns


def iteration_figures(entry: IterationEntry) -> dict[str, Any]:
    """Return the figures of one iteration's training batch and of the update on it.

    Trajectory figures leave out those in which the judge or the machine failed. `statuses` are shares of last turns.
    `curriculum` is what training was limited to (turns, level), `refill` what was drawn for groups that teach something
    (tasks.rollout.refill.RefillRecord); None where there was none of it.
    """
    turns = read_turns(entry.trajectories).drop("prompt_token_ids", "response_logprobs")
    counted = turns.filter(~pl.col("trajectory_id").is_in(faulty_trajectories(turns).implode()))
    outcomes = with_outcomes(counted, [1.0])
    last = outcomes.sort("turn_index").group_by("trajectory_id", maintain_order=True).last()
    first = outcomes.filter(pl.col("turn_index") == 0)
    statuses = last.get_column("status").value_counts().sort("status") if last.height else pl.DataFrame()
    metadata = (read_manifest(entry.trajectories.path) or {}).get("metadata", {})
    return {
        "iteration": entry.iteration,
        "trajectories": entry.trajectories.trajectories,
        "turns": entry.trajectories.turns,
        "quarantined": entry.quarantined,
        "curriculum": metadata.get("curriculum"),
        "refill": metadata.get("refill"),
        "mean_reward": _mean(last.get_column("reward")),
        "mean_return": _mean(first.get_column("return")),
        "correct": _mean(last.get_column("correct").cast(pl.Float64)),
        "fast_1": _mean(last.get_column("fast_1").cast(pl.Float64)),
        "response_tokens": _mean(outcomes.get_column("response_token_ids").list.len().cast(pl.Float64)),
        "statuses": {str(status): count / last.height for status, count in statuses.iter_rows()},
        **{name: _mean_of(entry.checkpoint, name) for name in ("loss", "kl", "entropy", "gradient_norm")},
    }


def training_metrics(artifact: ArtifactRef) -> pl.DataFrame:
    """Return a checkpoint's `metrics.parquet`; an empty frame where it has none (a policy that came from elsewhere)."""
    path = artifact.path / "metrics.parquet"
    return pl.read_parquet(path) if path.exists() else pl.DataFrame()


def _mean_of(checkpoint: ArtifactRef, name: str) -> float | None:
    metrics = training_metrics(checkpoint)
    return _mean(metrics.get_column(name).cast(pl.Float64)) if name in metrics.columns else None


def _mean(values: pl.Series) -> float | None:
    mean = values.fill_nan(None).mean()
    return float(mean) if isinstance(mean, float) else None
