"""Table with one row a problem, made from turns: every figure, interval and paired difference is computed from it.

Columns of `per_problem.parquet` (one row a held-out problem; shares and means are over that problem's trajectories):

    problem_id, problem_digest, level, family
    tier                    tasks.problems.row.Tier
    trajectories            trajectories that count
    infrastructure_errors   trajectories left out: the judge or the machine failed, which says nothing of the policy
    compiled, correct       share whose last turn compiled / is correct
    fast_<p>                share whose last turn is correct and more than p times as fast as the reference;
                            fast_0 = correct
    pass_<k>                unbiased pass@k over last turns; null if fewer than k trajectories count
    mean_return             mean aggregated return (the return of turn 0)
    mean_reward             mean reward of the last turn
    mean_turns              mean number of turns
    first_correct, first_reward     share whose first turn is correct, and its mean reward
    added_correct, added_reward     what the later turns added: the last turn's minus the first turn's
    best_correct, best_reward       share with a correct kernel on any turn, and the mean of the highest reward: what
                            somebody gets who keeps the best kernel of a conversation
    found_reward            highest reward on any turn of any trajectory: what somebody gets who keeps the best kernel
                            of all of them (best of n)
    distinct_answers        number of distinct first answers, by their text
    answer_nats             mean negative log-probability of a first answer, of the policy at temperature 1; of answers
                            that were sampled at temperature 1 it estimates their entropy without bias
    log_speedup_sum, speedups   sum and number of log speedups of correct last turns; their quotient is the logarithm of
                            the geometric mean

All shares and means are null if no trajectory counts.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from kernels_eval.verdict import Status
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.statistics import Ratio, pass_at_k

SPEEDUP = "geomean_speedup"
_FIGURES = (
    "compiled",
    "correct",
    "mean_return",
    "mean_reward",
    "mean_turns",
    "first_correct",
    "first_reward",
    "added_correct",
    "added_reward",
    "best_correct",
    "best_reward",
    "found_reward",
    "distinct_answers",
    "answer_nats",
)
_ALWAYS = (0.0, 1.0, 2.0)
"""Thresholds of fast_p that the summary of every run names, whatever is configured."""


def thresholds_of(config: EvaluationConfig) -> list[float]:
    """Return the thresholds of fast_p, rising."""
    return sorted({*_ALWAYS, *config.fast_thresholds})


def fast_name(threshold: float) -> str:
    """Return the column of fast_p: `fast_1`, `fast_0.5`."""
    return f"fast_{threshold:g}"


def with_outcomes(turns: pl.DataFrame, thresholds: Sequence[float]) -> pl.DataFrame:
    """Return the turns with their verdict's status, compiled, correct, speedup and fast_p as plain columns.

    `answer_nats` is the negative log-probability of the turn's whole answer; null if its tokens are not known.
    """
    verdict = pl.col("verdict").struct
    correct = verdict.field("correct").fill_null(False)
    speedup = verdict.field("speedup")
    logprobs = pl.col("response_logprobs")
    return turns.with_columns(
        verdict.field("status").alias("status"),
        verdict.field("compiled").fill_null(False).alias("compiled"),
        correct.alias("correct"),
        pl.when(logprobs.list.len() > 0).then(logprobs.list.sum().neg()).alias("answer_nats"),
        # A correct kernel without a time counts for fast_0 (which is `correct`) and for no higher threshold.
        pl.when(correct & (speedup > 0)).then(speedup).alias("speedup"),
        *[
            (correct if threshold == 0 else correct & (speedup.fill_null(0.0) > threshold)).alias(fast_name(threshold))
            for threshold in thresholds
        ],
    )


def without_faults(turns: pl.DataFrame) -> pl.DataFrame:
    """Return the turns without trajectories in which the judge or the machine failed at least once."""
    status = pl.col("verdict").struct.field("status")
    faults = turns.filter(status.is_null() | (status == Status.INFRASTRUCTURE_ERROR.value))
    return turns.filter(~pl.col("trajectory_id").is_in(faults.get_column("trajectory_id").unique().implode()))


def last_turns(turns: pl.DataFrame, until: int | None = None) -> pl.DataFrame:
    """Return one row a trajectory: its last turn, or its last one no later than `until`, as if episodes ended there."""
    counted = turns if until is None else turns.filter(pl.col("turn_index") <= until)
    return counted.sort("trajectory_id", "turn_index").group_by("trajectory_id", maintain_order=True).last()


def status_shares(outcomes: pl.DataFrame) -> dict[str, float]:
    """Return the share of each status among the last turns of `with_outcomes`."""
    statuses = last_turns(outcomes).get_column("status")
    counts = statuses.value_counts().sort("status")
    return {str(status): count / statuses.len() for status, count in counts.iter_rows()}


def per_problem_table(
    trajectories: pl.DataFrame, turns: pl.DataFrame, problems: pl.DataFrame, config: EvaluationConfig
) -> pl.DataFrame:
    """Return the table that the module's docstring describes, sorted by problem_id, from tables of the same names."""
    outcomes = with_outcomes(without_faults(turns), thresholds_of(config))
    last = last_turns(outcomes)
    first = outcomes.filter(pl.col("turn_index") == 0).select(
        "trajectory_id",
        pl.col("return").alias("mean_return"),
        pl.col("correct").alias("first_correct"),
        pl.col("reward").alias("first_reward"),
        pl.col("response_text").alias("distinct_answers"),
        pl.col("answer_nats").alias("first_nats"),
    )
    best = outcomes.group_by("trajectory_id").agg(
        pl.col("correct").any().alias("best_correct"), pl.col("reward").max().alias("best_reward")
    )
    shares = ["compiled", "correct", *[fast_name(p) for p in thresholds_of(config)]]
    measured = (
        last.join(first, on="trajectory_id", how="left", maintain_order="left")
        .join(best, on="trajectory_id", how="left", maintain_order="left")
        .group_by("problem_id", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("trajectories"),
            *[pl.col(name).cast(pl.Float64).mean() for name in shares],
            pl.col("mean_return").mean(),
            pl.col("reward").mean().alias("mean_reward"),
            (pl.col("turn_index") + 1).cast(pl.Float64).mean().alias("mean_turns"),
            pl.col("first_correct").cast(pl.Float64).mean(),
            pl.col("first_reward").mean(),
            pl.col("best_correct").cast(pl.Float64).mean(),
            pl.col("best_reward").mean(),
            pl.col("best_reward").max().alias("found_reward"),
            pl.col("distinct_answers").n_unique().cast(pl.Float64),
            pl.col("first_nats").mean().alias("answer_nats"),
            pl.col("speedup").log().sum().alias("log_speedup_sum"),
            pl.col("speedup").count().cast(pl.Float64).alias("speedups"),
        )
        .with_columns(
            (pl.col("correct") - pl.col("first_correct")).alias("added_correct"),
            (pl.col("mean_reward") - pl.col("first_reward")).alias("added_reward"),
        )
    )
    sampled = trajectories.group_by("problem_id", maintain_order=True).agg(pl.len().cast(pl.Int64).alias("sampled"))
    table = (
        problems.select("problem_id", "problem_digest", "level", "family", "tier")
        .join(sampled, on="problem_id", how="inner")
        .join(measured, on="problem_id", how="left")
        .with_columns(pl.col("trajectories").fill_null(0))
        .with_columns((pl.col("sampled") - pl.col("trajectories")).alias("infrastructure_errors"))
        .drop("sampled")
        .sort("problem_id")
    )
    return table.with_columns(_pass_columns(table, config.pass_at))


def ratios_of(table: pl.DataFrame) -> dict[str, Ratio]:
    """Return every figure as a ratio. Problems have equal weight; the geometric mean pools speedups."""
    ratios = {
        name: Ratio(
            table.get_column(name).fill_null(0.0).to_numpy().astype(np.float64),
            table.get_column(name).is_not_null().to_numpy().astype(np.float64),
        )
        for name in table.columns
        if name in _FIGURES or name.startswith(("fast_", "pass_"))
    }
    ratios[SPEEDUP] = Ratio(
        table.get_column("log_speedup_sum").fill_null(0.0).to_numpy().astype(np.float64),
        table.get_column("speedups").fill_null(0.0).to_numpy().astype(np.float64),
        logarithmic=True,
    )
    return ratios


def _pass_columns(table: pl.DataFrame, ks: Sequence[int]) -> list[pl.Series]:
    """Return one column a k; None where a problem has fewer than k trajectories."""
    samples = table.get_column("trajectories").to_numpy()
    share = table.get_column("correct").fill_null(0.0).to_numpy()
    correct = np.rint(share * samples).astype(np.int64)
    return [pl.Series(f"pass_{k}", pass_at_k(samples, correct, k)).fill_nan(None) for k in ks]
