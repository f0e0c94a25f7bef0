"""What a published artifact holds, as a small table for a person: rows of plain values, ready for Prefect's UI.

Nothing here decides anything: it reads what a stage has published, and returns at most a few dozen rows.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from tasks.pipeline.references import (
    ArtifactRef,
    CheckpointRef,
    EvaluationRef,
    ProblemSetRef,
    SftDataRef,
    TrajectoryBatchRef,
)

Row = dict[str, Any]

_MAX_STEPS = 24
_METRICS = (
    "step",
    "loss",
    "validation_loss",
    "kl",
    "entropy",
    "clip_fraction",
    "gradient_norm",
    "return_mean",
    "learning_rate",
    "tokens",
    "tokens_per_s",
)
_POLICIES = {"before": "before RL", "after": "after RL", "control": "control"}


def table_of(reference: ArtifactRef) -> tuple[str, list[Row]]:
    """Return a title and the rows that say most about an artifact."""
    title, rows = _TABLES[type(reference)]
    return title, rows(reference)


def comparison_rows(heldout: Mapping[str, Any]) -> list[Row]:
    """Return one row a figure of `heldout` in summary.json: each policy, and differences (paired by problem) with their intervals."""
    over = heldout.get("over_control")
    figures = [name for name in heldout["before"] if f"{name}_ci" in heldout["before"]]
    return [
        {
            "figure": name,
            **{title: _with_interval(heldout[key], name) for key, title in _POLICIES.items() if key in heldout},
            "change by RL": _with_interval(heldout, f"delta_{name}", signed=True),
            **({"after RL against control": _with_interval(over, f"delta_{name}", signed=True)} if over else {}),
        }
        for name in figures
    ]


def problem_rows(problems: ProblemSetRef) -> list[Row]:
    """Return how many problems of each split each level has."""
    table = pl.read_parquet(problems.path / "problems.parquet", columns=["level", "split", "composition"])
    return [
        {
            "level": level,
            "to train on": part.filter(split="train").height,
            "held out": part.filter(split="heldout").height,
            "distinct compositions": part.get_column("composition").n_unique(),
        }
        for (level,), part in table.sort("level").group_by("level", maintain_order=True)
    ]


def pair_rows(data: SftDataRef) -> list[Row]:
    """Return what the judge found about SFT pairs of each kind and style."""
    table = pl.read_parquet(data.path / "pairs.parquet", columns=["kind", "style", "used", "verdict"])
    grouped = table.unnest("verdict").group_by("kind", "style").agg(
        pairs=pl.len(),
        used=pl.col("used").sum(),
        correct=pl.col("correct").cast(pl.Float64).mean(),
        speedup=pl.col("speedup").filter(pl.col("correct")).median(),
    )  # fmt: skip
    return [
        {
            "kind": row["kind"],
            "style": row["style"],
            "pairs": row["pairs"],
            "used": row["used"],
            "correct": _share(row["correct"]),
            "median speed-up": rounded(row["speedup"]),
        }
        for row in grouped.sort("kind", "style").iter_rows(named=True)
    ]


def metric_rows(policy: CheckpointRef) -> list[Row]:
    """Return the training's metrics, one row an optimizer step; evenly drawn ones where there were many."""
    path = policy.path / "metrics.parquet"
    if not path.exists():  # a policy that came from elsewhere
        return []
    table = pl.read_parquet(path)
    shown = [name for name in _METRICS if name in table.columns]
    stride = max(1, math.ceil(table.height / _MAX_STEPS))
    chosen = [*range(0, table.height - 1, stride), table.height - 1]
    return [
        {name.replace("_", " "): rounded(value) for name, value in row.items()}
        for row in table.select(shown)[chosen].iter_rows(named=True)
    ]


def verdict_rows(batch: TrajectoryBatchRef) -> list[Row]:
    """Return how many turns of each number got which verdict, and what that was worth."""
    turns = pl.read_parquet(batch.path / "turns.parquet", columns=["turn_index", "verdict", "reward"]).with_columns(
        status=pl.col("verdict").struct.field("status")
    )
    numbers = sorted(turns.get_column("turn_index").unique().to_list())
    counts = {(status, number): count for status, number, count in turns.group_by("status", "turn_index").len().rows()}
    rows: list[Row] = []
    for (status,), part in turns.group_by("status"):
        mean = part.get_column("reward").mean()
        rows.append(
            {
                "verdict": status,
                **{f"turn {number + 1}": counts.get((status, number), 0) for number in numbers},
                "all": part.height,
                "share": _share(part.height / turns.height),
                "mean reward": rounded(mean if isinstance(mean, float) else None),
            }
        )
    return sorted(rows, key=lambda row: -row["all"])


def evaluation_rows(evaluation: EvaluationRef) -> list[Row]:
    """Return every figure of an evaluation with its interval."""
    overall = json.loads((evaluation.path / "evaluation.json").read_text(encoding="utf-8"))["overall"]
    return [{"figure": name, "value": _with_interval(overall, name)} for name in overall if f"{name}_ci" in overall]


_TABLES: dict[type[ArtifactRef], tuple[str, Callable[[Any], list[Row]]]] = {
    ProblemSetRef: ("problems", problem_rows),
    SftDataRef: ("pairs", pair_rows),
    CheckpointRef: ("metrics", metric_rows),
    TrajectoryBatchRef: ("verdicts", verdict_rows),
    EvaluationRef: ("figures", evaluation_rows),
}


def rounded(value: Any) -> Any:
    """Return a number with four significant digits; what has no value (null, NaN) as a dash."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _with_interval(figures: Mapping[str, Any], name: str, signed: bool = False) -> str:
    value, interval = figures.get(name), figures.get(f"{name}_ci")
    if value is None:
        return "–"
    form = "+.3f" if signed else ".3f"
    return f"{value:{form}}" + (f"  [{interval[0]:{form}}, {interval[1]:{form}}]" if interval else "")
