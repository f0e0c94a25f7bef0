"""Measures a policy from its trajectories on the held-out problems, and compares two measured policies.

Publishes a folder with

- `evaluation.json`: the figures, each share with its bootstrap interval beside it as `<name>_ci`;
- `per_problem.parquet`: one row a problem (tasks.evaluation.per_problem), from which policies are compared;
- `trajectories.parquet`, `turns.parquet`: the trajectories themselves, as in tasks.trajectories.

Trajectories in which the judge or the machine failed are left out of every figure, and counted.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.per_problem import (
    SPEEDUP,
    fast_name,
    last_turns,
    per_problem_table,
    ratios_of,
    status_shares,
    thresholds_of,
    with_outcomes,
    without_faults,
)
from tasks.evaluation.statistics import Estimate, Ratio, estimates, paired_differences
from tasks.pipeline.references import EvaluationRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.store import digest_of, publish, published_digest, write_atomically
from tasks.trajectories.content import TABLES
from tasks.trajectories.reader import read_trajectories, read_turns

EVALUATION_FILE = "evaluation.json"
PER_PROBLEM_FILE = "per_problem.parquet"
_PROBLEM_COLUMNS = ["problem_id", "problem_digest", "level", "family"]


def evaluate_policy(
    batch: TrajectoryBatchRef, problems: ProblemSetRef, config: EvaluationConfig, destination: Path
) -> EvaluationRef:
    """Publish the figures of a batch. Raises InputError if it mixes policies, or has no problem of the set."""
    turns = read_turns(batch)
    trajectories = read_trajectories(batch)
    digests = trajectories.get_column("policy_digest").unique().to_list()
    if len(digests) != 1:
        raise InputError(f"{batch.uri}: expected the trajectories of one policy, found {len(digests)}")
    policy_digest = str(digests[0])
    problem_table = pl.read_parquet(problems.path / "problems.parquet", columns=_PROBLEM_COLUMNS)
    table = per_problem_table(trajectories, turns, problem_table, config)
    if table.is_empty():
        raise InputError(
            f"{batch.uri}: expected trajectories of problems in {problems.uri}; none of its problem_ids is there"
        )
    metadata = {"run_id": batch.run_id, "iteration": batch.iteration, "policy_digest": policy_digest}
    with publish(destination, metadata, {**TABLES, EVALUATION_FILE: _figures_digest}) as folder:
        table.write_parquet(folder / PER_PROBLEM_FILE)
        # A rollout leaves out problems whose prompts leave no room for an answer: they are in no figure.
        left_out = {"problems_left_out": max(problems.heldout - table.height, 0)}
        evaluation = metadata | left_out | _figures(table, turns, config)
        write_atomically(folder / EVALUATION_FILE, json.dumps(evaluation, indent=1))
        for name in ("trajectories.parquet", "turns.parquet"):
            shutil.copyfile(batch.path / name, folder / name)
    return EvaluationRef(
        uri=str(destination.resolve()), digest=published_digest(destination), policy_digest=policy_digest
    )


def _figures_digest(file: Path) -> str:
    """Return the digest of `evaluation.json` without the id of the run."""
    figures = json.loads(file.read_text(encoding="utf-8"))
    return digest_of({name: value for name, value in figures.items() if name != "run_id"})


def read_evaluation(reference: EvaluationRef) -> dict[str, Any]:
    """Return the content of `evaluation.json`."""
    return json.loads((reference.path / EVALUATION_FILE).read_text(encoding="utf-8"))


def read_per_problem(reference: EvaluationRef) -> pl.DataFrame:
    """Return the per-problem table, sorted by problem_id."""
    return pl.read_parquet(reference.path / PER_PROBLEM_FILE)


def with_intervals(figures: dict[str, Estimate]) -> dict[str, Any]:
    """Return `{"correct": 0.7, "correct_ci": [0.6, 0.8], …}`: figures and intervals as they stand in JSON."""
    flat: dict[str, Any] = {}
    for name, (value, interval) in figures.items():
        flat[name] = value
        flat[f"{name}_ci"] = None if interval is None else list(interval)
    return flat


def _figures(table: pl.DataFrame, turns: pl.DataFrame, config: EvaluationConfig) -> dict[str, Any]:
    """Return the content of `evaluation.json` but for its identity."""

    def measured(ratios: dict[str, Ratio]) -> dict[str, Any]:
        return with_intervals(estimates(ratios, config.bootstrap_resamples, config.confidence, config.seed))

    counted = without_faults(turns)
    return {
        "problems": table.height,
        "trajectories": int(table.get_column("trajectories").sum()),
        "infrastructure_errors": int(table.get_column("infrastructure_errors").sum()),
        "confidence": config.confidence,
        "bootstrap_resamples": config.bootstrap_resamples,
        "timing_source": _timing_source(counted),
        "overall": {"n": table.height, **measured(ratios_of(table))},
        "levels": {
            str(level): {"n": part.height, **measured(ratios_of(part))}
            for (level,), part in sorted(
                table.partition_by("level", as_dict=True).items(), key=lambda item: str(item[0])
            )
        },
        "turns": [_turn_figures(counted, turn, config, measured) for turn in sorted(set(counted["turn_index"]))],
        "statuses": status_shares(with_outcomes(counted, [])),
    }


def _turn_figures(counted: pl.DataFrame, turn: int, config: EvaluationConfig, measured: Any) -> dict[str, Any]:
    """Return the figures of turn `turn`, in two ways.

    `taken`: over the trajectories that reached this turn (those that succeeded earlier did not: a harder selection).
    `after`: over all trajectories, by their last turn up to this one, as if episodes ended after it.
    """
    outcomes = with_outcomes(counted, thresholds_of(config))
    taken = outcomes.filter(pl.col("turn_index") == turn)
    return {
        "turn_index": turn,
        "n": taken.height,
        "taken": measured(_turn_ratios(taken, config)),
        "after": measured(_turn_ratios(last_turns(outcomes, until=turn), config)),
    }


def _turn_ratios(rows: pl.DataFrame, config: EvaluationConfig) -> dict[str, Ratio]:
    names = ["compiled", "correct", *[fast_name(p) for p in thresholds_of(config) if p >= 1]]
    table = (
        rows.group_by("problem_id", maintain_order=True)
        .agg(
            *[pl.col(name).cast(pl.Float64).mean() for name in names],
            pl.col("reward").mean().alias("mean_reward"),
            pl.col("speedup").log().sum().alias("log_speedup_sum"),
            pl.col("speedup").count().cast(pl.Float64).alias("speedups"),
        )
        .sort("problem_id")
    )
    ratios = ratios_of(table)
    return {name: ratios[name] for name in [*names, "mean_reward", SPEEDUP]}


def _timing_source(counted: pl.DataFrame) -> str | None:
    """Return the source of the times: `gpu`, `roofline`, `mixed`; None if nothing was timed."""
    sources = counted.get_column("verdict").struct.field("timing_source").drop_nulls().unique().to_list()
    if not sources:
        return None
    return str(sources[0]) if len(sources) == 1 else "mixed"


def paired(before: EvaluationRef, after: EvaluationRef, config: EvaluationConfig) -> dict[str, Any]:
    """Return `{"n": problems, "delta_correct": …, "delta_correct_ci": [low, high], …}` for every figure that both have.

    A delta is `after − before` over the problems that both measured; its interval resamples those problems, each with
    both of its results. Raises InputError if no problem is shared.
    """
    first, second = read_per_problem(before), read_per_problem(after)
    keys = ["problem_id", "problem_digest"]
    shared = first.select(keys).join(second.select(keys), on=keys, how="inner")
    if shared.is_empty():
        raise InputError(
            f"{before.uri} and {after.uri}: expected evaluations on the same problems; "
            "they share none (same id and source)"
        )
    differences = paired_differences(
        ratios_of(_restricted(first, shared)),
        ratios_of(_restricted(second, shared)),
        config.bootstrap_resamples,
        config.confidence,
        config.seed,
    )
    return {
        "n": shared.height,
        **with_intervals({f"delta_{name}": estimate for name, estimate in differences.items()}),
    }


def _restricted(table: pl.DataFrame, shared: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the shared problems, in one order for both tables."""
    return table.join(shared, on=["problem_id", "problem_digest"], how="semi").sort("problem_id", "problem_digest")
