"""Figures of one published artifact: of training trajectories, of an update, of a held-out evaluation.

The summary and the live record (tasks.tracking.figures) take them from here. None stands for a figure without a value.
"""

import json
from typing import Any

import polars as pl

from tasks.evaluation.per_problem import SPEEDUP, last_turns, status_shares, with_outcomes, without_faults
from tasks.pipeline.references import ArtifactRef, EvaluationRef, TrajectoryBatchRef
from tasks.pipeline.store import read_metadata
from tasks.pipeline.tables import METRICS_FILE
from tasks.trajectories.reader import read_turns
from tasks.trajectories.schema import KEPT_TOKENS, POLICY_VERSION

UPDATE_FIGURES = (
    "loss",
    "kl",
    "entropy",
    "gradient_norm",
    "clip_fraction",
    "learning_rate",
    "mismatch_mean_abs",
    "mismatch_ess",
    "correction_weight",
    "rejected_fraction",
    "tokens_per_s",
)
"""Columns of `metrics.parquet` whose means over the optimizer steps are shown. `mismatch_*` and what follows it: the
sampler's log-probabilities beside the trainer's, and what the correction made of that (tasks.update.corrections)."""
_GROUP_COUNTS = ("groups_used", "groups_single", "groups_constant")
EVALUATION_FIGURES = ("mean_return", "mean_reward", "compiled", "correct", "fast_1", "fast_2", SPEEDUP, "mean_turns")
"""Figures of `evaluation.json` that are shown, each with its interval."""


def rollout_figures(batch: TrajectoryBatchRef) -> dict[str, Any]:
    """Return the figures of a batch of training trajectories.

    Trajectories in which the judge or the machine failed count in `faults` (their share) alone. `compiled`, `correct`,
    `fast_1`, `mean_reward`, `statuses` (shares) and `geomean_speedup` (of correct kernels) are of last turns.
    `tokens_per_s`: generated tokens a second of the rollout's last attempt; `judge_seconds`: sum over all turns. `lag`:
    iterations by which the policy that wrote it is older than the one that is updated on it; None: written by an
    earlier version.
    """
    turns = read_turns(batch).drop("prompt_token_ids")
    outcomes = with_outcomes(without_faults(turns), [1.0])
    last = last_turns(outcomes)
    first = outcomes.filter(pl.col("turn_index") == 0)
    metadata = read_metadata(batch.path)
    tokens, kept, seconds = (metadata.get(key) for key in ("generated_tokens", KEPT_TOKENS, "seconds"))
    counted = turns.get_column("trajectory_id").n_unique()
    return {
        "mean_reward": _mean(last.get_column("reward")),
        "mean_return": _mean(first.get_column("return")),
        "compiled": _mean(last.get_column("compiled")),
        "correct": _mean(last.get_column("correct")),
        "fast_1": _mean(last.get_column("fast_1")),
        SPEEDUP: _geometric_mean(last.get_column("speedup")),
        "mean_turns": outcomes.height / last.height if last.height else None,
        "response_tokens": _mean(outcomes.get_column("response_token_ids").list.len()),
        "statuses": status_shares(outcomes),
        "faults": 1 - last.height / counted if counted else None,
        "tokens_per_s": (tokens - (kept or 0)) / seconds if tokens is not None and seconds else None,
        "judge_seconds": float(turns.get_column("evaluation_s").sum()),
        "lag": lag_of(batch),
    }


def lag_of(batch: TrajectoryBatchRef) -> int | None:
    """Return the age of the policy that wrote a batch, in iterations; None if it is not recorded."""
    version = read_metadata(batch.path).get(POLICY_VERSION)
    return None if version is None else batch.iteration - int(version)


def update_figures(checkpoint: ArtifactRef) -> dict[str, float | None]:
    """Return the mean of each of UPDATE_FIGURES over the optimizer steps; those that the update has.

    `constant_groups`: share of the groups whose samples all earned the same.
    """
    metrics = training_metrics(checkpoint)
    figures = {name: _mean(metrics.get_column(name)) for name in UPDATE_FIGURES if name in metrics.columns}
    if metrics.is_empty() or not {*_GROUP_COUNTS} <= {*metrics.columns}:
        return figures
    used, single, constant = metrics.select(_GROUP_COUNTS).row(0)
    return {**figures, "constant_groups": constant / max(used + single + constant, 1)}


def evaluation_figures(evaluation: EvaluationRef) -> dict[str, Any]:
    """Return EVALUATION_FIGURES of a held-out evaluation; intervals as `correct_ci: [low, high]`."""
    stored = json.loads((evaluation.path / "evaluation.json").read_text(encoding="utf-8"))
    overall: dict[str, Any] = stored["overall"]
    names = [name for figure in EVALUATION_FIGURES for name in (figure, f"{figure}_ci")]
    return {name: overall[name] for name in names if name in overall}


def training_metrics(artifact: ArtifactRef) -> pl.DataFrame:
    """Return a checkpoint's `metrics.parquet`; an empty frame if it has none (a policy from elsewhere)."""
    path = artifact.path / METRICS_FILE
    return pl.read_parquet(path) if path.exists() else pl.DataFrame()


def _mean(values: pl.Series) -> float | None:
    mean = values.cast(pl.Float64).fill_nan(None).mean()
    return float(mean) if isinstance(mean, float) else None


def _geometric_mean(speedups: pl.Series) -> float | None:
    logarithms = _mean(speedups.cast(pl.Float64).log())
    return None if logarithms is None else float(pl.Series([logarithms]).exp()[0])
