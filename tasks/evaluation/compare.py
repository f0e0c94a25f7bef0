"""Compares two policies problem by problem: what changed, and between which bounds."""

from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.evaluate import read_per_problem, with_intervals
from tasks.evaluation.per_problem import ratios_of
from tasks.evaluation.statistics import paired_differences
from tasks.pipeline.references import EvaluationRef


def paired(before: EvaluationRef, after: EvaluationRef, config: EvaluationConfig) -> dict[str, Any]:
    """Return `{"n": problems, "delta_correct": …, "delta_correct_ci": [low, high], …}` for every figure that both have.

    A delta is `after − before` over the problems that both measured; its interval resamples those problems, each with
    both of its results. Raises InputError where no problem is shared.
    """
    first, second = read_per_problem(before), read_per_problem(after)
    keys = ["problem_id", "problem_digest"]
    shared = first.select(keys).join(second.select(keys), on=keys, how="inner")
    if shared.is_empty():
        raise InputError(
            f"{before.uri} and {after.uri}: expected evaluations on the same problems; they share none (same id and source)"
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
